"""Counts: units and cells of the derived tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from storage.postgres.rows import value_of
from storage.schema.encoding import epoch_microseconds, moment

_UNITS = text("""
SELECT count(*) AS experiments, coalesce(sum(u.units), 0)::bigint AS units, min(c.at) AS read_to
FROM (
    SELECT u.experiment_id, sum(
        u.treatment + u.control + u.partial + u.in_flight + u.excluded + u.warming
    )::bigint AS units
    FROM block_units AS u JOIN verdicts AS v USING (experiment_id)
    WHERE NOT v.decided
    GROUP BY u.experiment_id
) AS u
LEFT JOIN cursors AS c ON c.stage = 'exposures' AND c.experiment_id = u.experiment_id
""")


def open_units(connection: Connection) -> Row[Any]:
    """Returns the exposed units of the open experiments.

    Returns:
        A row of experiments (those with a unit), units, and the least read_to of an experiment.
    """
    return connection.execute(_UNITS).one()


_DAYS = text(f"""
SELECT day, sum(cells)::bigint AS cells, count(*) AS experiments, sum(units)::bigint AS units
FROM (
    -- Every metric counts all units, the one with the shortest window first.
    SELECT day, experiment_id, sum(cells) AS cells, max(units) AS units
    FROM (
        SELECT asked.day, c.experiment_id, count(*) AS cells, sum(c.n1 + c.n0) AS units
        FROM unnest(CAST(:days AS date[])) AS asked (day)
        JOIN cells AS c
          ON c.block >= {epoch_microseconds("asked.day")}
         AND c.block < {epoch_microseconds("(asked.day + 1)")}
        GROUP BY asked.day, c.experiment_id, c.metric
    ) AS of_metric
    GROUP BY day, experiment_id
) AS of_experiment
GROUP BY day
""")


@dataclass(frozen=True, kw_only=True)
class DayCounts:
    """The cells of a day, the experiments that have some, and the units that are in them."""

    cells: int = 0
    experiments: int = 0
    units: int = 0


def cells_of_days(connection: Connection, days: Iterable[date]) -> dict[date, DayCounts]:
    """Returns the counts of each of some days, in UTC and in order."""
    wanted = sorted(set(days))
    rows = connection.execute(_DAYS, {"days": wanted})
    counts = {row.day: value_of(DayCounts, row) for row in rows}
    return {day: counts.get(day, DayCounts()) for day in wanted}


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


_ADDED = text(f"""
SELECT ({moment("c.block")} AT TIME ZONE 'UTC')::date AS day, count(*) AS cells
FROM unnest(
    CAST(:experiments AS text[]), CAST(:metrics AS text[]), CAST(:begins AS timestamptz[])
) AS before (experiment_id, metric, at)
JOIN cells AS c
  ON c.experiment_id = before.experiment_id AND c.metric = before.metric
 AND c.block >= {epoch_microseconds("before.at")}
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
