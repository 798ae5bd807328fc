"""The assets: one walk, any number of times, in any order, ends in the same bytes."""

from datetime import timedelta
from itertools import permutations
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import text

from orchestration.dagster.assets import STEPS, evidence, exposures, session_cells, verdicts
from orchestration.dagster.keys import EVIDENCE, EXPOSURES, VERDICTS
from orchestration.dagster.keys import SESSION_CELLS as CELLS
from orchestration.dagster.resources import Engine, Store, StoreNotFoundError
from orchestration.definitions import definitions
from tests.stores.emptied import empty_derived_tables

RANGE_START, RANGE_END = (
    "dagster/asset_partition_range_start",
    "dagster/asset_partition_range_end",
)
ROWS = "dagster/partition_row_count"


def materialization(result, key) -> Any:
    (event,) = [
        event for event in result.get_asset_materialization_events() if event.asset_key == key
    ]
    return event.materialization.metadata


def reported(result) -> dict[str | None, dict[str, Any]]:
    """What a run reported of each partition of the cells."""
    events = [
        event for event in result.get_asset_materialization_events() if event.asset_key == CELLS
    ]
    reports = {
        event.partition: {
            name: value.value for name, value in event.materialization.metadata.items()
        }
        for event in events
    }
    assert len(reports) == len(events)
    return reports


def held(canary) -> dict[str, int]:
    """The cells that the store holds, by the day of their units' exposure."""
    with canary.engine.connect() as connection:
        rows = connection.execute(
            text(
                "SELECT (block AT TIME ZONE 'UTC')::date AS day, count(*)"
                " FROM cells_in_words GROUP BY 1"
            )
        )
        return {day.isoformat(): count for day, count in rows}


@pytest.mark.requirement("service.experiment")
def test_a_fast_run_takes_a_canary_from_its_events_to_its_verdicts(canary, instance, today) -> None:
    result = canary.run("deploy_reward_fast", instance, today)

    assert result.success
    assert canary.contract("click")["verdict"] == "keep"
    assert canary.contract("click")["power_state"]["decided"]
    assert canary.contract("view")["abstain_reason"] == "power"
    assert not canary.contract("view")["power_state"]["decided"]


def test_each_materialization_says_what_it_did(canary, instance, today) -> None:
    result = canary.run("deploy_reward_fast", instance, today)

    changed = materialization(result, VERDICTS)["verdicts_that_changed"].value
    assert canary.experiments["click"] in changed
    assert "Keep" in changed
    assert materialization(result, VERDICTS)["decided"].value == 1
    assert materialization(result, EVIDENCE)["computed_now"].value == 3
    entry = materialization(result, EVIDENCE)[canary.experiments["click"]].value
    assert "rose by" in entry
    assert "(data:image/" in entry
    assert materialization(result, EXPOSURES)["added"].value > 0


def test_a_second_run_changes_nothing_and_says_so(canary, instance, today) -> None:
    canary.run("deploy_reward_fast", instance, today)
    before = canary.derived()

    result = canary.run("deploy_reward_fast", instance, today)

    assert canary.derived() == before
    assert materialization(result, VERDICTS)["changed"].value == 0
    (only,) = reported(result).items()
    assert (only[0], only[1]["added"]) == (today, 0)


def test_a_run_reports_every_day_that_it_added_cells_to_with_that_days_own_counts(
    canary, instance, today
) -> None:
    reports = reported(canary.run("deploy_reward_fast", instance, today))

    assert len(reports) > 2
    assert {day: report[ROWS] for day, report in reports.items()} == {today: 0} | held(canary)
    assert {day: report["added"] for day, report in reports.items()} == {today: 0} | held(canary)
    assert instance.get_materialized_partitions(CELLS) == set(reports)


def test_a_backfill_of_a_range_reports_each_of_its_days_with_its_own_counts(
    canary, instance, today
) -> None:
    canary.run("deploy_reward_fast", instance, today)
    result = dg.materialize(
        [session_cells],
        instance=instance,
        tags={RANGE_START: canary.first_day.date().isoformat(), RANGE_END: today},
        resources={"store": canary.resource, "engine": Engine()},
    )
    reports = {day: report[ROWS] for day, report in reported(result).items()}

    assert len(reports) == 9
    assert {day: count for day, count in reports.items() if count} == held(canary)


def test_a_run_without_a_partition_is_todays_and_says_so(canary, instance, today) -> None:
    job = definitions.resolve_job_def("deploy_reward_fast")
    result = job.execute_in_process(instance=instance)
    reports = reported(result)

    assert reports.pop(None)["no_partition_was_named"].endswith(today)
    assert {day: report[ROWS] for day, report in reports.items()} == {today: 0} | held(canary)


def test_a_store_without_experiments_is_walked_without_harm(store, instance, today) -> None:
    result = dg.materialize(
        STEPS,
        instance=instance,
        partition_key=today,
        resources={"store": Store(database_url=store.url), "engine": Engine()},
    )

    assert result.success
    assert materialization(result, EVIDENCE)["computed_now"].value == 0


def test_backfilling_in_reverse_order_first_ends_like_one_run(canary, instance, today) -> None:
    days = [(canary.first_day + timedelta(days=n)).date().isoformat() for n in range(4)]
    for day in reversed(days):
        dg.materialize(
            STEPS,
            instance=instance,
            partition_key=day,
            resources={"store": canary.resource, "engine": Engine()},
        )
    backfilled = canary.derived()

    with canary.engine.begin() as connection:
        empty_derived_tables(connection)
    canary.run("deploy_reward_fast", instance, today)

    assert canary.derived() == backfilled


def test_a_range_of_partitions_is_one_run(canary, instance) -> None:
    last = canary.first_day + timedelta(days=3)

    result = dg.materialize(
        [session_cells],
        instance=instance,
        tags={
            RANGE_START: canary.first_day.date().isoformat(),
            RANGE_END: last.date().isoformat(),
        },
        resources={"store": canary.resource, "engine": Engine()},
    )

    assert result.success
    assert len(instance.get_materialized_partitions(CELLS)) == 4


# The order of the walk itself is in each other test.
@pytest.mark.parametrize(
    "order",
    [
        (3, 2, 1, 0),
        *(
            pytest.param(order, marks=pytest.mark.nightly)
            for order in list(permutations(range(4)))[1:-1:4]
        ),
    ],
)
def test_whole_steps_in_any_order_end_like_the_walk_in_order(
    canary, instance, today, order
) -> None:
    steps = [STEPS[position] for position in order]

    for step in steps * 4:  # each step sees its input at the latest in the fourth round
        assert dg.materialize(
            [step],
            instance=instance,
            partition_key=today if step is session_cells else None,
            resources={"store": canary.resource, "engine": Engine()},
        ).success
    shuffled = canary.derived()
    for step in (exposures, session_cells, evidence, verdicts):
        dg.materialize(
            [step],
            instance=instance,
            partition_key=today if step is session_cells else None,
            resources={"store": canary.resource, "engine": Engine()},
        )

    assert canary.contract("click")["verdict"] == "keep"
    assert canary.derived() == shuffled


def test_a_store_that_nobody_named_is_told_of_in_one_line(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_DATA_DIR", str(tmp_path))

    with pytest.raises(StoreNotFoundError, match="SERVICE_DATABASE_URL is not set"):
        Store().setup_for_execution(dg.build_init_resource_context())
