"""The sensor: it walks where a block closed, and a run is launched only where an answer turned."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError

from orchestration import sensors
from orchestration.definitions import definitions
from orchestration.resources import Store
from orchestration.sensors import each_half_minute
from orchestration.walk import close_cells, expose, publish, stage
from storage.backlog import unwalked_from
from storage.clock import claim_derived_tables
from storage.experiments import register
from storage.projects import create_project
from storage.registration import Registration

# The next block may close at any moment: as though all had been walked for an hour to come.
ALL_WALKED = "UPDATE cursors SET at = at + interval '1 hour' WHERE stage = 'published'"
WALK_AGAIN = "UPDATE cursors SET at = at - interval '1 hour' WHERE stage = 'published'"
TABLES = ["exposures", "cells", "evidence", "verdicts"]
# The disk is full as soon as a row comes: no fault of any experiment's data, so that nothing is set
# aside and the step ends.
FILL_DISK = """
CREATE FUNCTION fill_disk() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE 'no space left' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER fill_disk BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION fill_disk()
"""
FREE_DISK = "DROP FUNCTION fill_disk CASCADE"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """Dagster's records on disk: a sensor opens them by their address."""
    with dg.instance_for_test() as on_disk:
        yield on_disk


def tick(url: str, instance: dg.DagsterInstance, cursor: str | None = None) -> Any:
    """The run requests of a tick, why there are none, and what it tells the next."""
    with dg.build_sensor_context(
        instance=instance,
        cursor=cursor,
        resources={"store": Store(database_url=url)},
        repository_def=definitions.get_repository_def(),
    ) as context:
        return each_half_minute.evaluate_tick(context)


def waits(canary: Any) -> bool:
    with canary.engine.begin() as connection:
        return unwalked_from(connection) is not None


def test_a_tick_with_nothing_new_launches_no_run(store, instance) -> None:
    found = tick(store.url, instance)

    assert not found.run_requests
    assert found.skip_message == "nothing closed since the last walk"


def test_a_tick_walks_and_launches_a_run_only_when_an_answer_turned(
    canary, instance, today
) -> None:
    (request,) = tick(canary.url, instance).run_requests

    assert canary.contract("click")["verdict"] == "keep"
    assert request.partition_key == today

    canary.run("deploy_reward_fast", instance, today)
    canary.tamper(WALK_AGAIN)
    found = tick(canary.url, instance)

    assert not found.run_requests
    assert ": 0 experiments computed anew" in found.skip_message
    assert found.skip_message.endswith("no answer turned")


def test_numbers_that_move_launch_no_run(canary, instance, today) -> None:
    canary.run("deploy_reward_fast", instance, today)
    served = canary.contract("view")
    canary.tamper(
        "UPDATE verdicts SET contract = jsonb_set(contract::jsonb, '{{lift}}', '0.5')::json"
        " WHERE experiment_id = '{view}'",
        WALK_AGAIN,
    )

    assert not tick(canary.url, instance).run_requests
    assert canary.contract("view") == served


def test_the_run_shows_what_turned_in_the_tick_and_is_not_asked_for_again(
    canary, instance, today
) -> None:
    tick(canary.url, instance)
    canary.tamper(ALL_WALKED)
    result = canary.run("deploy_reward_fast", instance, today)

    (shown,) = result.asset_materializations_for_node("deploy_reward__verdicts")

    assert any(canary.experiments["click"] in str(one.value) for one in shown.metadata.values())
    assert not tick(canary.url, instance).run_requests


def test_a_tick_that_was_killed_before_it_asked_for_its_run_is_asked_by_the_next(
    canary, instance
) -> None:
    (lost,) = tick(canary.url, instance).run_requests
    canary.tamper(ALL_WALKED)
    (request,) = tick(canary.url, instance).run_requests

    assert request.run_key == lost.run_key


@pytest.mark.parametrize("table", TABLES)
def test_a_tick_that_broke_off_between_two_steps_is_finished_by_the_next(
    canary, instance, table
) -> None:
    canary.tamper(FILL_DISK.format(table=table))
    with pytest.raises(DBAPIError):
        tick(canary.url, instance)
    canary.tamper(FREE_DISK)

    assert waits(canary)
    assert tick(canary.url, instance).run_requests
    assert canary.contract("click")["verdict"] == "keep"


