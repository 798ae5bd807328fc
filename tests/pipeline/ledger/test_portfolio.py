"""A portfolio by its command, through REST and on its page: all changes against a hold-back."""

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import main
from storage.tenants.keys import KeyKind
from storage.tenants.projects import CreatedProject
from tests.cli.conftest import serving
from tests.conftest import Store, filled_model, fresh_store, serving_store
from tests.world import ON_ORDERS, World

A, K, L, M = "aaaaaaa1", "ccccccc3", "ddddddd4", "eeeeeee5"
HOUR, DAY = 60.0, 1440.0
# The truth: K doubles the rate and L lifts it by a half, so that few units prove it.
RATES = {A: 0.10, K: 0.20, L: 0.30, M: 0.60}
TOGETHER = RATES[L] / RATES[A] - 1


def serve(story: Any, begin: float, end: float, **units: int) -> None:
    for name, count in units.items():
        commit = {"a": A, "k": K, "l": L, "m": M}[name]
        rates = {"order": RATES[commit]}
        story.crowd(commit, start=begin, minutes=end - begin, units=count, rates=rates)


CANARIES = [(A, K, 0.0), (K, L, DAY)]


@dataclass(frozen=True, kw_only=True)
class Week:
    """Two canaries reach everybody, then A is held back: what a store holds of it."""

    project: CreatedProject
    units: int
    begun: dict[str, str]
    promoted: str


def live(story: World) -> Week:
    story.deploy(A, minutes=-DAY)
    begun = {
        commit: story.deploy(
            commit, minutes=begin, base=base, allocation=0.5, commit={"message": f"Add {commit}"}
        )["deploy_id"]
        for base, commit, begin in CANARIES
    }
    for _, commit, begin in CANARIES:
        promoted = story.deploy(commit, minutes=begin + 20 * HOUR, allocation=1)
    serve(story, 0, 20 * HOUR, a=1000, k=1000)
    serve(story, DAY, DAY + 20 * HOUR, k=2000, l=2000)
    # Some still have the old build.
    serve(story, DAY + 21 * HOUR, 2 * DAY, a=25, l=500)
    story.deploy(A, minutes=2 * DAY, allocation=0.1)
    serve(story, 2 * DAY, 4 * DAY, a=500, l=4500)
    story.send()
    return Week(
        project=story.project, units=story.units, begun=begun, promoted=promoted["deploy_id"]
    )


def measure(story: World, week: Week) -> None:
    """Registers both canaries, and keeps them."""
    for _, commit, begin in CANARIES:
        story.register(deploy_id=week.begun[commit])
        story.tick(minutes=begin + 20 * HOUR)


Model = tuple[str, Week]


# To copy a store takes a tenth of a second, to tell the week some seconds.
@pytest.fixture(scope="module")
def lived(postgres_url, migrated_template) -> Iterator[Model]:
    def fill(store: Store) -> Week:
        with serving_store(store) as client:
            world = World.new(store, client, registration=ON_ORDERS)
            world.settings(locked=[])
            return live(world)

    with filled_model(postgres_url, migrated_template, fill) as model:
        yield model


@pytest.fixture(scope="module")
def measured(postgres_url, lived) -> Iterator[Model]:
    name, week = lived

    def fill(store: Store) -> Week:
        with opened(store, week) as story:
            measure(story, week)
        return week

    with filled_model(postgres_url, name, fill) as model:
        yield model


@contextmanager
def opened(store: Store, week: Week) -> Generator[World]:
    with serving_store(store) as client:
        yield World(
            store=store,
            client=client,
            project=week.project,
            registration=ON_ORDERS,
            units=week.units,
        )


@pytest.fixture
def story(postgres_url, measured) -> Iterator[World]:
    """The story after the week, in which both canaries were kept."""
    name, week = measured
    with fresh_store(postgres_url, name) as store, opened(store, week) as story:
        yield story


@pytest.fixture
def run(story) -> Iterator[Callable[..., Result]]:
    with running(story) as run:
        yield run


@contextmanager
def running(story: World) -> Generator[Callable[..., Result]]:
    with serving(story) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERVICE_API_URL", url)
        patch.setenv("SERVICE_PROJECT_KEY", story.project.keys[KeyKind.PROJECT])

        def run(*words: str) -> Result:
            done = CliRunner().invoke(main, ["portfolio", *words], catch_exceptions=False)
            assert done.exit_code == 0, done.output
            return done

        yield run


def figures(run: Callable[..., Result], *words: str) -> dict[str, Any]:
    return json.loads(run(*words, "--json").stdout)


