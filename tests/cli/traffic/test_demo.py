"""The demo's story is honest, and its traffic decides what it says it decides."""

from datetime import UTC, datetime, timedelta
from itertools import chain

import pytest

from cli.processes.up import demo_project
from cli.traffic.demo import METRIC, Story, story
from storage.tenants.settings import read_settings

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def week() -> Story:
    return story(NOON)


def test_the_story_is_the_same_all_day(week) -> None:
    evening = story(NOON + timedelta(hours=11))
    assert evening.deploys() == week.deploys()
    for first, second in zip(week.runs, evening.runs, strict=True):
        assert list(first.deliveries()) == list(second.deliveries())


def test_another_day_shares_no_commit_and_no_session(week) -> None:
    tomorrow = story(NOON + timedelta(days=1))
    for name in ("commit", "session_id"):
        assert not _named(week, name) & _named(tomorrow, name)


def test_everything_happened_before_the_day_and_within_four_days(week) -> None:
    times = [sent.at for sent in chain.from_iterable(run.deliveries() for run in week.runs)]
    assert max(times) < NOON.replace(hour=0)
    assert week.baseline_at >= NOON.replace(hour=0) - timedelta(days=4)


def test_it_can_be_posted_in_about_a_minute(week) -> None:
    assert 60_000 <= len(week) <= 100_000


def test_the_second_change_stands_on_the_first_after_its_promotion(week) -> None:
    helps, harms = week.changes
    assert helps.control == week.baseline
    assert harms.control == helps.commit
    assert helps.steps[-1][1] == 1.0
    assert helps.steps[-1][0] < harms.steps[0][0]


def test_deploys_are_in_order_of_time(week) -> None:
    times = [deploy["deployed_at"] for deploy in week.deploys()]
    assert times == sorted(times)


def test_its_project_measures_by_default_what_its_traffic_holds(store, week) -> None:
    made = demo_project(store.url)
    with store.engine.connect() as connection:
        metric = read_settings(connection, made.project_id).default_metric
    assert metric == METRIC
    assert metric in (sent.body["event"] for run in week.runs for sent in run.deliveries())


def _named(of: Story, name: str) -> set[str]:
    bodies = (sent.body for run in of.runs for sent in run.deliveries())
    return {body[name] for body in bodies}
