"""Removal of files from the lake: those that were listed once, and those that never were."""

from datetime import UTC, date, datetime, timedelta

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from storage.lake.lake import Lake
from storage.lake.sealed_hours import claim_files
from storage.postgres.lock_waits import is_locked

# Longer than any run that writes a file and has not listed it yet.
_ABANDONED_AFTER = timedelta(days=1)

_UNLISTED = text("SELECT file FROM unlisted_files ORDER BY file")
_REMOVED = text("DELETE FROM unlisted_files WHERE file = ANY(:files)")
_KNOWN = text("""
SELECT file FROM sealed_hours WHERE file IS NOT NULL UNION ALL SELECT file FROM unlisted_files
""")


_UNLIST_DAY = text("""
WITH gone AS (
    DELETE FROM sealed_hours WHERE CAST(hour AT TIME ZONE 'UTC' AS date) = :day
    RETURNING file, rows
), unlisted AS (
    INSERT INTO unlisted_files (file, unlisted_at)
    SELECT file, clock_timestamp() FROM gone WHERE file IS NOT NULL
)
SELECT coalesce(sum(rows), 0)::bigint FROM gone
""")
_FORGET_PARTS = text("""
DELETE FROM replayed_hours WHERE CAST(hour AT TIME ZONE 'UTC' AS date) = :day
""")


def unlist_day(connection: Connection, day: date) -> int:
    """Takes a UTC day off the list, to delete its files later; returns how many events they held.

    Args:
        connection: In a transaction that keeps others from writing into past days.
    """
    connection.execute(_FORGET_PARTS, {"day": day})
    return connection.execute(_UNLIST_DAY, {"day": day}).scalar_one()


def delete_unlisted(engine: Engine, lake: Lake) -> int | None:
    """Deletes unlisted files; returns how many, None while a reader may have their names."""
    try:
        with engine.begin() as connection:
            claim_files(connection)
            files = list(connection.execute(_UNLISTED).scalars())
            for file in files:
                lake.delete(file)
            connection.execute(_REMOVED, {"files": files})
    except OperationalError as error:
        if not is_locked(error):
            raise
        return None
    return len(files)


def sweep(engine: Engine, lake: Lake, *, as_of: datetime | None = None) -> int:
    """Deletes the files that a run left which died before it listed them, after a day."""
    before = (as_of or datetime.now(UTC)) - _ABANDONED_AFTER
    # In this order: what is listed meanwhile is in the list that is read afterwards.
    old = [name for name, changed in lake.names() if changed < before]
    with engine.begin() as connection:
        known = set(connection.execute(_KNOWN).scalars())
    abandoned = [name for name in old if name not in known]
    for name in abandoned:
        lake.delete(name)
    return len(abandoned)
