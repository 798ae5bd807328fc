"""Counts: units, cells and verdicts of the derived tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from storage.postgres.rows import value_of
from storage.schema.encoding import epoch_microseconds

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


@dataclass(frozen=True, kw_only=True)
class OpenUnits:
    """How many open experiments have a unit, their units, and up to when the least read is read."""

    experiments: int
    units: int
    read_to: datetime | None


def open_units(connection: Connection) -> OpenUnits:
    """Returns the units of the open experiments."""
    return value_of(OpenUnits, connection.execute(_UNITS).one())


_DAYS = text(f"""
SELECT asked.day, count(c.experiment_id) AS cells
FROM unnest(CAST(:days AS date[])) AS asked (day)
LEFT JOIN cells AS c
  ON c.block >= {epoch_microseconds("asked.day")}
 AND c.block < {epoch_microseconds("(asked.day + 1)")}
GROUP BY asked.day ORDER BY asked.day
""")


_UNEQUAL = text("SELECT day FROM self_checks WHERE equal IS NOT TRUE AND day = ANY(:days)")


def unequal_days(connection: Connection, days: Iterable[date]) -> set[date]:
    """Returns those of some days that were not known to equal the log when last compared."""
    return set(connection.execute(_UNEQUAL, {"days": list(days)}).scalars())


def cells_of_days(connection: Connection, days: Iterable[date]) -> dict[date, int]:
    """Returns how many cells each of some days has, in UTC and in order."""
    rows = connection.execute(_DAYS, {"days": list(days)})
    return {row.day: row.cells for row in rows}


_ANSWERS = text("""
SELECT count(*) FILTER (WHERE NOT decided) AS open,
    count(*) FILTER (WHERE decided) AS decided,
    count(*) FILTER (WHERE verdict = 'keep') AS keep,
    count(*) FILTER (WHERE verdict = 'rollback') AS rollback,
    count(*) FILTER (WHERE verdict = 'iterate') AS iterate,
    count(*) FILTER (WHERE decided AND verdict = 'abstain') AS no_answer
FROM verdicts
""")


@dataclass(frozen=True, kw_only=True)
class AnswerCounts:
    """How many experiments are open, decided, and decided by each answer or without any."""

    open: int
    decided: int
    keep: int
    rollback: int
    iterate: int
    no_answer: int


def count_answers(connection: Connection) -> AnswerCounts:
    """Returns the counts of all verdicts."""
    return value_of(AnswerCounts, connection.execute(_ANSWERS).one())
