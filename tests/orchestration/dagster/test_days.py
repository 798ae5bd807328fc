"""A day of session cells: to materialize it makes its rows those of the log, then it is green."""

from datetime import date, timedelta
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from cli.main import main
from orchestration.dagster.cells import REBUILT, session_cells
from orchestration.dagster.jobs import INCREMENT
from orchestration.dagster.keys import SESSION_CELLS
from orchestration.dagster.partitions import RANGE_TAGS
from orchestration.definitions import resources
from storage.upkeep.gauges import read_gauges
from tests.repetition import also_nightly
from tests.stores.derived import between, derived_of
from tests.stores.past import walk_to
from tests.stores.pipeline_run import run_pipeline

ALL_ROWS = "TRUNCATE cells, exposures, sightings, conversions, amounts, block_units"


def day_of(canary: Any, number: int = 0) -> date:
    return (canary.first_day + timedelta(days=number)).date()


def materialize(
    canary: Any, instance: dg.DagsterInstance, *days: date, checks: bool = False
) -> Any:
    """Materializes a day, or a range of them, as a click on the asset's page does."""
    ends = [day.isoformat() for day in (days[0], days[-1])]
    return dg.materialize(
        [session_cells],
        selection=dg.AssetSelection.checks(REBUILT) if checks else None,
        instance=instance,
        resources=resources(canary.resource),
        tags=dict(zip(RANGE_TAGS, ends, strict=True)),
        raise_on_error=False,
    )


def check_of(instance: dg.DagsterInstance, day: date) -> Any:
    history = instance.event_log_storage.get_asset_check_execution_history(REBUILT, limit=100)
    records = (record for record in history if record.partition == day.isoformat())
    return next(records).event.dagster_event.asset_check_evaluation_data


def differed(result: Any) -> int:
    (event,) = result.get_asset_materialization_events()
    return event.materialization.metadata["hours_that_differed"].value


def unequal_days(canary: Any) -> int:
    with canary.engine.begin() as connection:
        return read_gauges(connection).unequal_days


OPEN = "experiment_id = '{view}' AND block < (SELECT min(block) + 3600000000 FROM cells)"

OTHER = f"""
INSERT INTO sightings SELECT experiment_id, 1, unit, exposed_at FROM exposures WHERE {OPEN}
"""


# `audit` makes the same comparison.
_DAMAGES = (
    f"UPDATE cells SET x1 = n1 WHERE {OPEN}",
    OTHER,
    f"DELETE FROM exposures WHERE {OPEN}",
    "DELETE FROM strata",
)


@pytest.mark.parametrize("damages", also_nightly([_DAMAGES], [[each] for each in _DAMAGES]))
def test_a_damaged_day_is_as_the_log_gives_it_once_it_is_materialized(
    walked, instance, damages
) -> None:
    whole, day = derived_of(walked.engine), day_of(walked)
    walked.tamper(*damages)
    assert between(derived_of(walked.engine), whole)
    assert not check_after(walked, instance, day).passed
    assert unequal_days(walked) == 1

    result = materialize(walked, instance, day)

    assert result.success
    assert differed(result) > 0
    assert between(derived_of(walked.engine), whole) == {}
    assert unequal_days(walked) == 0
    assert check_after(walked, instance, day).passed


def check_after(canary: Any, instance: dg.DagsterInstance, day: date) -> Any:
    """Runs the check of a day alone, which changes nothing."""
    before = canary.derived()
    assert materialize(canary, instance, day, checks=True).success
    assert canary.derived() == before
    return check_of(instance, day)


def rebuild(*_: object) -> None:
    assert CliRunner().invoke(main, ["rebuild"]).exit_code == 0


@pytest.mark.parametrize("cure", also_nightly([materialize], [rebuild]))
def test_an_experiment_with_a_day_unlike_the_log_decides_once_that_is_cured(
    canary, instance, cure
) -> None:
    walk_to(canary.engine, canary.first_day + timedelta(hours=3))
    canary.tamper("UPDATE cells SET x0 = 0 WHERE experiment_id = '{click}'")
    assert not check_after(canary, instance, day_of(canary)).passed

    run_pipeline(canary.engine)

    assert not canary.contract("click")["power_state"]["decided"]
    told = canary.evidence("click")
    assert "day_unequal" in told["warnings"]
    assert "a day of its counts differs from the log" in told["sentence"]
    assert "day_unequal" not in canary.evidence("view")["warnings"]

    cure(canary, instance, day_of(canary))
    run_pipeline(canary.engine)

    assert unequal_days(canary) == 0
    assert canary.contract("click")["verdict"] == "keep"
    assert "day_unequal" not in canary.evidence("click")["warnings"]
    # It is the look that decided in truth, which lies before those that were served meanwhile.
    assert told["as_of"] > canary.evidence("click")["as_of"]


