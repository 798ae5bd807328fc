"""Erasures: who was forgotten, left out of files at once, and written out of them at night."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text

from storage.log.lake import Lake
from storage.log.parquet import EventKeys, holds_any, rewrite_without
from storage.log.sealed_hours import FILE, Erasure, SealedFile, read_erasures
from storage.log.sealing import Written, sealing_alone, store_file

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
        sessions: All of whose events go.
        claimed: Sessions whose events go that came with the public key.
        users: All of whose events go.
    """
    erased = {"sessions": list(sessions), "claimed": list(claimed), "users": list(users)}
    connection.execute(_NOTE, {"project_id": project_id, **erased})


@dataclass(frozen=True, kw_only=True)
class Rewriting:
    """The result of a rewriting: how many erasures it ended, and how many files it wrote anew."""

    erasures: int
    files: int


_OLDER = text(f"""
SELECT {FILE} FROM sealed_hours
WHERE file IS NOT NULL AND last_erasure < :newest
ORDER BY hour, part
""")

_SWAP = text("""
UPDATE sealed_hours SET file = :file, rows = :rows, bytes = :size, sha256 = :sha256,
    last_erasure = :newest, compared_at = NULL
WHERE file = :old
""")
_UNLIST = text("""
INSERT INTO unlisted_files (file, unlisted_at) VALUES (:file, clock_timestamp())
""")
_PASS = text("""
UPDATE sealed_hours SET last_erasure = :newest WHERE last_erasure < :newest
""")
_END = text("DELETE FROM erasures WHERE erasure_id <= :newest")


def rewrite_files(engine: Engine, lake: Lake) -> Rewriting | None:
    """Writes the files anew that hold anything of a forgotten person, under new names.

    One transaction lists the new ones in the place of the old ones, which are to be deleted then,
    and ends the erasures. A run that dies before leaves files that are not listed.

    Args:
        lake: Where the files are.

    Returns:
        The result; None where hours are being sealed: the next run does it.
    """
    with sealing_alone(engine) as connection:
        if connection is None:
            return None
        with connection.begin():
            erasures = read_erasures(connection)
        if not erasures:
            return Rewriting(erasures=0, files=0)
        newest = erasures[-1].erasure_id
        with connection.begin():
            rows = connection.execute(_OLDER, {"newest": newest}).mappings()
            files = [SealedFile(**row) for row in rows]
        rewritten = [
            (file, _rewritten(lake, file, _keys(erasures, after=file.last_erasure)))
            for file in files
            if _holds_any(lake, file, _keys(erasures, after=file.last_erasure))
        ]
        with connection.begin():
            gone = _swap(connection, rewritten, newest)
        for file in gone:
            lake.delete(file)
    return Rewriting(erasures=len(erasures), files=len(rewritten))


def _keys(erasures: Sequence[Erasure], *, after: int) -> EventKeys:
    later = [erasure for erasure in erasures if erasure.erasure_id > after]
    return EventKeys(
        sessions={
            (erasure.project_id, erasure.session_id)
            for erasure in later
            if erasure.session_id is not None and not erasure.public_only
        },
        claimed={
            (erasure.project_id, erasure.session_id)
            for erasure in later
            if erasure.session_id is not None and erasure.public_only
        },
        users={
            (erasure.project_id, erasure.pseudonym.hex())
            for erasure in later
            if erasure.pseudonym is not None
        },
    )


def _holds_any(lake: Lake, file: SealedFile, keys: EventKeys) -> bool:
    with lake.reading(file.name) as path:
        return holds_any(path, keys)


def _rewritten(lake: Lake, file: SealedFile, keys: EventKeys) -> Written | None:
    name = f"{file.name.rpartition('-')[0]}-{secrets.token_hex(4)}.parquet"
    with lake.reading(file.name) as path:
        return store_file(lake, name, lambda target: rewrite_without(path, target, keys))


def _swap(
    connection: Connection, rewritten: Sequence[tuple[SealedFile, Written | None]], newest: int
) -> list[str]:
    """Lists the new files, and returns those whose day was dropped meanwhile."""
    gone: list[str] = []
    for old, new in rewritten:
        listed = {
            "old": old.name,
            "file": new and new.name,
            "rows": new.rows if new else 0,
            "size": new and new.size,
            "sha256": new and new.sha256,
            "newest": newest,
        }
        if connection.execute(_SWAP, listed).rowcount:
            connection.execute(_UNLIST, {"file": old.name})
        elif new is not None:
            gone.append(new.name)
    connection.execute(_PASS, {"newest": newest})
    connection.execute(_END, {"newest": newest})
    return gone
