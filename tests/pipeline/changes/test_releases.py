"""Releases as teams make them: the control of a canary, and the build of users meanwhile.

Each is lived in simulated time against a real service: deploys are posted, sessions come, and a
tick notes the builds that they were served.
"""

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text

from benchmarks.repository.private_service import PrivateService, private_service
from orchestration.pipeline.steps import note_seen
from storage.schema.clock import claim_derived_tables, closed_instant
from tests.conftest import Store
from tests.world import World

pytestmark = pytest.mark.process

B0, B1, C1, C2, HOTFIX = "b0b0b0b0", "b1b1b1b1", "c1c1c1c1", "c2c2c2c2", "f1f1f1f1"
UNKNOWN = "99999999"
BLOCK = timedelta(minutes=5)
BEGIN = datetime(2026, 11, 2, 8, tzinfo=UTC)


@dataclasses.dataclass(kw_only=True)
class Release(World):
    """A project of its own, and the time in which its releases are made."""

    service: PrivateService
    now: datetime

    def wait_until(self, moment: datetime) -> None:
        """Lets time pass, and the API learn the store's time, by a write that names none."""
        self.now = moment
        self.service.clock.move(moment)
        beat = {"event": "beat", "session_id": "clock", "environment": "clock"}
        assert self.post("/v1/events", {"events": [beat]}).status_code == 202

    def wait(self, minutes: float) -> None:
        self.wait_until(self.now + timedelta(minutes=minutes))

    def deploy(self, sha: str, allocation: float | None = None, **members: Any) -> dict[str, Any]:
        record = super().deploy(sha, allocation, deployed_at=self.now.isoformat(), **members)
        self.wait(0.5)
        return record

    def serve(
        self,
        shares: dict[str, float],
        *,
        sessions: int = 100,
        key: dict[str, str] | None = None,
        rates: dict[str, float] | None = None,
        replayed_in: str | None = None,
    ) -> None:
        """Lets a block pass in which builds are served, and another until it has closed.

        Args:
            key: By which events are sent; the write key where it is None.
            rates: Of each build, the share of its sessions that order.
            replayed_in: The environment into which they come as history; None where they are live.
        """
        start = BEGIN + ((self.now - BEGIN) // BLOCK + 1) * BLOCK
        at = {"occurred_at": (start + timedelta(minutes=2)).isoformat()}
        at |= {} if replayed_in is None else {"environment": replayed_in}
        address = "/v1/events" if replayed_in is None else "/v1/events?replay=true"
        events: list[dict[str, str]] = []
        for commit, share in shares.items():
            visits = self.new_sessions(round(share * sessions))
            orders = visits[: round((rates or {}).get(commit, 0) * len(visits))]
            for event, names in (("page_view", visits), ("order", orders)):
                named = {"event": event, "commit": commit, **at}
                events += [{**named, "session_id": name} for name in names]
        self.wait_until(start + timedelta(minutes=3))
        for first in range(0, len(events), 500):
            batch = {"events": events[first : first + 500]}
            answer = self.post(address, batch, headers=key or self.write)
            assert answer.status_code == 202, answer.text
        self.wait_until(start + BLOCK + timedelta(minutes=2, seconds=1))
        self.in_store(note_served)

    def register_commit(self, commit: str, **members: Any) -> str:
        standing = self.standing()
        experiment = self.register(treatment_commit=commit, **members)
        assert self.standing() == standing, "no registration changes what users have"
        return experiment

    def bound_commit(self, commit: str, **members: Any) -> dict[str, Any]:
        return self.bound(self.register_commit(commit, **members))

    def compared(self, commit: str, **members: Any) -> tuple[str | None, list[str]]:
        """The control of a commit that is registered, and the change under test."""
        registration = self.bound_commit(commit, **members)
        return registration["control_commit"], registration["change"]

    def checklist(self) -> dict[str, dict[str, Any]]:
        return {line["check"]: line for line in self.get("/v1/reward/checklist").json()}

    def announced(self, experiment: str) -> list[tuple[str, str]]:
        of = text("SELECT kind, subject FROM announcements WHERE experiment_id = :id")
        rows = self.in_store(lambda c: c.execute(of, {"id": experiment}).all())
        return [(row.kind, row.subject) for row in rows]

    def standing(self) -> str | None:
        answer = self.get("/v1/deploys/last?standing=true")
        return answer.json()["deploy"]["commit"]["sha"] if answer.status_code == 200 else None


def note_served(connection: Connection) -> None:
    claim_derived_tables(connection)
    note_seen(connection)


@pytest.fixture(scope="module")
def simulated() -> Iterator[PrivateService]:
    with private_service(BEGIN) as service:
        yield service


@pytest.fixture
def release(simulated, request) -> Release:
    with simulated.engine.begin() as connection:
        now: datetime = closed_instant(connection)
    engine = simulated.engine
    return Release.new(
        Store(url=str(engine.url), engine=engine),
        simulated.client,
        f"flow {request.node.name}"[:100],
        service=simulated,
        now=now,
        registration={"target_metric": "order"},
    )


# --- The twenty-two flows -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deploys", "expected"),
    [
        pytest.param([(B0, None, None), (C1, 0.1, B0)], (B0, [C1]), id="1 a plain canary"),
        pytest.param(
            [(B0, None, None), (C1, 0.2, B0), (C2, 0.1, C1)], (C1, [C2]), id="2 on a canary"
        ),
        pytest.param(
            [(B0, None, None), (C1, 0.2, B0), (C1, 0, None), (C2, 0.2, C1)],
            (B0, [C1, C2]),
            id="3 in the place of a canary",
        ),
        pytest.param([(B0, 0.9, None), (C1, 0.1, None)], (B0, [C1]), id="11 both weights declared"),
        pytest.param(
            [(B0, None, None), (C1, 0.5, B0), (C1, 1, None), (B0, 0, None), (C2, 0.1, C1)],
            (C1, [C2]),
            id="15 the old base withdrawn",
        ),
    ],
)
def test_a_canary_is_compared_as_its_deploys_declare(release, deploys, expected) -> None:
    for commit, share, base in deploys:
        release.deploy(commit, share, base=base)
    assert release.compared(deploys[-1][0]) == expected


