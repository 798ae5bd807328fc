"""The demo's story is honest, and its traffic decides what it says it decides."""

from datetime import UTC, datetime, timedelta

import pytest
from canary_traffic.demo import METRIC, Story, story

from cli.processes.up import demo_project
from storage.tenants.settings import read_settings

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def week() -> Story:
    return story(NOON)


@pytest.mark.nightly
def test_the_story_is_the_same_all_day(week) -> None:
    evening = story(NOON + timedelta(hours=11))
    assert evening.deploys() == week.deploys()
    for first, second in zip(week.runs, evening.runs, strict=True):
        assert list(first.deliveries()) == list(second.deliveries())


def test_its_project_measures_by_default_what_its_traffic_holds(store, week) -> None:
    made = demo_project(store.url)
    with store.engine.connect() as connection:
        metric = read_settings(connection, made.project_id).default_metric
    assert metric == METRIC
    assert metric in (sent.body["event"] for run in week.runs for sent in run.deliveries())
