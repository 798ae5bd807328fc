"""The past log: earlier events as a binding reads them, before writers have to wait for it."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import psycopg
from sqlalchemy import Connection, Row, TextClause, text
from sqlalchemy.exc import OperationalError

from storage.schema.clock import binding_time, store_time

BoundT = TypeVar("BoundT")

# How long a reading may take, and all of a transaction together, in seconds.
_PATIENCE, _PATIENCE_FOR_ALL = 10.0, 60.0
_LIMIT = text("SELECT set_config('statement_timeout', :milliseconds, true)")


class UnansweredError(Exception):
    """A reading of the past log took longer than it may: its member takes its default."""


class PastLog:
    """The log as a binding reads it: never under the lock that all writers of the log wait for.

    Outside of a binding rows are read at once.
    """

    def __init__(self, connection: Connection, *, seconds: float = _PATIENCE_FOR_ALL) -> None:
        """Begins to read, for a transaction that is going to bind."""
        self.until = store_time(connection)
        self._connection = connection
        self._rows: dict[tuple[str, bytes], Sequence[Row[Any]] | None] = {}
        self._seconds = seconds
        self._is_read = False

    def bound(self, bind: Callable[[datetime], BoundT]) -> BoundT:
        """Returns the result of `bind` at the time of the binding, under the log's lock.

        It is rehearsed before, without the lock, and undone: that reads all that it asks for.
        """
        # Of the two savepoints the outer is released: a rollback alone leaves its savepoint open,
        # and from within it no snapshot can be exported.
        with self._connection.begin_nested(), self._connection.begin_nested() as rehearsal:
            bind(self.until)
            rehearsal.rollback()
        self._is_read = True
        return bind(binding_time(self._connection))

    def rows(self, statement: TextClause, parameters: Mapping[str, Any]) -> Sequence[Row[Any]]:
        """Returns the rows of a statement; its parameters have no time that the binding moves.

        Raises:
            UnansweredError: They could not be read in time.
        """
        key = (statement.text, msgspec.json.encode(parameters))
        if key not in self._rows and not self._is_read:
            with self._connection.begin_nested():
                self._rows[key] = self._read(statement, parameters)
        if (rows := self._rows.get(key)) is None:
            raise UnansweredError
        return rows

    def _read(
        self, statement: TextClause, parameters: Mapping[str, Any]
    ) -> Sequence[Row[Any]] | None:
        milliseconds = int(1000 * min(_PATIENCE, self._seconds))
        if milliseconds <= 0:
            return None
        begun = time.monotonic()
        try:
            with self._connection.begin_nested() as reading:
                self._connection.execute(_LIMIT, {"milliseconds": str(milliseconds)})
                rows = self._connection.execute(statement, dict(parameters)).all()
                # The limit goes with it.
                reading.rollback()
        except OperationalError as error:
            if not isinstance(error.orig, psycopg.errors.QueryCanceled):
                raise
            return None
        finally:
            self._seconds -= time.monotonic() - begun
        return rows
