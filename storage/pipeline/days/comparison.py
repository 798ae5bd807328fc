"""Comparison of days: the rows that experiments read on them, computed, with the served ones.

A day begins with the served rows of the days before, each of which has its own check: so each day
costs in proportion to its own rows, however long its experiments have run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from storage.log.reader import SealedLog
from storage.pipeline.block_ranges import compute_cells, compute_exposures
from storage.pipeline.days.scope import CheckedExperiment, Days, scope_of_days
from storage.pipeline.days.tables import (
    EXPOSURE_TABLES,
    OUTCOME_TABLES,
    ComparedTable,
)
from storage.pipeline.engines.day_engines import DayEngineSettings, open_day_engine
from storage.pipeline.engines.engine import DayEngine
from storage.pipeline.moments import moment_of
from storage.pipeline.transfer.copying import copy_from_store
from storage.pipeline.transfer.count_rows import copy_cells, register_experiment_ids
from storage.pipeline.transfer.known_rows import KnownExperiment, KnownRows
from storage.postgres.engine import SCHEMA


@dataclass(frozen=True, kw_only=True)
class DifferingRows:
    """How many rows of a table, of one experiment, differ.

    Attributes:
        table: The derived table.
        missing: How many computed rows are not served.
        surplus: How many served rows are not computed.
        changed: How many differ in other columns than their key.
    """

    table: str
    experiment_id: str
    missing: int
    surplus: int
    changed: int


@dataclass(frozen=True, kw_only=True)
class DifferingCell:
    """A cell that only one side holds: `served`, or `rebuilt` from the log."""

    experiment_id: str
    metric: str
    block: datetime
    stratum: str
    side: str
    n1: int
    x1: int
    n0: int
    x0: int


@dataclass(frozen=True, kw_only=True)
class DaysCompared:
    """The differences between the served rows of some days and those that the log gives.

    Attributes:
        experiments: The ids of those that were computed.
        gone: The ids of those that were not, since events which they read then were dropped.
        rows: The rows behind cells that differ.
        cells: The cells that differ.
    """

    experiments: Sequence[str]
    gone: Sequence[str]
    rows: Sequence[DifferingRows]
    cells: Sequence[DifferingCell]


def compare_experiments(
    log: SealedLog,
    only: Sequence[str],
    days: Days,
    *,
    as_of: datetime,
    settings: DayEngineSettings,
) -> DaysCompared:
    """Computes some days of experiments from the log, and compares each row with the served ones.

    Exposures and sightings are computed from the log; outcomes and cells from the log and the
    served exposures, which are the same where nothing differs.

    Args:
        log: As a separate reading of the store sees it.
        only: The experiments, of `experiments_of_days`.
        as_of: How far the log may be read.
        settings: Which engine computes.

    Raises:
        UnreadablePolicyError: The policy of one of them is of another version, or broken.
        TooManyAssignmentsError: One of them has more assignments than can be numbered.
    """
    connection = log.connection
    scope = scope_of_days(connection, days, only=only, as_of=as_of)
    rows: list[DifferingRows] = []
    cells: list[DifferingCell] = []
    if scope.checked:
        _create_days(connection, scope.checked)
        with open_day_engine(settings, lake=log.lake) as engine:
            rows += _compare_exposures(engine, log, scope.checked)
        with open_day_engine(settings, lake=log.lake) as engine:
            rows += _compare_outcomes(engine, log, scope.checked)
            cells += _compare_cells(engine, connection)
        connection.execute(text("DROP TABLE checked_days, checked_metrics"))
    return DaysCompared(
        experiments=[checked.experiment.experiment_id for checked in scope.checked],
        gone=scope.gone,
        rows=sorted(rows, key=lambda row: (row.table, row.experiment_id)),
        cells=cells,
    )


# --- The days, on both sides ----------------------------------------------------------------------

_DAY_COLUMNS = {
    "number": "int",
    "from_block": "bigint",
    "to_block": "bigint",
    "sighted_after": "bigint",
    "sighted_to": "bigint",
    "received_to": "bigint",
}
_CREATE_DAYS = text("""
CREATE TEMP TABLE checked_days ON COMMIT DROP AS
SELECT * FROM unnest(
    CAST(:experiments AS text[]), CAST(:number AS integer[]),
    CAST(:from_block AS timestamptz[]), CAST(:to_block AS timestamptz[]),
    CAST(:sighted_after AS timestamptz[]), CAST(:sighted_to AS timestamptz[]),
    CAST(:received_to AS timestamptz[])
) AS d (experiment_id, number, from_block, to_block, sighted_after, sighted_to, received_to)
""")
_CREATE_METRICS = text("""
CREATE TEMP TABLE checked_metrics ON COMMIT DROP AS
SELECT * FROM unnest(
    CAST(:experiments AS text[]), CAST(:metrics AS text[]), CAST(:cells_to AS timestamptz[])
) AS m (experiment_id, metric, cells_to)
""")

# A time before all others that PostgreSQL and every engine can represent.
_BEFORE_ALL = 0


def _day_row(checked: CheckedExperiment) -> tuple[int, ...]:
    """Returns the columns of `_DAY_COLUMNS`; nothing was stored before an experiment's first."""
    grace = checked.experiment.grace
    from_block, to_block = checked.read.from_block, checked.read.to_block
    return (
        checked.experiment.number,
        _BEFORE_ALL if checked.is_first else from_block,
        to_block,
        _BEFORE_ALL if checked.is_first else from_block + grace,
        to_block + grace,
        checked.received_to,
    )


