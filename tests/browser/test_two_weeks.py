"""Two weeks of releases as a stranger lives them: what every face says at each moment, in a table.

Deploys are registered; a canary, a hotfix, a preview, a promotion and a withdrawal follow. A row of
the table is an experiment at a moment; no two sentences of it contradict one another.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.sync_api import Page

from benchmarks.repository.private_service import private_service
from cli.main import main
from domain.wording.registration import HISTORY
from storage.schema.clock import closed_instant
from storage.tenants.keys import Role
from storage.tenants.sign_ins import create_link
from tests.conftest import Store
from tests.pipeline.changes.test_releases import B0, BEGIN, C1, C2, HOTFIX, Release

pytestmark = pytest.mark.process

C3, C4, C5, C6 = "c3c3c3c3", "c4c4c4c4", "c5c5c5c5", "c6c6c6c6"
DAY = 24 * 60.0
GONE = ("Leave the canary running", "share above 0", "larger share", "four of five")
# What no face may say of an experiment in a state.
FORBIDDEN = {
    "waits_for_deploy": ("Leave the canary running", "Ship it", "Roll it back", "were not served"),
    "nothing_to_compare": ("Leave the canary running", "Rebase", "larger share", "get everybody"),
    "arriving": ("Ship it", "Roll it back", "Rebase", "withdrawn"),
    "comparing": ("Ship it", "Roll it back", "Rebase", "withdrawn"),
    "almost": ("Ship it", "Roll it back", "Rebase", "withdrawn"),
    "held": ("Ship it", "Rebase", "Leave the canary running", "was withdrawn"),
    "base_gone": ("Ship it", "Leave the canary running", "must not get everybody"),
    "withdrawn": (*GONE, "Ship it", "Rebase"),
    "promoted": (*GONE, "Rebase", "must not get everybody"),
    "decided": (*GONE, "Rebase", "Can't say"),
    "ended": (*GONE, "Ship it"),
}
# What only a release that may go on hears of its gate.
GOES_ON = ("almost", "comparing", "arriving", "decided")


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the faces say of an experiment at a moment; `phase` is its gate's by policy `keep`."""

    moment: str
    commit: str
    situation: dict[str, Any]
    phase: str
    faces: dict[str, str]


@pytest.fixture
def release() -> Iterator[Release]:
    with private_service(BEGIN) as simulated:
        with simulated.engine.begin() as connection:
            now = closed_instant(connection)
        store = Store(url=str(simulated.engine.url), engine=simulated.engine)
        client: Any = simulated.client
        members = {"service": simulated, "now": now, "registration": {"target_metric": "order"}}
        yield Release.new(store, client, "two weeks", **members)