def test_one_command_begins_it_and_then_tells_the_whole_beside_the_sum_of_the_claims(
    story, run
) -> None:
    assert story.get("/v1/reward/portfolio").json()["experiment_id"] is None
    begun = figures(run, A, "--metric", "order")
    assert (begun["treatment"], begun["hold_back"], begun["changes"]) == (L, A, 2)
    assert (begun["attempt"], begun["effect"]) == (3, None)
    # Units that still had the old build before it was held back had it by chance.
    starts_at = datetime.fromisoformat(story.bound(begun["experiment_id"])["starts_at"])
    assert starts_at == datetime(2026, 10, 3, tzinfo=UTC)
    story.tick(minutes=5 * DAY)

    later = figures(run)
    assert later["experiment_id"] == begun["experiment_id"]
    assert {line["change"][0]: line["verdict"] for line in later["measurements"]} == {
        K: "keep",
        L: "keep",
    }
    claims = [story.contract(line["experiment_id"])["lift"] for line in later["measurements"]]
    assert later["claimed"] == pytest.approx(claims[0] / RATES[K] + claims[1] / RATES[A], rel=0.05)
    low, high = later["effect"]["interval"]
    assert low < TOGETHER < high
    assert low > 0
    assert later["follow_up"] == "running"
    assert later["effect"]["relative"] > 0
    text = run().stdout
    assert "2 changes came since build aaaaaaa1; 2 of them were kept, and claimed +" in text
    assert [line["title"] for line in later["measurements"]] == [f"Add {L}", f"Add {K}"]
    assert f"Add {K}" in text
    assert "try 3 of these changes" in text
    assert story.get("/v1/reward/portfolio").json()["claimed"] == later["claimed"]


@pytest.mark.nightly
def test_it_hides_no_build_and_is_no_change_of_the_ledger(story, run, monkeypatch) -> None:
    monkeypatch.setattr("storage.ledger.entries.DAYS", 36_500)
    figures(run, A, "--metric", "order")
    story.tick(minutes=2 * DAY + HOUR)
    standing = story.get("/v1/deploys/last?standing=true").json()["deploy"]
    assert standing["commit"]["sha"] == L
    canary = story.deploy(M, minutes=3 * DAY, allocation=0.1)
    assert (canary["base_commit"], canary["base_assumed"]) == (L, True)
    other = story.register(treatment_commit=M)
    opened = story.bound(other)
    assert (opened["control_commit"], opened["base_moved"]) == (L, None)
    story.tick(minutes=5 * DAY)
    story.as_live()
    assert story.get("/v1/reward/ledger").json()["kept"] == 2


@pytest.mark.nightly
def test_once_users_have_a_later_build_its_units_are_not_compared_and_it_says_so(
    postgres_url, lived
) -> None:
    name, week = lived
    with fresh_store(postgres_url, name) as store, opened(store, week) as story:
        story.deploy(M, minutes=4 * DAY, base=L, allocation=1)
        story.deploy(L, minutes=4 * DAY, allocation=0.1)
        # M lifts by as much again: whoever counted its units would say so.
        serve(story, 4 * DAY, 6 * DAY, a=500, l=500, m=4000)
        story.send()
        measure(story, week)
        experiment = story.register(
            deploy_id=week.promoted, control_commit=A, metadata={"portfolio": True}, guardrails=None
        )
        story.tick(minutes=7 * DAY)
        with running(story) as run:
            later, text = figures(run), run().stdout
    assert later["experiment_id"] == experiment
    assert (later["moved_on"], later["standing"]) == (True, M)
    low, high = later["effect"]["interval"]
    assert low < TOGETHER < high
    assert {line["change"][0]: line["verdict"] for line in later["measurements"]} == {
        K: "keep",
        L: "keep",
    }
    assert f"Users have {M} now" in text
    assert f"deploy-reward deploy {L} --allocation 0.1" in text


def test_by_default_the_build_of_seven_days_ago_is_held_back(service, monkeypatch) -> None:
    now = datetime.now(UTC)
    monkeypatch.delenv("SERVICE_API_URL", raising=False)
    monkeypatch.setenv("SERVICE_DATABASE_URL", service.store.url)

    def run(*words: str) -> Result:
        words = ("portfolio", "--project", "shop", *words)
        return CliRunner().invoke(main, words, catch_exceptions=False)

    service.deploy("eeeeeee5", deployed_at=(now - timedelta(days=2)).isoformat())
    assert "No other build was in front of users a week ago" in run().stdout
    for sha, base, days in ((A, None, 20), (K, A, 9), (L, K, 3), (M, L, 1)):
        service.deploy(sha, base=base, deployed_at=(now - timedelta(days=days)).isoformat())
    begun = figures(run)
    assert (begun["hold_back"], begun["treatment"], begun["changes"]) == (K, M, 2)
    assert begun["unmeasured"] == [L, M]
    text = run().stdout
    assert f"deploy-reward deploy {K} --allocation 0.1" in text
    # A second call begins no second portfolio.
    assert figures(run)["experiment_id"] == begun["experiment_id"]
    answer = service.get("/v1/reward/portfolio?hold_back=fffffff")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_commit")


@pytest.mark.nightly
def test_the_standing_build_is_checked_against_the_rest_of_the_declared_shares(story) -> None:
    begun = {"treatment_commit": L, "control_commit": A, "metadata": {"portfolio": True}}
    portfolio = story.register(**begun)
    story.tick()
    assert 0 < story.evidence(portfolio)["gates"]["sample_ratio_e"] < 1