def _create_days(connection: Connection, checked: Sequence[CheckedExperiment]) -> None:
    """Creates `checked_days` and `checked_metrics` in the store."""
    numbers, *moments = zip(*map(_day_row, checked), strict=True)
    columns = [list(numbers), *([moment_of(at) for at in column] for column in moments)]
    parameters: dict[str, Any] = dict(zip(_DAY_COLUMNS, columns, strict=True))
    parameters["experiments"] = [day.experiment.experiment_id for day in checked]
    connection.execute(_CREATE_DAYS, parameters)
    metrics = [
        (day.experiment.experiment_id, metric.name, day.cells_to.get(metric.name))
        for day in checked
        for metric in day.experiment.metrics
    ]
    connection.execute(
        _CREATE_METRICS,
        {
            "experiments": [experiment_id for experiment_id, _, _ in metrics],
            "metrics": [metric for _, metric, _ in metrics],
            "cells_to": [None if to is None else moment_of(to) for _, _, to in metrics],
        },
    )


def _register_days(engine: DayEngine, checked: Sequence[CheckedExperiment]) -> None:
    """Registers `checked_days` and `experiment_ids` in the engine."""
    register_experiment_ids(engine, [day.experiment for day in checked])
    engine.register("checked_days", _DAY_COLUMNS, map(_day_row, checked))


# --- Rows -----------------------------------------------------------------------------------------


def _compare_exposures(
    engine: DayEngine, log: SealedLog, checked: Sequence[CheckedExperiment]
) -> list[DifferingRows]:
    connection = log.connection
    read = [day.read for day in checked]
    compute_exposures(engine, log, connection, read, schema=f"{SCHEMA}.")
    _register_days(engine, checked)
    rows = [row for table in EXPOSURE_TABLES for row in _differing(engine, connection, table)]
    return [*rows, *_unknown_strata(engine, connection)]


def _compare_outcomes(
    engine: DayEngine, log: SealedLog, checked: Sequence[CheckedExperiment]
) -> list[DifferingRows]:
    connection = log.connection
    outcomes = [day.outcomes for day in checked]
    compute_cells(engine, log, connection, outcomes, schema=f"{SCHEMA}.")
    _register_days(engine, checked)
    _look_up_units(engine, connection, checked)
    return [row for table in OUTCOME_TABLES for row in _differing(engine, connection, table)]


# Few units have outcomes: theirs alone are looked up.
_UNITS_WITH_OUTCOMES = """
SELECT number, unit FROM new_conversions UNION SELECT number, unit FROM new_amounts
"""