@pytest.mark.parametrize("registered", [True, False])
def test_4_what_was_promoted_is_the_next_base_with_a_verdict_or_without(
    release, registered
) -> None:
    release.deploy(B0)
    release.deploy(C1, 0.2, base=B0)
    if registered:
        release.register_commit(C1)
    release.serve({B0: 0.8, C1: 0.2})
    release.deploy(C1, 1)
    assert release.standing() == C1
    release.serve({C1: 1})
    assert release.deploy(C2, 0.1)["base_commit"] == C1
    assert release.compared(C2) == (C1, [C2])
    assert release.bound_commit(C2)["base_moved"] is None


def test_5_a_promotion_without_a_share_counts_once_nearly_all_sessions_are_served(release) -> None:
    release.deploy(B0)
    release.deploy(C1, 0.2, base=B0)
    release.register_commit(C1)
    release.serve({B0: 0.8, C1: 0.2})
    release.deploy(C1)
    release.serve({B0: 0.5, C1: 0.5})
    assert release.standing() == B0
    release.serve({B0: 0.05, C1: 0.95})
    assert release.standing() == C1


def test_6_a_promotion_at_the_router_alone_is_seen(release) -> None:
    release.deploy(B0)
    release.deploy(C1, 0.1, base=B0)
    release.serve({B0: 0.9, C1: 0.1})
    release.serve({C1: 1})
    assert release.standing() == C1
    release.deploy(C2, 0.1, base=C1)
    assert release.compared(C2) == (C1, [C2])


def test_7_a_hotfix_on_an_old_build_is_compared_with_what_users_have(release) -> None:
    release.deploy(B0)
    release.deploy(B1, 1, base=B0)
    release.serve({B1: 1})
    release.deploy(HOTFIX, 0.1, base=B0)
    registration = release.bound_commit(HOTFIX)
    assert (registration["control_commit"], registration["change"]) == (B1, [HOTFIX])
    # The hotfix takes B1 away again, so nothing that is served differs by the hotfix alone.
    assert registration["base_moved"]["rebase_on"] == B1


def test_8_two_services_in_one_environment_are_told_apart_by_doctor(release) -> None:
    release.deploy(B0, base="aaaaaaaa")
    release.deploy(B1, base="cccccccc")
    release.wait(61)
    release.serve({B0: 0.5, B1: 0.5})
    known = release.checklist()["commit known"]
    assert known["ok"] is False
    assert known["seen"].startswith(f"{B0} and {B1} are both served")


def test_9_a_build_without_traffic_yet_is_not_what_users_have(release) -> None:
    release.deploy(B0)
    release.serve({B0: 1})
    release.deploy(B1, base=B0)
    release.serve({B0: 1})
    assert release.standing() == B0
    release.serve({B1: 1})
    assert release.standing() == B1


def test_10_an_old_build_that_is_deployed_again_is_what_users_have(release) -> None:
    release.deploy(B0)
    release.deploy(B1, base=B0)
    release.serve({B1: 1})
    release.deploy(B0)
    release.serve({B0: 1})
    assert release.standing() == B0
    release.deploy(C1, 0.1, base=B0)
    assert release.compared(C1) == (B0, [C1])


