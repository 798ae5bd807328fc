"""The schedule: a checked walk each hour, and a rebuild of each day that has settled."""

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from orchestration.dagster.cells import REBUILT
from orchestration.dagster.jobs import OTHERS
from orchestration.dagster.keys import SESSION_CELLS
from orchestration.dagster.resources import Engine, Store
from orchestration.dagster.schedules import REBUILT_TAG, each_hour
from orchestration.definitions import definitions

TICK = datetime.now(UTC).replace(second=0, microsecond=0)


@pytest.fixture
def instance(on_disk: dg.DagsterInstance) -> dg.DagsterInstance:
    """Dagster's records on disk: a schedule opens them by their address."""
    return on_disk


def tick(schedule, url, instance) -> Any:
    """The run requests of a tick, and why there are none."""
    with dg.build_schedule_context(
        instance=instance,
        scheduled_execution_time=TICK,
        resources={"store": Store(database_url=url), "engine": Engine()},
        repository_def=definitions.get_repository_def(),
    ) as context:
        return schedule.evaluate_tick(context)


def test_each_hour_walks_and_checks_yesterday(store, instance) -> None:
    (request,) = tick(each_hour, store.url, instance).run_requests

    assert request.partition_key == (TICK - timedelta(days=1)).date().isoformat()
    assert set(request.asset_check_keys) == set(OTHERS)
    assert len(request.asset_selection) == 10


def test_a_settled_day_is_rebuilt_once(canary, instance, today) -> None:
    canary.run("deploy_reward_fast", instance, today)
    first_day = canary.first_day.date().isoformat()

    _, rebuild = tick(each_hour, canary.url, instance).run_requests
    result = canary.run(
        "deploy_reward_day",
        instance,
        rebuild.partition_key,
        asset_selection=rebuild.asset_selection,
        tags=rebuild.tags,
    )
    later = tick(each_hour, canary.url, instance).run_requests

    assert rebuild.partition_key == first_day
    assert rebuild.asset_selection == [SESSION_CELLS]
    assert rebuild.asset_check_keys == [REBUILT]
    assert result.success
    assert [request.tags.get(REBUILT_TAG) for request in later[1:]] != [first_day]


def test_a_day_whose_outcomes_can_still_come_is_not_rebuilt(canary, instance, today) -> None:
    canary.run("deploy_reward_fast", instance, today)
    canary.tamper("UPDATE cursors SET at = at - interval '9 days' WHERE stage = 'cells/activation'")

    assert len(tick(each_hour, canary.url, instance).run_requests) == 1
