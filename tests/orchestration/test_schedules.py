"""The schedules: a tick with nothing new launches nothing; what broke off is walked again."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import text

from orchestration.definitions import definitions
from orchestration.jobs import OTHERS, REBUILT
from orchestration.keys import SESSION_CELLS
from orchestration.resources import Store
from orchestration.schedules import REBUILT_TAG, each_hour, each_minute
from storage.experiments import register
from storage.projects import create_project
from storage.registration import Registration

# The next block may close at any moment: as though all had been read for an hour to come.
ALL_READ = "UPDATE cursors SET at = at + interval '1 hour' WHERE stage = 'exposures'"
TICK = datetime.now(UTC).replace(second=0, microsecond=0)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """Dagster's records on disk: a schedule opens them by their address."""
    with dg.instance_for_test() as on_disk:
        yield on_disk


def tick(schedule, url, instance) -> Any:
    """The run requests of a tick, and why there are none."""
    with dg.build_schedule_context(
        instance=instance,
        scheduled_execution_time=TICK,
        resources={"store": Store(database_url=url)},
        repository_def=definitions.get_repository_def(),
    ) as context:
        return schedule.evaluate_tick(context)


def test_a_store_with_nothing_to_measure_is_skipped(store, instance) -> None:
    found = tick(each_minute, store.url, instance)

    assert not found.run_requests
    assert found.skip_message == "no block has closed since the last run"


def test_a_closed_block_asks_for_todays_partition_under_the_ticks_own_key(canary, instance) -> None:
    (request,) = tick(each_minute, canary.url, instance).run_requests

    assert request.partition_key == TICK.date().isoformat()
    assert request.run_key == TICK.isoformat()
    assert tick(each_minute, canary.url, instance).run_requests[0].run_key == request.run_key


def test_what_was_read_is_not_read_again(canary, instance, today) -> None:
    canary.run("deploy_reward_fast", instance, today)
    canary.tamper(ALL_READ)

    assert not tick(each_minute, canary.url, instance).run_requests


@pytest.mark.parametrize("table", ["exposures", "cells", "evidence", "verdicts"])
def test_a_run_that_broke_off_at_any_step_is_followed_by_one_that_heals(
    canary, instance, today, table
) -> None:
    canary.tamper(f"ALTER TABLE {table} ADD CONSTRAINT broken CHECK (false) NOT VALID")
    broken = canary.run("deploy_reward_fast", instance, today, raise_on_error=False)
    canary.tamper(f"ALTER TABLE {table} DROP CONSTRAINT broken", ALL_READ)

    assert not broken.success
    assert len(tick(each_minute, canary.url, instance).run_requests) == 1

    canary.run("deploy_reward_fast", instance, today)

    assert canary.contract("click")["verdict"] == "keep"
    assert not tick(each_minute, canary.url, instance).run_requests


def test_a_run_whose_processes_are_gone_is_not_waited_for(canary, instance, today) -> None:
    canary.run("deploy_reward_fast", instance, today)
    canary.tamper(ALL_READ)
    instance.create_run_for_job(
        definitions.resolve_job_def("deploy_reward_fast"), status=dg.DagsterRunStatus.STARTED
    )

    assert len(tick(each_minute, canary.url, instance).run_requests) == 1


@pytest.mark.parametrize(
    ("tampering", "work"),
    [
        ("UPDATE experiments SET closed_at = now()", True),
        ("UPDATE experiments SET registered_at = now() - interval '29 days'", True),
        ("UPDATE experiments SET registered_at = now() - interval '27 days'", False),
    ],
)
def test_a_wait_without_a_deploy_ends_by_hand_or_after_four_weeks(
    store, instance, tampering, work
) -> None:
    with store.engine.begin() as connection:
        project_id = create_project(connection, "shop").project_id
        register(connection, project_id, Registration())
        connection.execute(text(tampering))

    assert bool(tick(each_minute, store.url, instance).run_requests) is work


def test_each_hour_walks_and_checks_yesterday(store, instance) -> None:
    (request,) = tick(each_hour, store.url, instance).run_requests

    assert request.partition_key == (TICK - timedelta(days=1)).date().isoformat()
    assert set(request.asset_check_keys) == set(OTHERS)
    assert len(request.asset_selection) == 8


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
    canary.tamper("UPDATE cursors SET at = at - interval '5 days' WHERE stage = 'cells/activation'")

    assert len(tick(each_hour, canary.url, instance).run_requests) == 1


def test_schedules_run_without_being_switched_on() -> None:
    for schedule in (each_minute, each_hour):
        assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