@pytest.mark.parametrize("mark", ["staged", "published"])
def test_a_run_that_broke_off_between_two_steps_is_finished_by_the_next_tick(
    canary, instance, today, mark
) -> None:
    # A step notes how far it came outside of what it does for single experiments.
    canary.tamper(f"ALTER TABLE cursors ADD CONSTRAINT broken CHECK (stage <> '{mark}') NOT VALID")
    broken = canary.run("deploy_reward_fast", instance, today, raise_on_error=False)
    canary.tamper("ALTER TABLE cursors DROP CONSTRAINT broken")

    assert not broken.success
    assert tick(canary.url, instance).run_requests
    assert canary.contract("click")["verdict"] == "keep"


def test_what_another_walk_read_meanwhile_does_not_count_as_published(canary) -> None:
    with canary.engine.begin() as connection:
        expose(connection)
        close_cells(connection)
        stage(connection)
    canary.tamper("UPDATE cursors SET at = at + interval '5 minutes' WHERE stage = 'conversions'")
    with canary.engine.begin() as connection:
        publish(connection)
        ahead = connection.execute(
            text(
                "SELECT read.at - told.at FROM cursors AS read JOIN cursors AS told"
                " USING (experiment_id) WHERE read.stage = 'conversions'"
                " AND told.stage = 'published'"
            )
        ).scalars()

    assert set(ahead) == {timedelta(minutes=5)}


def test_a_tick_does_not_wait_for_another_walk(canary, instance) -> None:
    with canary.engine.begin() as other:
        claim_derived_tables(other)
        found = tick(canary.url, instance)

    assert not found.run_requests
    assert found.skip_message == "another walk is under way"
    assert waits(canary)


def test_a_backlog_is_walked_by_a_run_not_by_the_tick(canary, instance, monkeypatch) -> None:
    monkeypatch.setattr(sensors, "MOST_EVENTS", 1_000)
    (request,) = tick(canary.url, instance).run_requests

    assert canary.contract("click")["power_state"]["decided"] is False

    canary.run("deploy_reward_fast", instance, request.partition_key)
    canary.tamper(ALL_WALKED)

    assert canary.contract("click")["verdict"] == "keep"
    assert not tick(canary.url, instance).run_requests


def test_no_run_is_asked_for_while_another_walks_a_backlog(canary, instance, monkeypatch) -> None:
    monkeypatch.setattr(sensors, "MOST_EVENTS", 1_000)
    with canary.engine.begin() as other:
        claim_derived_tables(other)

        assert tick(canary.url, instance).skip_message == "another walk is under way"


def test_a_walk_that_takes_too_long_is_broken_off_and_runs_walk_for_an_hour(
    canary, instance, monkeypatch
) -> None:
    with monkeypatch.context() as patched, canary.engine.begin() as other:
        patched.setattr(sensors, "MOST_SECONDS", 0.2)
        other.execute(text("LOCK TABLE conversions"))
        broken_off = tick(canary.url, instance)
    soon = tick(canary.url, instance, broken_off.cursor)

    assert len(broken_off.run_requests) == len(soon.run_requests) == 1
    assert canary.contract("click")["power_state"]["decided"] is False

    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    tick(canary.url, instance, hour_ago)

    assert canary.contract("click")["verdict"] == "keep"


def test_two_instances_that_walk_one_store_do_each_other_no_harm(canary, instance, today) -> None:
    with dg.instance_for_test() as other:
        first, second = tick(canary.url, instance), tick(canary.url, other)
        derived = canary.derived()
        for one in (instance, other):
            assert canary.run("deploy_reward_fast", one, today).success

    assert first.run_requests[0].run_key == second.run_requests[0].run_key
    assert canary.derived() == derived


def test_a_tick_without_a_store_fails_and_says_so(instance) -> None:
    with pytest.raises(OperationalError):
        tick("postgresql://nobody@127.0.0.1:1/none", instance)


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

    assert bool(tick(store.url, instance).run_requests) is work


def test_the_sensor_runs_without_being_switched_on() -> None:
    assert each_half_minute.default_status is dg.DefaultSensorStatus.RUNNING
