"""The recipe of docs/many-changes.md, run by a shell in a real repository against a running API."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.repository.private_service import PrivateService, private_service
from storage.tenants.keys import KeyKind
from storage.tenants.setting_changes import apply_settings
from tests.cli.conftest import serving
from tests.processes.action import run_action, runner_path

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not all(map(shutil.which, ("bash", "curl", "git", "jq"))),
        reason="bash, curl, git or jq is not here",
    ),
]

PAGE = (Path(__file__).parents[2] / "docs" / "many-changes.md").read_text()
(RECIPE,) = re.findall(r"^```sh\n(registration=.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


# The file that each of five canaries adds, and what it multiplies the rate of orders by.
EFFECTS = {"checkout": 1.6, "banner": 0.6, "footer": 1.0, "search": 1.35, "typo": 1.0}


class Repository:
    """A team's repository: a trunk, and a branch for each canary."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "Ada")
        self.git("config", "user.email", "ada@shop.example")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, file: str, *, on: str | None = None) -> str:
        """Commits a file, on a commit or on nothing, and returns the commit."""
        if on is not None:
            self.git("checkout", "--quiet", on)
        (self.folder / file).write_text(file)
        self.git("add", file)
        self.git("commit", "--quiet", "--message", f"Add {file}")
        return self.git("rev-parse", "HEAD")

    def runner(self) -> dict[str, str]:
        """Returns the variables of a shell that has `deploy-reward`."""
        command = {"deploy-reward": f'exec {sys.executable} -m cli "$@"'}
        path = runner_path(self.folder.parent / "bin", **command)
        return {"PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}

    @cache  # noqa: B019 - a repository lives as long as its test
    def files(self, commit: str) -> list[str]:
        return self.git("ls-tree", "--name-only", commit).splitlines()

    def factor(self, commit: str) -> float:
        """Returns the factor of a commit's changes on the rate of orders."""
        return prod(EFFECTS.get(file, 1) for file in self.files(commit))

    def run_recipe(self, url: str, keys: dict[KeyKind, str], experiment: str) -> None:
        """Types the recipe; `canary.sh` and `roll-back.sh` write what they do to `router.log`."""
        log = self.folder.parent / "router.log"
        for name in ("canary", "roll-back"):
            script = self.folder / f"{name}.sh"
            script.write_text(f'#!/bin/bash\necho {name} "$@" >> {log}\n')
            script.chmod(0o755)
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", RECIPE],
            cwd=self.folder,
            env={
                **self.runner(),
                "SERVICE_API_URL": url,
                "EXPERIMENT": experiment,
                "PROJECT_KEY": keys[KeyKind.PROJECT],
                "WRITE_KEY": keys[KeyKind.WRITE],
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def routed(self) -> list[list[str]]:
        """Returns the calls of the recipe's scripts, in order."""
        return [
            line.split()
            for line in (self.folder.parent / "router.log").read_text().split("\n")[:-1]
        ]


@pytest.fixture
def repository(tmp_path) -> Repository:
    folder = tmp_path / "shop"
    folder.mkdir()
    return Repository(folder)


def test_the_recipe_rebases_a_canary_whose_base_moved_and_its_experiment_goes_on(
    tenant, repository
) -> None:
    base = repository.commit("shop")
    first, second = (repository.commit(name, on=base) for name in ("cart", "search"))

    tenant.deploy(base)
    for canary in (first, second):
        tenant.deploy(canary, 0.1, diff={"base_commit": base})
    body = {"treatment_commit": second, "target_metric": "activation"}
    experiment = tenant.register(**body)
    tenant.deploy(first, 1)

    assert tenant.bound(experiment)["base_moved"]["rebase_on"] == first
    with serving(tenant) as url:
        repository.run_recipe(url, tenant.project.keys, experiment)
    rebased = repository.git("rev-parse", "HEAD")
    assert repository.git("rev-parse", "HEAD~1") == first
    steps = {
        (deploy["commit"]["sha"], deploy["allocation"])
        for deploy in tenant.get("/v1/deploys").json()["deploys"]
    }
    assert {(rebased, 0.1), (second, 0.0)} <= steps
    assert tenant.bound(experiment)["base_moved"] is None
    assert repository.routed() == [["canary", rebased, "0.1"], ["roll-back", second]]
    # The same change on another base: registered again it is the same experiment.
    again = tenant.post("/v1/reward/register", {**body, "treatment_commit": rebased})
    assert again.json()["experiment_id"] == experiment


@dataclass
class Shop:
    """A shop of five canaries, whose users get the builds that the recipe routes."""

    service: PrivateService
    repository: Repository
    now: datetime
    standing: str = ""
    shares: dict[str, float] = field(default_factory=dict)
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(4))

    def serve_as_routed(self) -> None:
        """Follows what the recipe sent to the router."""
        for script, commit, *share in self.repository.routed():
            self.shares[commit] = float(share[0]) if script == "canary" else 0.0

    def live(self, hours: int) -> None:
        """Lets hours pass; the verdicts are brought up to date twice in each."""
        for minute in range(1, 60 * hours + 1):
            events = self._minute()
            self.now += timedelta(minutes=1)
            self.service.clock.move(self.now)
            self.service.post_events(events)
            if minute % 30 == 0:
                self.service.look()

    def _minute(self) -> list[dict[str, Any]]:
        builds = [self.standing, *self.shares]
        chances = [1 - sum(self.shares.values()), *self.shares.values()]
        events: list[dict[str, Any]] = []
        for place, build in enumerate(self.generator.choice(builds, 20, p=chances).tolist()):
            at = (self.now + timedelta(seconds=3 * place)).isoformat()
            session = {"session_id": self.generator.bytes(8).hex(), "commit": build}
            events.append({**session, "event": "page_view", "occurred_at": at})
            if self.generator.random() < 0.1 * self.repository.factor(build):
                events.append({**session, "event": "order", "occurred_at": at})
        return events

    def verdict(self, experiment: str) -> str:
        return self.service.reward("GET", f"/{experiment}")["verdict"]


@pytest.fixture
def shop(repository) -> Iterator[Shop]:
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=3)
    with private_service(begin) as service:
        with service.engine.begin() as connection:
            apply_settings(connection, service.project.project_id, {"guardrails": []})
        yield Shop(service=service, repository=repository, now=begin)