def test_12_a_preview_without_its_base_has_nothing_to_compare(release) -> None:
    release.deploy(B0)
    release.serve({B0: 1})
    deploy = release.deploy(C1, base=B0, environment="preview")
    registration = release.bound(release.register(deploy_id=deploy["deploy_id"]))
    assert registration["nothing_to_compare"] == {"unknown_commit": None, "part": None}


def test_13_a_canary_beside_an_unknown_build_names_it_and_its_part(release) -> None:
    release.deploy(C1, 0.1)
    release.serve({C1: 0.1, UNKNOWN: 0.9})
    registration = release.bound_commit(C1)
    assert registration["nothing_to_compare"] == {"unknown_commit": UNKNOWN, "part": 0.9}
    assert release.standing() is None


def test_a_control_that_a_registration_names_is_not_what_users_have_by_that(release) -> None:
    release.deploy(B0)
    release.deploy(C1, 0.1)
    release.serve({C1: 0.1, UNKNOWN: 0.9})
    release.register_commit(C1, control_commit=UNKNOWN)
    assert release.standing() == B0


def test_14_a_base_that_is_named_late_holds_for_experiments_bound_later(release) -> None:
    release.deploy(B0)
    release.deploy(B1, 0.5)
    release.deploy(C1, 0.1)
    assert release.compared(C1) == (B0, [C1])
    release.deploy(C1, 0.2, base=B1)
    assert release.compared(C1) == (B0, [C1])
    assert release.compared(C1, target_metric="other") == (B1, [C1])


def test_16_a_flag_is_compared_inside_its_build(release) -> None:
    release.deploy(B0)
    flag = {"name": "cart", "treatment": True}
    registration = release.bound(release.register(treatment_flag=flag))
    assert (registration["control_commit"], registration["change"]) == (B0, ["cart=true"])
    assert registration["nothing_to_compare"] is None


def test_18_environments_are_apart(release) -> None:
    release.deploy(B0)
    release.deploy(B1, environment="staging")
    release.deploy(C1, 0.1)
    assert release.compared(C1) == (B0, [C1])


@pytest.mark.parametrize("fate", ["not registered", "open", "closed"])
def test_19_and_20_half_and_half_undeclared_leaves_the_old_build_what_users_have(
    release, fate
) -> None:
    release.deploy(B0)
    release.serve({B0: 1})
    release.deploy(C1, base=B0)
    experiment = None if fate == "not registered" else release.register_commit(C1)
    if fate == "closed":
        assert release.post(f"/v1/reward/{experiment}/close", None).status_code == 200
    release.serve({B0: 0.4, C1: 0.6})
    assert release.standing() == B0
    release.serve({B0: 0.08, C1: 0.92})
    assert release.standing() == C1


def test_21_an_undeclared_canary_without_a_base_is_compared_with_what_stands_beside_it(
    release,
) -> None:
    release.deploy(B0)
    release.serve({B0: 1})
    release.deploy(C1)
    release.serve({B0: 0.6, C1: 0.4})
    assert release.compared(C1) == (B0, [C1])
    assert release.bound_commit(C1)["base_moved"] is None


def test_22_a_registration_before_its_deploy_is_frozen_at_the_binding(release) -> None:
    release.deploy(B0)
    experiment = release.register_commit(C1)
    release.deploy(B1, 1)
    release.serve({B1: 1})
    release.deploy(C1, 0.1, base=B1)
    registration = release.bound(experiment)
    assert (registration["control_commit"], registration["change"]) == (B1, [C1])


# --- Over all of them -----------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("B0", "C1", "C2"), ("C2", "C1", "B0")])
def test_every_deploy_may_be_registered_in_any_order(release, order) -> None:
    release.deploy(B0)
    release.deploy(C1, 0.1, base=B0)
    release.deploy(C2, 0.1, base=B0)
    release.serve({B0: 0.8, C1: 0.1, C2: 0.1})
    commits = {"B0": B0, "C1": C1, "C2": C2}
    answers = {name: release.bound_commit(commits[name]) for name in order}
    for canary in ("C1", "C2"):
        assert answers[canary]["control_commit"] == B0
        assert answers[canary]["attempt"] == 1
        assert answers[canary]["nothing_to_compare"] is None
    assert answers["B0"]["nothing_to_compare"] == {"unknown_commit": None, "part": None}
    # Registered again, each is the experiment that it was.
    for name in order:
        assert release.register_commit(commits[name]) == answers[name]["experiment_id"]


def test_a_canary_that_is_registered_again_after_its_base_went_is_the_same_experiment(
    release,
) -> None:
    release.deploy(B0)
    release.deploy(C1, 0.2, base=B0)
    release.deploy(C2, 0.1, base=C1)
    experiment = release.register_commit(C2)
    release.deploy(C1, 0)
    assert release.register_commit(C2) == experiment


