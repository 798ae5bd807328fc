"""The comparison of sealed files with the log, by counts, sums and digests of their events."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, text

from storage.lake.lake import Lake
from storage.lake.parquet import canonical_json
from storage.lake.sealed_hours import (
    SealedFile,
    UnsealedRange,
    keep_files,
    listed_files,
    note_verified,
)
from storage.lake.verification import verified
from storage.log.file_errors import WrongFileError
from storage.log.parts import HOUR
from storage.postgres.rows import value_of

if TYPE_CHECKING:
    # It takes a tenth of a CPU second to load, which a run that compares no file does without.
    import duckdb

# In words that PostgreSQL and DuckDB share, but for the digest, on columns as files have them.
# The path of a file is a parameter: a folder's name may hold a quote.
_FILE = "read_parquet($path, hive_partitioning = false)"
# Extensions are downloaded; sums need none, and a single thread.
_DATABASE: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_SUMS = """
SELECT count(*), sum(project_id), sum(occurred), sum(received), sum(value),
    count(commit_sha), count(route), count(pseudonym), count(event_id), count(value),
    count(flags), count(properties), count(*) FILTER (WHERE trusted),
    count(*) FILTER (WHERE signed), count(sent), sum(sent), sum({digest})
FROM {source}
"""
# Index of the count of events with flags.
_FLAGGED = 10
_TEXTS = (
    "md5(concat_ws(chr(31), environment, event, session_id, coalesce(commit_sha, ''),"
    " coalesce(route, ''), coalesce(pseudonym, ''), coalesce(event_id, ''), properties))"
)
# The time is tied to the texts without becoming a text, which takes as long as the digest.
_DIGEST_IN_FILE = f"xor(('0x' || left({_TEXTS}, 15))::BIGINT, occurred)"
_DIGEST_IN_LOG = f"('x' || left({_TEXTS}, 15))::bit(60)::bigint # occurred"
_FLAGS = "SELECT flags, count(*) FROM {source} WHERE flags IS NOT NULL GROUP BY flags"
# A float, exact to the microsecond within 70 years of the hour; `extract` gives a numeric, which
# takes three times as long.
_SINCE_HOUR = "(date_part('epoch', {column} - timestamptz '{hour}') * 1000000)::bigint"
# OFFSET 0: each time is made an integer once.
_AS_IN_FILE = """
(SELECT project_id, environment, event, session_id,
    {seconds} * 1000000::bigint + {occurred} AS occurred,
    {seconds} * 1000000::bigint + {received} AS received,
    {seconds} * 1000000::bigint + {sent} AS sent, commit_sha, route,
    encode(pseudonym, 'hex') AS pseudonym, trusted, signed, event_id, value, flags,
    properties::text AS properties
FROM runtime_events WHERE {condition} OFFSET 0) AS e
"""

_UNCOMPARED = """
    compared_at IS NULL
  -- Of a day that is in PostgreSQL no longer there is nothing to compare with.
  AND moved_at IS NULL
  AND to_regclass('runtime_events_' || to_char(hour AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL
  -- Before it is rewritten it holds what the log holds no longer.
  AND NOT EXISTS (SELECT FROM erasures AS e WHERE e.erasure_id > s.last_erasure)
"""

_COMPARED = text("""
UPDATE sealed_hours SET compared_at = clock_timestamp(), verified_at = clock_timestamp(),
    fault = NULL
WHERE file = :file
""")


@dataclass(frozen=True, kw_only=True)
class DifferentFile:
    """A listed file whose content differs from PostgreSQL's, or from its listing."""

    name: str
    hour: datetime
    reason: str


@dataclass(frozen=True, kw_only=True)
class Compared:
    """How many files were compared for the first time, and which of them differ."""

    files: int
    different: Sequence[DifferentFile]


def compare_files(connection: Connection, lake: Lake, *, limit: int = 500) -> Compared:
    """Compares files not yet compared with PostgreSQL's events, in a transaction of its own."""
    import duckdb  # noqa: PLC0415 - it takes long to load, as said above

    connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    keep_files(connection)
    files = listed_files(connection, _UNCOMPARED, limit=limit)
    different: list[DifferentFile] = []
    # A single database for all files: to open a database takes longer than to read an hour's file.
    with duckdb.connect(config=_DATABASE) as database:
        # Drawn on standard output, which belongs to the caller.
        database.execute("SET enable_progress_bar = false")
        for file in files:
            if (reason := _difference(connection, database, lake, file)) is None:
                connection.execute(_COMPARED, {"file": file.name})
            else:
                different.append(DifferentFile(name=file.name, hour=file.hour, reason=reason))
    return Compared(files=len(files), different=different)


def _difference(
    connection: Connection, database: "duckdb.DuckDBPyConnection", lake: Lake, file: SealedFile
) -> str | None:
    try:
        with verified(lake, file) as path:
            in_file = _sums_of_file(database, str(path))
    except WrongFileError as error:
        note_verified(connection, [file], error.faults)
        return error.faults[file.name]
    events = UnsealedRange(part=file.part, begins=file.hour, ends=file.hour + HOUR)
    if in_file != _sums_of_log(connection, events):
        return "has other counts or checksums than the log"
    return None


def _sums_of_file(database: "duckdb.DuckDBPyConnection", path: str) -> Any:  # noqa: ANN401 - rows
    statement = _SUMS.format(digest=_DIGEST_IN_FILE, source=_FILE)
    (sums,) = database.execute(statement, {"path": path}).fetchall()
    if not sums[_FLAGGED]:
        return _whole(sums), {}
    flags = database.execute(_FLAGS.format(source=_FILE), {"path": path}).fetchall()
    return _whole(sums), dict(flags)


def _sums_of_log(connection: Connection, events: UnsealedRange) -> Any:  # noqa: ANN401 - rows
    condition, hour = events.condition, events.begins.isoformat()
    source = _AS_IN_FILE.format(
        condition=condition,
        seconds=round(events.begins.timestamp()),
        occurred=_SINCE_HOUR.format(column="occurred_at", hour=hour),
        received=_SINCE_HOUR.format(column="received_at", hour=hour),
        sent=_SINCE_HOUR.format(column="sent_at", hour=hour),
    )
    sums = connection.execute(text(_SUMS.format(digest=_DIGEST_IN_LOG, source=source))).one()
    if not sums[_FLAGGED]:
        return _whole(tuple(sums)), {}
    flags = _FLAGS.format(source=f"(SELECT flags::text FROM runtime_events WHERE {condition}) AS e")
    counted = {canonical_json(row[0]): row[1] for row in connection.execute(text(flags))}
    return _whole(tuple(sums)), counted


def _whole(sums: Sequence[Any]) -> tuple[int | None, ...]:
    return tuple(None if value is None else int(value) for value in sums)


_OF_DAY = text("""
SELECT count(*) FILTER (WHERE sealed_at IS NOT NULL AND part = 0) AS hours,
    coalesce(sum(rows), 0)::bigint AS rows, coalesce(sum(bytes), 0)::bigint AS bytes,
    count(file) AS files
FROM sealed_hours WHERE CAST(hour AT TIME ZONE 'UTC' AS date) = :day
""")


@dataclass(frozen=True, kw_only=True)
class SealedDay:
    """The sealed part of a day."""

    hours: int
    rows: int
    size: int
    files: int


_DAYS_WITH_FAULTS = text("""
SELECT DISTINCT CAST(hour AT TIME ZONE 'UTC' AS date) AS day FROM sealed_hours
WHERE fault IS NOT NULL ORDER BY day
""")


def days_with_faults(connection: Connection) -> list[date]:
    """Returns the days of files that were not as they are listed when they were looked at last."""
    return list(connection.execute(_DAYS_WITH_FAULTS).scalars())


def sealed_day(connection: Connection, day: date) -> SealedDay:
    """Returns the sealed part of a day, in UTC."""
    row = connection.execute(_OF_DAY, {"day": day}).one()
    return value_of(SealedDay, row, size=row.bytes)