@pytest.mark.nightly
def test_five_canaries_on_one_base_each_get_an_answer_where_the_recipe_rebases_the_rest(
    shop,
) -> None:
    repository, service = shop.repository, shop.service
    base = shop.standing = repository.commit("shop")
    service.deploy({"commit": {"sha": base}})
    shop.live(1)
    canaries = {name: repository.commit(name, on=base) for name in EFFECTS}
    experiments: dict[str, str] = {}
    for name, commit in canaries.items():
        diff = {"base_commit": base, "files": []}
        service.deploy({"commit": {"sha": commit}, "diff": diff, "allocation": 0.1})
        body = {"treatment_commit": commit, "target_metric": "order"}
        experiments[name] = service.reward("POST", "/register", body)["experiment_id"]
        shop.shares[commit] = 0.1

    shop.live(6)
    # Two have their answers and leave: the first to everybody, the second to nobody.
    promoted, withdrawn = canaries["checkout"], canaries["banner"]
    assert shop.verdict(experiments["checkout"]) == "keep"
    assert shop.verdict(experiments["banner"]) == "rollback"
    for commit, share in ((withdrawn, 0), (promoted, 1)):
        service.deploy({"commit": {"sha": commit}, "allocation": share})
        del shop.shares[commit]
    shop.standing = promoted
    shop.live(1)
    still_open = ("footer", "search", "typo")
    for name in still_open:
        evidence = service.evidence(experiments[name])
        assert evidence is not None
        assert evidence.base_moved is not None
        assert evidence.base_moved.rebase_on == promoted
        assert f"--base {promoted} --change {canaries[name]}" in evidence.advice[0]

    for name in still_open:
        url = str(service.client.base_url).rstrip("/")
        repository.run_recipe(url, service.project.keys, experiments[name])
    shop.serve_as_routed()
    assert sorted(repository.files(commit) for commit, share in shop.shares.items() if share) == [
        sorted(["checkout", name, "shop"]) for name in still_open
    ]
    shop.live(23)
    assert {name: shop.verdict(experiments[name]) for name in EFFECTS} == {
        "checkout": "keep",
        "banner": "rollback",
        "footer": "abstain",
        "search": "keep",
        "typo": "abstain",
    }
    for name in ("footer", "typo"):
        evidence = service.evidence(experiments[name])
        assert evidence is not None
        assert evidence.base_moved is None
        low, high = evidence.totals.ci or (0, 0)
        assert low < 0 < high
        # Units of both bases count: a tenth of 7 and of 23 hours.
        assert evidence.arms.treatment.units > 3_200