def test_a_canary_that_is_registered_again_after_its_promotion_is_the_same_experiment(
    release,
) -> None:
    release.deploy(B0)
    release.deploy(C1, 0.5, base=B0)
    experiment = release.register_commit(C1)
    release.deploy(C1, 1)
    release.serve({C1: 1})
    release.deploy(C2, 1, base=C1)
    assert release.register_commit(C1) == experiment


def test_a_hotfix_for_everybody_that_is_registered_moves_the_base_of_every_canary(release) -> None:
    release.deploy(B0)
    release.deploy(C1, 0.1, base=B0)
    canary = release.register_commit(C1)
    release.serve({B0: 0.9, C1: 0.1})
    release.deploy(HOTFIX, base=B0)
    release.register_commit(HOTFIX)
    assert release.announced(canary) == []
    release.serve({HOTFIX: 0.9, C1: 0.1})
    assert release.standing() == HOTFIX
    # No deploy came since: the tick that saw the sessions says so.
    assert release.announced(canary) == [("base_moved", HOTFIX)]
    moved = release.bound(canary)["base_moved"]
    assert (moved["rebase_on"], moved["continues"]) == (HOTFIX, True)


def test_a_full_deploy_has_nothing_to_be_compared_with_and_is_a_base_like_any_other(
    release,
) -> None:
    release.deploy(B0)
    release.serve({B0: 1})
    release.deploy(B1, 1, base=B0)
    registration = release.bound_commit(B1)
    assert registration["nothing_to_compare"] == {"unknown_commit": None, "part": None}
    release.serve({B1: 1})
    assert release.standing() == B1
    release.deploy(C1, 0.1)
    assert release.compared(C1) == (B1, [C1])


def test_sessions_of_a_stranger_move_no_build_where_arms_are_signed(release) -> None:
    release.settings(signed_assignments=True)
    release.deploy(B0)
    release.serve({B0: 1})
    release.deploy(B1)
    release.serve({B1: 1}, key=release.public)
    assert release.standing() == B0
    release.serve({B1: 1})
    assert release.standing() == B1


def test_a_canary_that_gets_its_share_again_goes_on_and_every_face_says_so(release) -> None:
    release.deploy(B0)
    release.deploy(C1, 0.5, base=B0)
    experiment = release.register_commit(C1)
    for _ in range(3):
        release.serve({B0: 0.5, C1: 0.5})
    release.deploy(C1, 0)
    release.wait(23 * 60)
    release.serve({B0: 1})
    release.deploy(C1, 0.5)
    assert release.register_commit(C1) == experiment
    for _ in range(10):
        release.serve({B0: 0.5, C1: 0.5})
    release.tick()
    assert not release.contract(experiment)["power_state"]["decided"]
    situation = release.bound(experiment)["situation"]
    assert situation["state"] in {"comparing", "arriving"}
    assert "has had its share again since" in situation["sentence"]


@pytest.mark.parametrize(("share", "because"), [(0.0, "withdrawn"), (1.0, "promoted")])
def test_an_end_that_is_posted_late_closes_a_day_later_however_few_come(
    release, share, because
) -> None:
    release.deploy(B0)
    release.deploy(C1, 0.5, base=B0)
    experiment = release.register_commit(C1)
    for _ in range(2):
        release.serve({B0: 0.5, C1: 0.5})
    ended_at = release.now
    release.wait(28 * 60)
    World.deploy(release, C1, share, deployed_at=ended_at.isoformat())
    states: list[str] = []
    for minutes in (5, 23 * 60, 3 * 60):
        release.wait(minutes)
        release.tick()
        states.append(release.bound(experiment)["situation"]["state"])
    assert states == [because, because, "ended"]
    assert release.evidence(experiment)["ended_because"] == because
    release.deploy(C1, 0.5)
    assert release.register_commit(C1) != experiment


@pytest.mark.parametrize("blocks", [0, 12])
def test_a_canary_whose_base_is_taken_out_has_nothing_to_compare(release, blocks) -> None:
    release.deploy(B0)
    release.deploy(C1, 0.5, base=B0)
    experiment = release.register_commit(C1)
    for _ in range(blocks):
        release.serve({B0: 0.5, C1: 0.5})
    release.tick()
    release.deploy(B0, 0)
    situation = release.bound(experiment)["situation"]
    assert situation["state"] == "nothing_to_compare"
    assert not [step for step in situation["advice"] if "Leave the canary" in step]
    release.deploy(B0, 0.5)
    release.serve({B0: 0.5, C1: 0.5})
    assert release.bound(experiment)["situation"]["state"] != "nothing_to_compare"
