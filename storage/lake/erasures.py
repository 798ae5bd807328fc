"""Erasures: who was forgotten, left out of files at once, and written out of them at night."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine, text

from storage.lake.day_engines import day_engine_settings
from storage.lake.duckdb_engine import DuckDBEngine, open_duckdb
from storage.lake.lake import Lake
from storage.lake.parquet import COLUMNS, write_events
from storage.lake.sealed_hours import (
    SealedFile,
    Written,
    listed_files,
    note_verified,
    read_erasures,
)
from storage.lake.sealing import sealing_alone, store_file
from storage.lake.verification import verified
from storage.log.file_errors import WrongFileError
from storage.pipeline.log_relations import not_erased_after, register_erasures

_NOTE = text("""
INSERT INTO erasures (project_id, session_id, public_only, pseudonym, erased_at)
SELECT :project_id, session_id, public_only, pseudonym, clock_timestamp()
FROM (
    SELECT session_id, false AS public_only, CAST(NULL AS bytea) AS pseudonym
    FROM unnest(CAST(:sessions AS text[])) AS session_id
    UNION ALL
    SELECT session_id, true, NULL FROM unnest(CAST(:claimed AS text[])) AS session_id
    UNION ALL
    SELECT NULL, false, pseudonym FROM unnest(CAST(:users AS bytea[])) AS pseudonym
) AS erased
-- An hour is closed before its file is written: without any there is no file to leave them out of.
WHERE EXISTS (SELECT FROM sealed_hours)
""")


def note_erasure(
    connection: Connection,
    project_id: int,
    *,
    sessions: Iterable[str],
    claimed: Iterable[str],
    users: Iterable[bytes],
) -> None:
    """Makes every reader of files leave a person's events out, from this commit on.

    Args:
        connection: In the transaction that deletes the events from PostgreSQL, which no other
            erasure goes on beside.
    """
    erased = {"sessions": list(sessions), "claimed": list(claimed), "users": list(users)}
    connection.execute(_NOTE, {"project_id": project_id, **erased})


@dataclass(kw_only=True)
class Rewriting:
    """The result of a rewriting.

    Attributes:
        wrong: Files that are not as they are listed, and that nothing can be written anew from.
    """

    erasures: int = 0
    files: int = 0
    reopened: int = 0
    wrong: list[str] = field(default_factory=list)


_SWAP = text("""
UPDATE sealed_hours SET file = :file, rows = :rows, bytes = :size, sha256 = :sha256,
    last_erasure = :newest, compared_at = NULL, verified_at = clock_timestamp(), fault = NULL
WHERE file = :old
""")
_PASS = text("""
UPDATE sealed_hours SET last_erasure = greatest(last_erasure, :newest),
    verified_at = clock_timestamp(), fault = NULL
WHERE file = :file
""")
# PostgreSQL has its events, and not those of whoever was forgotten.
_REOPEN = text("""
UPDATE sealed_hours SET sealed_at = NULL, file = NULL, rows = NULL, bytes = NULL, sha256 = NULL,
    last_erasure = NULL, compared_at = NULL, verified_at = NULL, fault = NULL
WHERE file = :file AND moved_at IS NULL
  AND to_regclass('runtime_events_' || to_char(hour AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL
""")
_UNLIST = text("""
INSERT INTO unlisted_files (file, unlisted_at) VALUES (:file, clock_timestamp())
""")
_END = text("""
DELETE FROM erasures AS e
WHERE erasure_id <= :newest AND NOT EXISTS (
    SELECT FROM sealed_hours AS s WHERE s.file IS NOT NULL AND s.last_erasure < e.erasure_id
)
""")


def rewrite_files(engine: Engine, lake: Lake) -> Rewriting | None:
    """Writes the files anew that hold anything of a forgotten person, under new names.

    File by file, each in a transaction that lists the new file in the place of the old file, which
    is to be deleted then: a run that dies leaves at most a file that is not listed, and a file that
    is not as it is listed stops no other file. While its events are in PostgreSQL such a file is
    written anew from there; else its people stay in its bytes until the right file is back, and
    their erasures stay. Returns None where hours are being sealed: the next run does it.
    """
    with sealing_alone(engine, lake) as connection:
        if connection is None:
            return None
        with connection.begin():
            erasures = read_erasures(connection)
        newest = max((erasure.erasure_id for erasure in erasures), default=0)
        with connection.begin():
            waiting = "last_erasure < :newest OR fault IS NOT NULL"
            files = listed_files(connection, waiting, newest=newest)
        done = Rewriting()
        with open_duckdb(day_engine_settings().limits) as day_engine:
            register_erasures(day_engine, erasures)
            for file in files:
                try:
                    done.files += _rewrite(connection, lake, file, day_engine, newest)
                except WrongFileError as error:
                    _leave(connection, file, error, done)
        with connection.begin():
            done.erasures = connection.execute(_END, {"newest": newest}).rowcount
    return done


def _rewrite(
    connection: Connection, lake: Lake, file: SealedFile, engine: DuckDBEngine, newest: int
) -> bool:
    """Writes a file anew where it holds any event of who was erased, and returns whether it did."""
    with verified(lake, file) as path:
        columns = ", ".join(f"e.{name}" for name in COLUMNS.names)
        kept_rows = not_erased_after(engine, file.last_erasure)
        source = f"{engine.parquet([str(path)])} AS e WHERE true{kept_rows}"
        ((rows,),) = engine.rows(f"SELECT count(*) FROM {source}")
        is_written = rows < file.rows
        kept = (batch.cast(COLUMNS) for batch in engine.batches(f"SELECT {columns} FROM {source}"))
        name = f"{file.name.rpartition('-')[0]}-{secrets.token_hex(4)}.parquet"
        new = (
            store_file(lake, name, lambda target: write_events(target, kept))
            if is_written
            else None
        )
    with connection.begin():
        if not is_written:
            connection.execute(_PASS, {"file": file.name, "newest": newest})
        elif not _swap(connection, file, new, newest) and new is not None:
            # The day was dropped meanwhile.
            lake.delete(new.name)
    return is_written


def _swap(connection: Connection, old: SealedFile, new: Written | None, newest: int) -> bool:
    """Lists the new file, if any row is left, and returns whether the old file was listed."""
    listed = {
        "old": old.name,
        "file": new and new.name,
        "rows": new.rows if new else 0,
        "size": new and new.size,
        "sha256": new and new.sha256,
        "newest": newest,
    }
    if not connection.execute(_SWAP, listed).rowcount:
        return False
    connection.execute(_UNLIST, {"file": old.name})
    return True


def _leave(
    connection: Connection, file: SealedFile, error: WrongFileError, done: Rewriting
) -> None:
    with connection.begin():
        if connection.execute(_REOPEN, {"file": file.name}).rowcount:
            connection.execute(_UNLIST, {"file": file.name})
            done.reopened += 1
        else:
            note_verified(connection, [file], error.faults)
            done.wrong.append(file.name)
