"""The past log: events that were received before a time, read within a limit of time.

A reading is text of SQL that PostgreSQL and DuckDB share: times are whole microseconds since the
epoch, spans microseconds, users their pseudonyms in hexadecimal. PostgreSQL has the days of the
last week whole, and of older ones some rows; the rest is in files, which DuckDB reads.
"""

import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import psycopg
from sqlalchemy import Connection, Row, TextClause, text
from sqlalchemy.exc import OperationalError

from storage.schema.encoding import EPOCH, MICROSECOND, epoch_microseconds, moment, on_our_clock

# How long a statement may take, and all statements of a reading together, in seconds.
_STATEMENT, PATIENCE = 10.0, 20.0
_LIMIT = text("SELECT set_config('statement_timeout', :milliseconds, true)")

# Stand for relations of the events of an environment, received from a time until another.
_RELATION = re.compile(r"<(events|revenue) from :(\w+) until :(\w+)>")
EVENTS, REVENUE = "<events from :since until :before>", "<revenue from :since until :before>"
# Stand for values of an event as text: of the flag `:flag`, and of a property.
FLAG = "<flag>"
_PROPERTY = re.compile(r"<property ([\w-]+) of (\w+)>")


class UnansweredError(Exception):
    """A reading of the past log took longer than it may: its member takes its default."""


def written(reading: str, relations: Mapping[str, str], *, flag: str, value: str) -> str:
    """Returns a reading as an engine takes it.

    Args:
        relations: `events` and `revenue`, with `{since}` and `{before}` for two parameters' names.
        flag: The value of the flag `:flag` among `flags`.
        value: A property, `{name}`, of `{column}`.
    """
    sql = _RELATION.sub(lambda of: relations[of[1]].format(since=of[2], before=of[3]), reading)
    sql = _PROPERTY.sub(lambda of: value.format(name=of[1], column=of[2]), sql)
    return sql.replace(FLAG, flag)


_WITHIN = f"received_at >= {moment(':{since}')} AND received_at < {moment(':{before}')}"
_STORED = {
    "events": f"""(
    SELECT event, session_id, {epoch_microseconds(on_our_clock("e"))} AS occurred,
        {epoch_microseconds("received_at")} AS received, commit_sha, route,
        encode(pseudonym, 'hex') AS pseudonym, trusted, signed, value, flags, properties
    FROM runtime_events AS e
    WHERE project_id = :project_id AND environment = :environment AND {_WITHIN}
)""",
    "revenue": f"""(
    SELECT event, idempotency_key, {epoch_microseconds("occurred_at")} AS occurred,
        {epoch_microseconds("received_at")} AS received, encode(pseudonym, 'hex') AS pseudonym,
        amount_value AS amount, amount_currency AS currency, attributes
    FROM revenue_events
    WHERE project_id = :project_id AND coalesce(environment, :environment) = :environment
      AND {_WITHIN}
)""",
}


class PastFiles(Protocol):
    """The past log in its files, and the rest that no file holds."""

    def rows(
        self, reading: str, parameters: Mapping[str, object], *, seconds: float
    ) -> Sequence[Any] | None:
        """Returns the rows of a reading, with their names; None where PostgreSQL has its events.

        Raises:
            UnansweredError: They could not be read in time.
        """
        ...


@dataclass(kw_only=True)
class PastLog:
    """The log of an environment before a time; no reading holds a lock that a writer waits for.

    Attributes:
        files: Of days that PostgreSQL does not have whole; None to read it alone.
        seconds: How long it may be read yet.
    """

    connection: Connection
    project_id: int
    environment: str
    until: datetime
    files: PastFiles | None = None
    seconds: float = PATIENCE

    def rows(self, reading: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        """Returns the rows of a reading, with their names.

        Args:
            parameters: Among them `since` and `before`, within which it reads; times and spans.
        """
        exact: dict[str, object] = {
            name: _in_microseconds(value) for name, value in parameters.items()
        }
        if self.files is not None:
            with self._limited() as seconds:
                rows = self.files.rows(reading, exact, seconds=seconds)
            if rows is not None:
                return rows
        value = "({column} ->> '{name}')"
        sql = written(reading, _STORED, flag="(flags ->> :flag)", value=value)
        return self.stored(text(sql), exact)

    def stored(self, statement: TextClause, parameters: Mapping[str, object]) -> Sequence[Row[Any]]:
        """Returns the rows of a statement of PostgreSQL."""
        with self._limited() as seconds:
            try:
                # The outer savepoint is released: from within an open one no snapshot can be
                # exported.
                with self.connection.begin_nested(), self.connection.begin_nested() as reading:
                    limit = {"milliseconds": str(int(1000 * seconds) or 1)}
                    self.connection.execute(_LIMIT, limit)
                    rows = self.connection.execute(statement, dict(parameters)).all()
                    # The limit goes with it.
                    reading.rollback()
            except OperationalError as error:
                if not isinstance(error.orig, psycopg.errors.QueryCanceled):
                    raise
                raise UnansweredError from error
        return rows

    @contextmanager
    def _limited(self) -> Generator[float]:
        """Yields how many seconds a reading may take, and counts those that it takes."""
        if self.seconds <= 0:
            raise UnansweredError
        begun = time.monotonic()
        try:
            yield min(_STATEMENT, self.seconds)
        finally:
            self.seconds -= time.monotonic() - begun


def _in_microseconds(value: object) -> object:
    if isinstance(value, datetime):
        return (value - EPOCH) // MICROSECOND
    return value // MICROSECOND if isinstance(value, timedelta) else value
