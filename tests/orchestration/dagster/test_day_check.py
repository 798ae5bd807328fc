"""The day check names every row of its day that the log gives otherwise, and no row of another."""

from datetime import date, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from orchestration.pipeline.day_check import Comparison, compare_days
from storage.schema.clock import closed_instant
from storage.upkeep import day_check
from storage.upkeep.reading import separate_reading


def compared(canary: Any, *, day: int = 0, tampering: str | None = None) -> Comparison:
    """Compares a day of the canary after a change that is taken back afterwards."""
    first: date = (canary.first_day + timedelta(days=day)).date()
    with separate_reading(canary.engine) as separate:
        if tampering is not None:
            separate.execute(text("SET LOCAL session_replication_role = replica"))
            statement = tampering.format(day=first, **canary.experiments)
            assert separate.execute(text(statement)).rowcount, statement
        return compare_days(separate, first, first, as_of=closed_instant(separate))


OF_THE_DAY = "experiment_id = '{view}' AND block >= '{day}' AND block < date '{day}' + 1"
UNITS = (
    "experiment_id = '{view}' AND unit IN (SELECT unit FROM deploy_reward.exposures_in_words"
    f" WHERE {OF_THE_DAY})"
)
# By table, a change of the rows of a day.
TAMPERINGS = {
    "exposures": f"UPDATE deploy_reward.exposures_in_words SET pseudonym = 'x' WHERE {OF_THE_DAY}",
    "strata": "UPDATE deploy_reward.strata SET stratum = 'another'",
    "sightings": "INSERT INTO deploy_reward.sightings SELECT experiment_id, 7, unit,"
    f" block + 3600000000 FROM deploy_reward.exposures WHERE {UNITS}",
    "block_units": f"UPDATE deploy_reward.block_units_in_words SET returned = 7 WHERE {OF_THE_DAY}",
    "conversions": f"UPDATE deploy_reward.conversions SET late = 1 - late WHERE {UNITS}",
    "cells": f"DELETE FROM deploy_reward.cells_in_words WHERE {OF_THE_DAY}",
}


@pytest.mark.parametrize("table", TAMPERINGS)
def test_rows_of_a_day_that_are_otherwise_are_counted_and_the_first_are_named(
    walked: Any, table: str
) -> None:
    comparison = compared(walked, tampering=TAMPERINGS[table])

    assert not comparison.equal
    assert table in {count.table for count in comparison.counts}
    assert walked.experiments["view"] in {row.experiment_id for row in comparison.rows}


def test_a_row_of_another_day_is_no_difference_of_this_one(walked: Any) -> None:
    later = TAMPERINGS["cells"].replace("'{day}'", "'{day}'::date + 1")
    assert compared(walked, tampering=later).counts == []
    assert not compared(walked, day=1, tampering=TAMPERINGS["cells"]).equal


def test_a_row_behind_a_decided_verdict_is_named(walked: Any) -> None:
    tampering = TAMPERINGS["cells"].replace("{view}", "{click}")
    comparison = compared(walked, tampering=tampering)
    assert {count.experiment_id for count in comparison.counts} == {walked.experiments["click"]}


def test_whoever_read_a_dropped_day_is_named_and_left_out(walked: Any) -> None:
    dropped = "INSERT INTO dropped_days VALUES ('{day}', clock_timestamp())"
    comparison = compared(walked, tampering=dropped)
    assert (comparison.gone, comparison.experiments) == (sorted(walked.experiments.values()), 0)
    assert comparison.equal

    # History that was dropped before an experiment was bound was never read for it.
    before = "INSERT INTO dropped_days SELECT '{day}', min(bound_at) - interval '1 s'"
    assert compared(walked, tampering=f"{before} FROM experiments").gone == []


def test_open_experiments_that_a_check_cannot_afford_are_left_for_another_day(
    walked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compared(walked).left == 0
    monkeypatch.setattr(day_check, "AFFORDED", -1)

    comparison = compared(walked)

    # The decided one, and the first of two open ones.
    assert (comparison.experiments, comparison.left) == (2, 1)
