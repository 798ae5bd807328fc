"""The days of the event log: a partition a day of receipt, made before its first row."""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy import Connection, text

from storage.postgres.engine import SCHEMA
from storage.postgres.refusal import Conflict

# Each day costs every connection memory and every plan that names no time some of a millisecond;
# making a partition holds up, for 30 ms, whoever else makes a partition.
MOST_DAYS = 1000
MOST_NEW_DAYS = 31
_MIGRATION_OF_DAYS = 7_246_004
# Shared by whoever writes into past days or erases somebody, exclusive to whoever drops a day or
# moves a day to the lake: neither under the other.
_PAST_DAYS = 7_246_005

_NAME = re.compile(r"runtime_events_(\d{8})")


def partition_name(day: date) -> str:
    """Returns the name of a day's partition."""
    return f"runtime_events_{day:%Y%m%d}"


_FIRST = text(f"""
SELECT least((
    SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD'))
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = to_regclass(:log) AND pg_relation_size(c.oid) > 0
), (
    SELECT CAST(min(hour) AT TIME ZONE 'UTC' AS date) FROM {SCHEMA}.sealed_hours WHERE rows > 0
))
""")


def first_day(connection: Connection) -> date | None:
    """Returns the first day of receipt of which there is an event, in files or here; else None."""
    return connection.execute(_FIRST, {"log": f"{SCHEMA}.runtime_events"}).scalar_one()


def create_days(connection: Connection, days: Iterable[date]) -> None:
    """Creates the partitions of these days, in UTC, where they are missing.

    A day is created apart and then attached, which readers and writers of other days do not
    notice; creating it in place would hold all of them up.
    """
    wanted = {partition_name(day): day for day in days}
    for name in sorted(set(wanted) - existing_days(connection)):
        # Two writers may meet the first event of a day at once.
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_OF_DAYS})
        if name in existing_days(connection):
            continue
        begin = datetime.combine(wanted[name], time(), tzinfo=UTC)
        end = begin + timedelta(days=1)
        connection.execute(text(f"CREATE TABLE {name} (LIKE runtime_events INCLUDING ALL)"))
        connection.execute(
            text(
                f"ALTER TABLE runtime_events ATTACH PARTITION {name}"
                f" FOR VALUES FROM ('{begin.isoformat()}') TO ('{end.isoformat()}')"
            )
        )


def create_past_days(
    connection: Connection, days: Iterable[date], *, most_new: int = MOST_NEW_DAYS
) -> None:
    """Creates the partitions that history needs, within the limits of the log."""
    present, wanted = existing_days(connection), set(days)
    new = len({partition_name(day) for day in wanted} - present)
    if new > most_new:
        raise Conflict(
            "history_too_wide",
            f"brings {new} days of which there is no event yet, at most {most_new} are taken at"
            " once: send events in the order of their time, in smaller batches",
        )
    if new and len(present) + new > MOST_DAYS:
        raise Conflict(
            "history_too_wide", f"events of more than {MOST_DAYS} days would be stored in all"
        )
    create_days(connection, wanted)


_WRITTEN = text("""
-- Once a day is enough; and without a key, so that no writer ever waits for another's end.
INSERT INTO replayed_days (day, written_on)
SELECT written.day, today
FROM unnest(CAST(:days AS date[])) AS written (day),
    CAST(clock_timestamp() AT TIME ZONE 'UTC' AS date) AS today
WHERE written.day < today
  AND NOT EXISTS (
      SELECT FROM replayed_days AS r WHERE r.day = written.day AND r.written_on = today
  )
""")


def write_past_days(
    connection: Connection, days: Iterable[date], *, most_new: int = MOST_NEW_DAYS
) -> None:
    """Makes ready to write into past days, none of which is dropped before this transaction ends.

    That they were written today is remembered: they are kept for so much longer.

    Args:
        connection: In the transaction that writes.

    Raises:
        Conflict: There are more such days, or the log would have more than it can bear.
    """
    wanted = sorted(set(days))
    share_past_days(connection)
    create_past_days(connection, wanted, most_new=most_new)
    connection.execute(_WRITTEN, {"days": wanted})


def claim_past_days(connection: Connection) -> None:
    """Keeps everybody else from writing into past days until this transaction ends."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _PAST_DAYS})


def share_past_days(connection: Connection) -> None:
    """Keeps past days where they are until this transaction ends; others may write into them."""
    connection.execute(text("SELECT pg_advisory_xact_lock_shared(:key)"), {"key": _PAST_DAYS})


def day_of(partition: str) -> date | None:
    """Returns the day of a partition's name, None of a name that no day has."""
    named = _NAME.fullmatch(partition)
    return None if named is None else datetime.strptime(f"{named[1]}Z", "%Y%m%d%z").date()


def existing_days(connection: Connection) -> set[str]:
    """Returns the names of the partitions that there are."""
    rows = connection.execute(
        text(
            "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = to_regclass(:parent)"
        ),
        {"parent": f"{SCHEMA}.runtime_events"},
    )
    return set(rows.scalars())


def present_days(connection: Connection) -> list[date]:
    """Returns the days that have a partition, in order."""
    days = map(day_of, existing_days(connection))
    return sorted(day for day in days if day is not None)