class FlaggedShop(Shop):
    """A shop with a single build, which has each merged change behind a flag of its own."""

    effects: dict[str, float]

    def _minute(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        for place in range(60):
            at = (self.now + timedelta(seconds=place)).isoformat()
            unit = self.generator.bytes(8).hex()
            on = {
                flag: hashlib.sha256(f"{flag}=true:{unit}".encode()).hexdigest() < "8"
                for flag in self.effects
            }
            session = {"session_id": unit, "commit": self.standing, "flags": on}
            events.append({**session, "event": "page_view", "occurred_at": at})
            rate = 0.2 * prod(self.effects[flag] for flag in on if on[flag])
            if self.generator.random() < rate:
                events.append({**session, "event": "order", "occurred_at": at})
        return events

    def job(self, number: int, until: str) -> int:
        """Runs the step of the merge queue's job for a pull request, and returns how it ended."""
        head = f"refs/heads/gh-readonly-queue/main/pr-{number}-{self.standing}"
        done = run_action(
            "place",
            {
                "url": str(self.service.client.base_url).rstrip("/"),
                "project-key": self.service.project.keys[KeyKind.PROJECT],
                "flag": f"pr-{number}=true",
                "until": until,
                "timeout": "0s",
            },
            event={"merge_group": {"head_ref": head}},
            environment={**self.repository.runner(), "GITHUB_SHA": self.standing},
            token="",
            folder=self.repository.folder.parent,
        )
        assert done.code in {0, 10, 14}, done.log
        return done.code


@pytest.mark.nightly
def test_a_merge_queue_places_waits_and_merges_twenty_changes(shop) -> None:
    repository, service = shop.repository, shop.service
    queue = FlaggedShop(service=service, repository=repository, now=shop.now)
    queue.effects = {}
    queue.standing = repository.commit("shop")
    service.deploy({"commit": {"sha": queue.standing}})
    with service.engine.begin() as connection:
        settings = {"flag_places": 6, "verified_draws": True, "default_metric": "order"}
        apply_settings(connection, service.project.project_id, settings)
    truth = {number: (0.5, 1.5, 1.0, 1.0)[number % 4] for number in range(101, 121)}
    for number in truth:
        repository.git("checkout", "--quiet", "-b", f"topic-{number}", queue.standing)
        repository.commit(f"pr-{number}")
    repository.git("checkout", "--quiet", "main")
    queue.live(1)

    waiting, ended = list(truth), dict[int, int]()
    while len(ended) < len(truth):
        for number in [*waiting]:
            if queue.job(number, "placed") == 0:
                repository.git("merge", "--quiet", "--no-ff", "--no-edit", f"topic-{number}")
                waiting.remove(number)
                queue.effects[f"pr-{number}"] = truth[number]
        queue.live(1)
        for place in service.places("ended"):
            number = int(place["change"].removeprefix("#"))
            if number not in ended:
                ended[number] = queue.job(number, "ended")
                del queue.effects[f"pr-{number}"]
                if ended[number] == 10:
                    merge = repository.git("log", "--format=%H", "--grep", f"topic-{number}")
                    repository.git("revert", "--no-edit", "--mainline=1", merge)
    assert ended == {number: 10 if effect < 1 else 0 for number, effect in truth.items()}
    assert {*repository.files(repository.git("rev-parse", "main"))} == {
        "shop",
        *(f"pr-{number}" for number, effect in truth.items() if effect >= 1),
    }