def _look_up_units(
    engine: DayEngine, connection: Connection, checked: Sequence[CheckedExperiment]
) -> None:
    """Makes `units_of_days`: the units with outcomes that were exposed on the days."""
    known = KnownRows(
        engine,
        connection,
        schema=f"{SCHEMA}.",
        experiments=[
            KnownExperiment(
                number=day.experiment.number,
                experiment_id=day.experiment.experiment_id,
                exposed_before=day.read.to_block,
                known_until=day.received_to,
            )
            for day in checked
        ],
    )
    known.exposures("exposures_with_outcomes", _UNITS_WITH_OUTCOMES)
    engine.define(
        "units_of_days",
        "SELECT d.number, p.unit FROM exposures_with_outcomes AS p"
        " JOIN checked_days AS d ON d.number = p.experiment AND p.block >= d.from_block",
    )


def _differing(
    engine: DayEngine, connection: Connection, table: ComparedTable
) -> Iterable[DifferingRows]:
    columns = {"number": "int", **table.keys, **table.values}
    copy_from_store(engine, connection, "served_rows", columns, table.served)
    names = ", ".join(columns)
    same_key = " AND ".join(f"s.{name} = c.{name}" for name in ("number", *table.keys))
    unequal = " OR ".join(f"s.{name} IS DISTINCT FROM c.{name}" for name in table.values)
    counts = engine.rows(f"""
SELECT x.experiment_id, count(*) FILTER (WHERE s.number IS NULL) AS missing,
    count(*) FILTER (WHERE c.number IS NULL) AS surplus,
    count(*) FILTER (WHERE s.number = c.number) AS changed
FROM served_rows AS s
FULL JOIN (SELECT * FROM ({table.computed}) AS computed ({names})) AS c ON {same_key}
JOIN experiment_ids AS x ON x.number = coalesce(s.number, c.number)
WHERE s.number IS NULL OR c.number IS NULL OR {unequal}
GROUP BY x.experiment_id
""")
    for experiment_id, missing, surplus, changed in counts:
        yield DifferingRows(
            table=table.name,
            experiment_id=experiment_id,
            missing=missing,
            surplus=surplus,
            changed=changed,
        )


def _unknown_strata(engine: DayEngine, connection: Connection) -> Iterable[DifferingRows]:
    """Yields the strata that are not served; their commits may differ, as the first run chose."""
    copy_from_store(
        engine,
        connection,
        "served_strata",
        {"number": "int", "stratum": "text"},
        f"SELECT d.number, s.stratum FROM checked_days AS d JOIN {SCHEMA}.strata AS s"
        " USING (experiment_id)",
    )
    counts = engine.rows("""
SELECT x.experiment_id, count(*)
FROM (SELECT number, stratum FROM new_strata EXCEPT FROM served_strata) AS unknown
JOIN experiment_ids AS x USING (number)
GROUP BY x.experiment_id
""")
    for experiment_id, missing in counts:
        yield DifferingRows(
            table="strata", experiment_id=experiment_id, missing=missing, surplus=0, changed=0
        )


# --- Cells ----------------------------------------------------------------------------------------

_ON_DAYS = """
JOIN checked_days AS d USING (experiment_id)
JOIN checked_metrics AS m USING (experiment_id, metric)
WHERE c.block >= d.from_block AND c.block < m.cells_to
"""
_DIFFERING_CELLS = text(f"""
WITH served AS (
    SELECT c.* FROM {SCHEMA}.cells AS c {_ON_DAYS}
), rebuilt AS (
    SELECT c.* FROM computed_cells AS c {_ON_DAYS}
)
SELECT experiment_id, metric, block, stratum, 'served' AS side, n1, x1, n0, x0
FROM (TABLE served EXCEPT TABLE rebuilt) AS s
UNION ALL
SELECT experiment_id, metric, block, stratum, 'rebuilt', n1, x1, n0, x0
FROM (TABLE rebuilt EXCEPT TABLE served) AS r
ORDER BY experiment_id, metric, block, stratum, side
""")


def _compare_cells(engine: DayEngine, connection: Connection) -> list[DifferingCell]:
    connection.execute(
        text(f"CREATE TEMP TABLE computed_cells (LIKE {SCHEMA}.cells) ON COMMIT DROP")
    )
    copy_cells(engine, connection, prefix="computed_")
    cells = [DifferingCell(**row) for row in connection.execute(_DIFFERING_CELLS).mappings()]
    connection.execute(text("DROP TABLE computed_cells"))
    return cells
