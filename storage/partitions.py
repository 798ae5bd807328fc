"""The days of the event log: one partition a day of receipt, made before its first row."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy import Connection, text

from storage.tables import SCHEMA

_MIGRATION_OF_DAYS = 7_246_004


def partition_name(day: date) -> str:
    """Returns the name of a day's partition."""
    return f"runtime_events_{day:%Y%m%d}"


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
