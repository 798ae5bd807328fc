"""Sealing: hours of receipt that have ended are closed, written to files, checked and listed."""

import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, OperationalError

from storage.lake.lake import Lake, claim_lake, file_sha256
from storage.lake.parquet import (
    SnapshotReader,
    count_rows,
    export_snapshot,
    read_events,
    write_events,
)
from storage.lake.sealed_hours import UnsealedRange, Written
from storage.log.parts import HOUR
from storage.postgres.lock_waits import BRIEFLY, is_locked
from storage.postgres.rows import value_of
from storage.schema.clock import closed_instant
from storage.schema.partitions import claim_past_days, present_days

_SEALING_LOCK = 7_246_014


class SealingError(RuntimeError):
    """A file read back differs from the written file; it is not listed."""


@dataclass(kw_only=True)
class SealedRun:
    """The result of a run of sealing.

    Attributes:
        hours: How many parts of hours it listed, those without an event included.
        size: Of the files, in bytes.
    """

    hours: int = 0
    rows: int = 0
    size: int = 0
    seconds: float = 0.0
    waiting: int = 0


@dataclass(frozen=True, kw_only=True)
class _Part:
    hour: datetime
    part: int


@dataclass(frozen=True, kw_only=True)
class Sealer:
    """Seals the log of a store into a lake."""

    engine: Engine
    lake: Lake

    def seal(self, *, most_seconds: float = 1200.0) -> SealedRun | None:
        """Closes the hours that have ended, and seals closed ones, the oldest first.

        Nothing is lost wherever this ends: closed hours that are not listed are written anew by the
        next run, and a file that is not listed is swept. Returns None where another run seals.

        Raises:
            LakeError, OSError: The lake cannot be written; hours sealed before stay.
        """
        with sealing_alone(self.engine, self.lake) as connection:
            if connection is None:
                return None
            run = SealedRun()
            _close_hours(self.engine)
            with connection.begin():
                waiting = [value_of(_Part, row) for row in connection.execute(_CLOSED)]
            ends_at = time.monotonic() + most_seconds
            with SnapshotReader(self.engine) as reader:
                for number, part in enumerate(waiting):
                    if time.monotonic() > ends_at:
                        run.waiting = len(waiting) - number
                        break
                    self._seal_part(connection, reader, part, run)
        return run

    def _seal_part(
        self, connection: Connection, reader: SnapshotReader, part: _Part, run: SealedRun
    ) -> None:
        begun = time.monotonic()
        name = f"{part.hour:%Y-%m-%d/%H}-{part.part}-{secrets.token_hex(4)}.parquet"
        events = UnsealedRange(part=part.part, begins=part.hour, ends=part.hour + HOUR)
        with connection.begin():
            connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            last_erasure = connection.execute(_LAST_ERASURE).scalar_one()
            with reader.cursor(export_snapshot(connection)) as cursor:
                batches = read_events(cursor, events.condition)
                written = store_file(self.lake, name, lambda path: write_events(path, batches))
        if not _list(connection, part, written, last_erasure):
            # The day was dropped meanwhile.
            self.lake.delete(name)
            return
        run.hours += 1
        run.seconds += time.monotonic() - begun
        if written is not None:
            run.rows += written.rows
            run.size += written.size


def store_file(lake: Lake, name: str, write: Callable[[Path], int]) -> Written | None:
    """Stores a file, reads it back, and returns its entry in the list; None where no event is."""
    with lake.writing(name) as path:
        rows = write(path)
        if not rows:
            return None
        digest, size = file_sha256(path), path.stat().st_size
    with lake.reading(name) as path:
        if count_rows(path) != rows or file_sha256(path) != digest:
            raise SealingError(f"the file {name} is not read back as it was written")
    return Written(name=name, rows=rows, size=size, sha256=digest)


@contextmanager
def sealing_alone(engine: Engine, lake: Lake) -> Generator[Connection | None]:
    """Yields a connection that alone writes and lists files, None where another connection does.

    The lake is claimed for the store before.

    Files are listed on this very connection: a lost connection, and its lock with it, lists none.
    """
    with engine.connect() as connection:
        # Closed at the end rather than used again: the lock ends with the session.
        connection.detach()
        with connection.begin():
            claimed = connection.execute(
                text("SELECT pg_try_advisory_lock(:key)"), {"key": _SEALING_LOCK}
            ).scalar_one()
        try:
            if claimed:
                claim_lake(engine, lake)
            yield connection if claimed else None
        finally:
            # PostgreSQL ends a session some time after it is closed. A lost session has ended.
            with suppress(DBAPIError), connection.begin():
                connection.execute(text("SELECT pg_advisory_unlock_all()"))


_CLOSE_LIVE = text("""
INSERT INTO sealed_hours (hour, part, closed_at)
SELECT hour, 0, clock_timestamp()
FROM unnest(CAST(:days AS date[])) AS present (day)
CROSS JOIN generate_series(
    day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC' - interval '1 hour',
    interval '1 hour'
) AS hour
WHERE hour + interval '1 hour' <= :closed
ON CONFLICT DO NOTHING
""")

_CLOSE_HISTORY = text("""
WITH brought AS (DELETE FROM replayed_hours RETURNING hour, part)
INSERT INTO sealed_hours (hour, part, closed_at)
SELECT DISTINCT hour, part, clock_timestamp() FROM brought
ON CONFLICT DO NOTHING
""")

_CLOSED = text("""
SELECT hour, part FROM sealed_hours WHERE sealed_at IS NULL ORDER BY hour, part
""")


def _close_hours(engine: Engine) -> None:
    """Closes the hours that have ended, unless somebody writes: then the next run does."""
    try:
        with engine.begin() as connection:
            connection.execute(BRIEFLY)
            claim_past_days(connection)
            closed = closed_instant(connection)
            connection.execute(_CLOSE_LIVE, {"days": present_days(connection), "closed": closed})
            connection.execute(_CLOSE_HISTORY)
    except OperationalError as error:
        if not is_locked(error):
            raise


_LAST_ERASURE = text("SELECT coalesce(max(erasure_id), 0) FROM erasures")


_LIST = text("""
UPDATE sealed_hours SET sealed_at = clock_timestamp(), file = :file, rows = :rows, bytes = :size,
    sha256 = :sha256, last_erasure = :last_erasure
WHERE hour = :hour AND part = :part AND sealed_at IS NULL
""")


def _list(connection: Connection, part: _Part, written: Written | None, last_erasure: int) -> bool:
    listed = {
        "hour": part.hour,
        "part": part.part,
        "file": written and written.name,
        "rows": written.rows if written else 0,
        "size": written and written.size,
        "sha256": written and written.sha256,
        "last_erasure": last_erasure,
    }
    with connection.begin():
        return connection.execute(_LIST, listed).rowcount == 1
