"""Parts: history that falls into an hour already closed becomes a part of its own.

An hour is closed before it is written to a file: nothing is added to its part any more. An
event received live always comes to an open hour. History is received when it occurred: it takes the
number of the part that comes next, under the lock that whoever closes hours takes alone.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import Connection, text

HOUR = timedelta(hours=1)

_NEXT_PART = text("""
SELECT max(part) + 1 FROM sealed_hours
WHERE CAST(hour AT TIME ZONE 'UTC' AS date) = ANY(CAST(:days AS date[]))
""")

_HOURS_OF_PART = text("""
SELECT DISTINCT date_trunc('hour', received_at) AS hour FROM runtime_events
WHERE part = :part AND received_at >= :first AND received_at < :last
""")

_NOTE = text("""
INSERT INTO replayed_hours (hour, part)
SELECT written.hour, :part FROM unnest(CAST(:hours AS timestamptz[])) AS written (hour)
WHERE NOT EXISTS (
    SELECT FROM replayed_hours AS r WHERE r.hour = written.hour AND r.part = :part
)
""")


def hour_of(moment: datetime) -> datetime:
    """Returns the hour that a moment belongs to."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def next_part(connection: Connection, days: Iterable[date]) -> int | None:
    """Returns which part history of these days is; None where none of their hours is closed.

    Args:
        connection: In the transaction that writes it, after `write_past_days`: no hour is closed
            before this ends.
    """
    return connection.execute(_NEXT_PART, {"days": sorted(set(days))}).scalar_one()


def note_part(connection: Connection, part: int | None, hours: Iterable[datetime]) -> None:
    """Remembers of which hours there are events of a part, so that they are sealed."""
    if part is not None:
        connection.execute(_NOTE, {"part": part, "hours": sorted(set(hours))})


def note_part_of_days(connection: Connection, part: int | None, days: Iterable[date]) -> None:
    """Does so for events of whole days that this transaction has just written."""
    if part is None:
        return
    for day in sorted(set(days)):
        first = datetime(day.year, day.month, day.day, tzinfo=UTC)
        bounds = {"part": part, "first": first, "last": first + timedelta(days=1)}
        note_part(connection, part, connection.execute(_HOURS_OF_PART, bounds).scalars())
