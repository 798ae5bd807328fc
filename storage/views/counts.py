"""Counts: units and cells of the derived tables, by experiment."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import Connection, Row, text

_UNITS = text("""
SELECT u.experiment_id, sum(u.treatment)::bigint AS treatment, sum(u.control)::bigint AS control,
    sum(u.partial + u.in_flight + u.excluded + u.warming)::bigint AS others,
    (
        SELECT c.at FROM cursors AS c
        WHERE c.stage = 'exposures' AND c.experiment_id = u.experiment_id
    ) AS read_to
FROM block_units AS u
JOIN verdicts AS v USING (experiment_id)
WHERE NOT v.decided
GROUP BY u.experiment_id
ORDER BY sum(
    u.treatment + u.control + u.partial + u.in_flight + u.excluded + u.warming
) DESC, u.experiment_id
""")


def units_by_experiment(connection: Connection) -> Sequence[Row[Any]]:
    """Returns the exposed units of each open experiment that has any, the most first.

    Returns:
        Rows of experiment_id, treatment, control, others (units of neither arm) and read_to.
    """
    return connection.execute(_UNITS).all()


_DAYS = text("""
SELECT (c.block AT TIME ZONE 'UTC')::date AS day, c.experiment_id, c.metric, count(*) AS cells,
    sum(c.n1) AS treatment_units, sum(c.x1) AS treatment_conversions,
    sum(c.n0) AS control_units, sum(c.x0) AS control_conversions
FROM unnest(CAST(:days AS date[])) AS asked (day)
JOIN cells AS c
  ON c.block >= asked.day::timestamp AT TIME ZONE 'UTC'
 AND c.block < (asked.day + 1)::timestamp AT TIME ZONE 'UTC'
GROUP BY 1, c.experiment_id, c.metric
ORDER BY 1, c.experiment_id, c.metric
""")


def cells_of_days(connection: Connection, days: Iterable[date]) -> dict[date, list[Row[Any]]]:
    """Returns the sums of each of some days' cells, a row for each experiment and metric.

    Args:
        days: In UTC.

    Returns:
        By day rows of day, experiment_id, metric, cells, treatment_units, treatment_conversions,
        control_units, control_conversions; no row of a day without cells.
    """
    wanted = sorted(set(days))
    rows_of_day: dict[date, list[Row[Any]]] = {day: [] for day in wanted}
    for row in connection.execute(_DAYS, {"days": wanted}):
        rows_of_day[row.day].append(row)
    return rows_of_day


_CLOSED_TO = text("""
SELECT c.experiment_id, substr(c.stage, 7) AS metric, c.at
FROM cursors AS c JOIN verdicts AS v USING (experiment_id)
WHERE c.stage LIKE 'cells/%' AND NOT v.decided
""")


def closed_cells(connection: Connection) -> dict[tuple[str, str], datetime]:
    """Returns up to which block an open experiment's cells have closed, by experiment and metric.

    A decided experiment gains no cells.
    """
    rows = connection.execute(_CLOSED_TO)
    return {(row.experiment_id, row.metric): row.at for row in rows}


_ADDED = text("""
SELECT (c.block AT TIME ZONE 'UTC')::date AS day, count(*) AS cells
FROM unnest(
    CAST(:experiments AS text[]), CAST(:metrics AS text[]), CAST(:begins AS timestamptz[])
) AS before (experiment_id, metric, at)
JOIN cells AS c
  ON c.experiment_id = before.experiment_id AND c.metric = before.metric AND c.block >= before.at
GROUP BY 1
""")
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)


def cells_added_since(
    connection: Connection, before: Mapping[tuple[str, str], datetime]
) -> dict[date, int]:
    """Returns how many cells have been added since, by the day of their units' exposure.

    Args:
        before: What `closed_cells` returned then.
    """
    moved = {
        of: before.get(of, _EARLIEST)
        for of, at in closed_cells(connection).items()
        if before.get(of) != at
    }
    bound = {
        "experiments": [experiment_id for experiment_id, _ in moved],
        "metrics": [metric for _, metric in moved],
        "begins": list(moved.values()),
    }
    return {row.day: row.cells for row in connection.execute(_ADDED, bound)}