@pytest.mark.nightly
def test_a_day_whose_log_is_gone_is_unknown_and_holds_nothing_back(walked, instance) -> None:
    walked.tamper(
        f"INSERT INTO dropped_days SELECT '{day_of(walked)}', now()", "UPDATE cells SET x1 = n1"
    )

    check = check_after(walked, instance, day_of(walked))

    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert unequal_days(walked) == 0
    # History that was dropped before an experiment was bound was never read for it.
    walked.tamper("UPDATE dropped_days SET dropped_at = dropped_at - interval '1 year'")
    assert "without_their_events" not in check_after(walked, instance, day_of(walked)).metadata


def test_a_backfill_of_all_days_fills_tables_that_were_emptied(walked, instance) -> None:
    whole = derived_of(walked.engine)
    walked.tamper(ALL_ROWS)

    result = materialize(walked, instance, day_of(walked, -2), day_of(walked, 8))

    assert result.success
    assert between(derived_of(walked.engine), whole) == {}
    # A range is a single run, which reports each of its days.
    assert len(instance.get_materialized_partitions(SESSION_CELLS)) == 11
    # Rows lay under a decided verdict, which follows from them still.
    first = check_of(instance, day_of(walked))
    assert not first.passed
    assert walked.experiments["click"] in first.metadata["decided"].value
    assert check_after(walked, instance, day_of(walked)).passed


def test_a_good_day_leaves_the_check_of_a_bad_one_red(walked, instance) -> None:
    walked.tamper(f"DELETE FROM cells WHERE {OPEN}")

    assert not check_after(walked, instance, day_of(walked)).passed
    assert differed(materialize(walked, instance, day_of(walked, 1))) == 0

    assert check_of(instance, day_of(walked, 1)).passed
    assert not check_of(instance, day_of(walked)).passed
    assert unequal_days(walked) == 1


def test_a_day_under_a_decided_verdict_that_the_log_gives_otherwise_is_never_green(
    walked, instance
) -> None:
    walked.tamper(
        "UPDATE verdicts SET contract = replace(contract::text, 'keep', 'rollback')::json"
        " WHERE decided"
    )

    result = materialize(walked, instance, day_of(walked), day_of(walked, 8))

    assert not result.success
    assert walked.contract("click")["verdict"] == "rollback"
    green = instance.get_materialized_partitions(SESSION_CELLS)
    (red,) = (day for day in map(day_of, [walked] * 9, range(9)) if day.isoformat() not in green)
    # It is the day of the decision.
    verdicts = check_of(instance, red).metadata["different_verdicts"]
    assert walked.experiments["click"] in verdicts.value


def test_a_day_cures_all_days_of_the_experiments_that_differ_on_it(walked, instance) -> None:
    whole = derived_of(walked.engine)
    walked.tamper("UPDATE cells SET x1 = n1 WHERE experiment_id = '{click}'")

    # The effect that was measured since reads the days after the decision too.
    decided = date.fromisoformat(walked.evidence("click")["as_of"][:10])
    assert materialize(walked, instance, decided).success

    assert between(derived_of(walked.engine), whole) == {}


def test_a_day_that_cannot_be_computed_is_not_green(walked, instance, monkeypatch) -> None:
    before = walked.derived()
    monkeypatch.setenv("SERVICE_ENGINE_MEMORY_MIB", "1")

    assert not materialize(walked, instance, day_of(walked)).success

    assert walked.derived() == before
    assert len(check_of(instance, day_of(walked)).metadata["not_computed"].value) == 3
    assert not instance.get_materialized_partitions(SESSION_CELLS)


def test_an_increment_reports_the_days_before_it_but_none_that_differs(walked, instance) -> None:
    walked.tamper(f"DELETE FROM cells WHERE {OPEN}")
    assert not check_after(walked, instance, day_of(walked)).passed
    run = day_of(walked, 3)

    result = dg.materialize(
        [session_cells],
        selection=dg.AssetSelection.assets(SESSION_CELLS).without_checks(),
        instance=instance,
        resources=resources(walked.resource),
        run_config=INCREMENT,
        tags=dict.fromkeys(RANGE_TAGS, run.isoformat()),
    )

    events = [each.materialization for each in result.get_asset_materialization_events()]
    rows = {each.partition: each.metadata["dagster/partition_row_count"].value for each in events}
    assert rows[day_of(walked, -1).isoformat()] == 0, "a day without a unit is not missing"
    assert rows[day_of(walked, 1).isoformat()] > 0
    assert day_of(walked).isoformat() not in rows
    assert max(rows) == run.isoformat()