@dataclass(kw_only=True)
class Stranger:
    """Somebody who asks every face after each experiment, and writes the answers down."""

    release: Release
    page: Page
    opened: dict[str, str]
    table: list[Row]

    def registers(self, commit: str, **members: Any) -> None:
        self.opened[commit] = self.release.register_commit(commit, **members)

    def ships(self, commit: str, share: float | None = None, **members: Any) -> None:
        self.release.deploy(commit, share, **members)
        if share != 0:
            self.registers(commit)

    def reads(self, moment: str, **expected: str) -> None:
        """Lets the schedule look, and reads every face; each commit is in the expected state."""
        self.release.wait(45)
        self.release.service.look()
        link = self.release.in_store(
            lambda connection: create_link(connection, self.release.project_id, Role.READ)
        )
        base = str(self.release.client.base_url).rstrip("/")
        self.page.goto(f"{base}/dashboard/sign-in#{link}")
        self.page.wait_for_url(f"{base}/dashboard")
        rows = [self._settled_row(moment, base, commit) for commit in expected]
        self.table += rows
        assert {row.commit: row.situation["state"] for row in rows} == expected, moment

    def _settled_row(self, moment: str, base: str, commit: str) -> Row:
        """Reads all faces within a single situation, which the service's own checks may move on."""
        for _ in range(5):
            row = self._row(moment, base, commit)
            if self.release.bound(self.opened[commit])["situation"] == row.situation:
                return row
        raise AssertionError(f"{moment}: the situation of {commit} does not settle")

    def _row(self, moment: str, base: str, commit: str) -> Row:
        release, experiment = self.release, self.opened[commit]
        self.page.goto(f"{base}/dashboard/experiments/{experiment}")
        bound = release.bound(experiment)
        asked = {
            "treatment_commit": commit,
            "target_metric": "order",
            "environment": bound["environment"],
        }
        gate = release.get("/v1/reward/gate", params=asked).json()
        own = [
            f"{line['seen']} {line['fix']}"
            for line in release.get("/v1/reward/checklist").json()
            if line.get("experiment_id") == experiment and line["ok"] is False
        ]
        faces = {
            "registration": " ".join(bound["situation"]["advice"]),
            "page": self.page.locator("main").inner_text(),
            "wait": self._types("wait", experiment, "--timeout", "0"),
            "explain": self._types("explain", experiment),
            "gate": gate["sentence"],
            "doctor": " ".join(own),
            **{f"MCP {tool}": self._calls(tool, experiment) for tool in ("get_verdict", "explain")},
        }
        texts = {face: plain(said) for face, said in faces.items()}
        phase = gate["phase"]
        return Row(
            moment=moment, commit=commit, situation=bound["situation"], phase=phase, faces=texts
        )

    def _types(self, *words: str) -> str:
        known = {
            "SERVICE_API_URL": str(self.release.client.base_url),
            "SERVICE_PROJECT_KEY": self.release.reward["X-Service-Project-Key"],
            "COLUMNS": "200",
        }
        return CliRunner().invoke(main, words, env={**os.environ, **known}).output

    def _calls(self, tool: str, experiment: str) -> str:
        call = {"name": tool, "arguments": {"experiment_id": experiment}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        accepts = {"Accept": "application/json, text/event-stream", **self.release.reward}
        answer = self.release.post("/mcp", asked, headers=accepts)
        assert answer.status_code == 200, answer.text
        return " ".join(part["text"] for part in answer.json()["result"]["content"])


def plain(text: str) -> str:
    """A text as the other faces write it: in a line, with the keyboard's apostrophe."""
    return " ".join(text.replace("\u2019", "'").split())


@pytest.mark.nightly
def test_over_two_weeks_of_releases_no_face_contradicts_another(release, page) -> None:
    stranger = Stranger(release=release, page=page, opened={}, table=[])
    ships, reads = stranger.ships, stranger.reads
    ships(B0)
    release.serve({B0: 1})
    reads("the first deploy is registered", **{B0: "nothing_to_compare"})
    stranger.registers(C1)
    reads("a canary is registered before its deploy", **{C1: "waits_for_deploy"})
    release.deploy(C1, 0.5, base=B0)
    reads("it is deployed", **{C1: "arriving", B0: "nothing_to_compare"})
    even = {B0: 0.3, C1: 0.3}
    release.serve({B0: 0.5, C1: 0.5}, sessions=300, rates=even)
    reads("it has traffic", **{C1: "comparing"})
    ships(HOTFIX, 1, base=B0)
    release.serve({HOTFIX: 0.5, C1: 0.5}, sessions=300)
    reads("a hotfix takes its base's place", **{C1: "base_gone", HOTFIX: "promoted"})
    ships(C1, 0)
    reads("the canary is withdrawn", **{C1: "withdrawn"})
    release.wait(3 * DAY)
    for _ in range(2):
        release.serve({HOTFIX: 1})
    preview = {"environment": "preview"}
    deploy = release.deploy(C3, 0.5, base=HOTFIX, **preview)
    stranger.opened[C3] = release.register(deploy_id=deploy["deploy_id"])
    reads("a preview is deployed", **{C3: "arriving", C1: "ended"})
    ships(C2, 0.5, base=HOTFIX)
    worse = {HOTFIX: 0.5, C2: 0.05}
    release.serve({HOTFIX: 0.5, C2: 0.5}, sessions=600, rates=worse)
    reads("a canary that harms", **{C2: "decided"})
    ships(C2, 0)
    reads("it is withdrawn, as advised", **{C2: "decided"})
    assert stranger.table[-1].situation["action"] == "none"
    ships(C4, 0.5, base=HOTFIX)
    better = {HOTFIX: 0.2, C4: 0.6}
    release.serve({HOTFIX: 0.5, C4: 0.5}, sessions=600, rates=better)
    reads("a canary that helps", **{C4: "almost"})
    ships(C4, 1)
    release.serve({C4: 1}, sessions=100)
    reads("it is promoted before its verdict", **{C4: "promoted"})
    release.wait(2 * DAY)
    ships(C5, 0.5, base=C4)
    release.serve({C4: 1}, sessions=200)
    reads("a canary to which the router sends nothing", **{C5: "held"})
    past = {"environment": "history"}
    release.deploy(C4, **past)
    deploy = release.deploy(C6, 0.5, base=C4, **past)
    better = {C4: 0.2, C6: 0.6}
    release.serve({C4: 0.5, C6: 0.5}, sessions=600, rates=better, replayed_in="history")
    stranger.opened[C6] = release.register(deploy_id=deploy["deploy_id"])
    reads("a replay is registered after its outcomes", **{C6: "almost"})
    faces = stranger.table[-1].faces
    for face in ("page", "explain"):
        said = plain(faces[face].replace("│", " "))
        assert "nothing should be trained on it" in said, face
        assert "Do not train on the estimate" in said, face
    assert all(word in faces["MCP explain"] for word in ("retrospective", '"trainable": false'))
    for face in ("wait", "gate", "MCP get_verdict"):
        assert HISTORY in plain(faces[face]), face
    _holds_together(stranger.table)


def _holds_together(table: list[Row]) -> None:
    assert {row.situation["state"] for row in table} == set(FORBIDDEN)
    for row in table:
        state, sentence = row.situation["state"], row.situation.get("sentence")
        where = f"{row.moment}: {row.commit} ({state})"
        done = ("Ship it", "Roll it back", "Revert") if row.situation["action"] == "none" else ()
        for face, said in row.faces.items():
            for words in (*FORBIDDEN[state], *done):
                assert words not in said, (where, face, said)
            # A gate asked of a commit that no deploy has says that, whatever is registered.
            gated = face == "gate" and state != "waits_for_deploy"
            if sentence is not None and (gated or face in ("page", "wait", "explain")):
                times = said.lower().count(plain(sentence).lower())
                once = gated or face == "explain"
                assert times == 1 if once else times, (where, face, said)
            if sentence is not None and face == "MCP get_verdict":
                assert plain(sentence)[:100] in said, (where, face, said)
        assert row.phase != "Successful" or state in GOES_ON, (where, row.faces["gate"])
