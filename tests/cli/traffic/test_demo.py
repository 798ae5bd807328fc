"""The demo's story is honest, and its traffic decides what it says it decides."""

from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cli.processes.up import demo_project
from cli.traffic.canary import Traffic
from cli.traffic.demo import METRIC, Change, Story, story
from storage.tenants.settings import read_settings

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def week() -> Story:
    return story(NOON)


def test_the_story_is_the_same_all_day(week: Story) -> None:
    evening = story(NOON + timedelta(hours=11))
    assert evening.deploys() == week.deploys()
    for first, second in zip(week.runs, evening.runs, strict=True):
        assert list(first.deliveries()) == list(second.deliveries())


def test_another_day_shares_no_commit_and_no_session(week: Story) -> None:
    tomorrow = story(NOON + timedelta(days=1))
    for name in ("commit", "session_id"):
        assert not _named(week, name) & _named(tomorrow, name)


def test_everything_happened_before_the_day_and_within_four_days(week: Story) -> None:
    times = [sent.at for sent in chain.from_iterable(run.deliveries() for run in week.runs)]
    assert max(times) < NOON.replace(hour=0)
    assert week.baseline_at >= NOON.replace(hour=0) - timedelta(days=4)


def test_it_can_be_posted_in_about_a_minute(week: Story) -> None:
    assert 60_000 <= len(week) <= 100_000


def test_the_second_change_stands_on_the_first_after_its_promotion(week: Story) -> None:
    helps, harms = week.changes
    assert helps.control == week.baseline
    assert harms.control == helps.commit
    assert helps.steps[-1][1] == 1.0
    assert helps.steps[-1][0] < harms.steps[0][0]


def test_deploys_are_in_order_of_time(week: Story) -> None:
    times = [deploy["deployed_at"] for deploy in week.deploys()]
    assert times == sorted(times)


def test_the_router_served_the_shares_that_were_declared(week: Story) -> None:
    for change, run in zip(week.changes, week.runs, strict=True):
        begun = [seconds(at, run) for at, _ in change.steps]
        ends = [*begun[1:], np.inf]
        for (_, share), begin, end in zip(change.steps, begun, ends, strict=True):
            served = run.treated[(run.arrived >= begin) & (run.arrived < end)]
            assert abs(served.mean() - share) <= 4 * np.sqrt(share * (1 - share) / len(served))


def test_the_helping_change_crosses_upward_during_its_canary(week: Story) -> None:
    assert crossing(week.changes[0], week.runs[0]) == 1


def test_the_harming_change_crosses_downward_during_its_canary(week: Story) -> None:
    assert crossing(week.changes[1], week.runs[1]) == -1


def test_its_project_measures_by_default_what_its_traffic_holds(store: Any, week: Story) -> None:
    made = demo_project(store.url)
    with store.engine.connect() as connection:
        metric = read_settings(connection, made.project_id).default_metric
    assert metric == METRIC
    assert metric in (sent.body["event"] for run in week.runs for sent in run.deliveries())


def _named(of: Story, name: str) -> set[str]:
    bodies = (sent.body for run in of.runs for sent in run.deliveries())
    return {body[name] for body in bodies}


def seconds(at: datetime, run: Traffic) -> float:
    return (at - run.scenario.start).total_seconds()


def crossing(change: Change, run: Traffic) -> int:
    """The sign of the score where the mixture first reaches 1/α = 20; 0 where it never does.

    Blocks of half an hour between the first and the last step; the formulas of the mSPRT,
    written out here so that the demo does not vouch for itself with the engine's own code.
    """
    begin, end = (seconds(change.steps[place][0], run) for place in (0, -1))
    canary = (run.arrived >= begin) & (run.arrived < end)
    block = ((run.arrived - begin) // 1800).astype(int)
    converted = run.converted_after <= run.scenario.window.total_seconds()
    blocks = block[canary].max() + 1

    def counts(members: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.bincount(block[canary & members], minlength=blocks).astype(float)

    n1, n0 = counts(run.treated), counts(~run.treated)
    x1, x0 = counts(run.treated & converted), counts(~run.treated & converted)
    n, m = n1 + n0, x1 + x0
    S = np.cumsum((x1 * n0 - x0 * n1) / n)
    V = np.cumsum(n1 * n0 / n * m * (n - m) / (n * (n - 1)))
    components = [0.5 * np.log(rho / (rho + V)) + S**2 / (2 * (rho + V)) for rho in (25, 4)]
    log_e = np.logaddexp(*components) - np.log(2)
    looks = np.flatnonzero(log_e >= np.log(20))
    return int(np.sign(S[looks[0]])) if len(looks) else 0
