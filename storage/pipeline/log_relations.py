"""Log relations: an extent of the log as relations of an engine, by the same SQL for each."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from storage.lake.reader import Extent, LogFile, LogRows
from storage.lake.sealed_hours import Erasure
from storage.pipeline.engines.day_engine import DayEngine
from storage.schema.encoding import PERSON

_UNITS = {"unit": "text"}
_ERASED = {"erasure_id": "bigint", "project_id": "int", "key": "text"}


def attach_log(engine: DayEngine, rows: LogRows) -> None:
    """Defines `events` and `revenue_events`, with the columns of the extent, and revenue.

    `events` holds all environments of the extent's projects: each step joins `scope` on project and
    environment, so filtering the environment here would test every row twice. `stored_events` has a
    row for each event of the files, whether it is read or not.
    """
    engine.register("log_units", _UNITS, ((unit,) for unit in sorted(rows.extent.units or ())))
    register_erasures(engine, rows.erasures)
    engine.copy("log_rest", rows.rest)
    engine.copy("revenue_events", rows.revenue)
    wanted = _wanted(rows.extent)
    ages = _ages(rows.extent)
    columns = ", ".join(f"e.{name}" for name in rows.extent.columns.names)
    parts = [f"SELECT {columns} FROM log_rest AS e WHERE {age} AND {wanted}" for age in ages]
    stored = ["SELECT 1 AS event FROM log_rest"]
    newest = max((erasure.erasure_id for erasure in rows.erasures), default=0)
    for last, uris in _by_last_erasure(rows.files, newest):
        erased = not_erased_after(engine, last) if last < newest else ""
        files = engine.parquet(uris)
        parts += [
            f"SELECT {columns} FROM {files} AS e WHERE {age} AND {wanted}{erased}" for age in ages
        ]
        stored.append(f"SELECT 1 FROM {files}")
    engine.define("events", " UNION ALL ".join(parts))
    engine.define("stored_events", " UNION ALL ".join(stored))
    engine.keep_few("events", "stored_events")


def _ages(extent: Extent) -> tuple[str, str]:
    """Returns the conditions of all recent events, and of those from before that name a user.

    Apart, since recent events are mostly read without the users that they name.
    """
    return (
        f"e.received >= {extent.received_from}",
        f"e.received < {extent.received_from} AND e.pseudonym IS NOT NULL",
    )


def _wanted(extent: Extent) -> str:
    units = (
        ""
        if extent.units is None
        else " AND (e.session_id IN (SELECT unit FROM log_units)"
        " OR e.pseudonym IN (SELECT unit FROM log_units))"
    )
    projects = ", ".join(str(number) for number in sorted({key for key, _ in extent.environments}))
    return (
        f"e.received BETWEEN {extent.named_from} AND {extent.received_to}"
        f" AND e.project_id IN ({projects}){units}"
    )


def register_erasures(engine: DayEngine, erasures: Iterable[Erasure]) -> None:
    """Makes the inputs that `not_erased_after` reads."""
    sessions: list[tuple[int, int, str]] = []
    claimed: list[tuple[int, int, str]] = []
    users: list[tuple[int, int, str]] = []
    for erasure in erasures:
        number, project_id = erasure.erasure_id, erasure.project_id
        if erasure.session_id is not None:
            of_session = claimed if erasure.public_only else sessions
            of_session.append((number, project_id, erasure.session_id))
        if erasure.pseudonym is not None:
            users.append((number, project_id, erasure.pseudonym.hex()))
    engine.register("log_erased_sessions", _ERASED, sessions)
    engine.register("log_erased_claims", _ERASED, claimed)
    engine.register("log_erased_users", _ERASED, users)


def not_erased_after(engine: DayEngine, last: int) -> str:
    """Returns the condition that an event `e` is of nobody who was erased after an erasure."""
    return "".join(
        f" AND NOT EXISTS (SELECT 1 FROM log_erased_{kind} AS x WHERE x.erasure_id > {last}"
        f" AND x.project_id = e.project_id AND x.key = {column})"
        for kind, column in (
            ("sessions", "e.session_id"),
            ("claims", "e.session_id AND NOT e.trusted"),
            ("users", "e.pseudonym"),
            ("users", engine.dialect.property_text(f"'{PERSON}'", "e")),
        )
    )


def _by_last_erasure(files: Iterable[LogFile], newest: int) -> Iterator[tuple[int, list[str]]]:
    """Yields files by the last erasure that each was written without.

    There are few such groups: files are rewritten each night.
    """

    def last_erasure(file: LogFile) -> int:
        return min(file.last_erasure, newest)

    for last, group in groupby(sorted(files, key=last_erasure), key=last_erasure):
        yield last, [file.uri for file in group]
