"""The past log: events that were received before a time, read within a limit of time."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg
from sqlalchemy import Connection, Row, TextClause, text
from sqlalchemy.exc import OperationalError

from storage.schema.clock import store_time

# How long a reading may take, and all of a transaction together, in seconds.
_PATIENCE, _PATIENCE_FOR_ALL = 10.0, 60.0
_LIMIT = text("SELECT set_config('statement_timeout', :milliseconds, true)")


class UnansweredError(Exception):
    """A reading of the past log took longer than it may: its member takes its default."""


class PastLog:
    """The log before a time; no reading of it holds a lock that a writer waits for."""

    def __init__(
        self,
        connection: Connection,
        *,
        until: datetime | None = None,
        seconds: float = _PATIENCE_FOR_ALL,
    ) -> None:
        """Begins to read up to a time; None for now."""
        self.until = until or store_time(connection)
        self._connection = connection
        self._seconds = seconds

    def rows(self, statement: TextClause, parameters: Mapping[str, Any]) -> Sequence[Row[Any]]:
        """Returns the rows of a statement.

        Raises:
            UnansweredError: They could not be read in time.
        """
        milliseconds = int(1000 * min(_PATIENCE, self._seconds))
        if milliseconds <= 0:
            raise UnansweredError
        begun = time.monotonic()
        try:
            # The outer savepoint is released: from within an open one no snapshot can be exported.
            with self._connection.begin_nested(), self._connection.begin_nested() as reading:
                self._connection.execute(_LIMIT, {"milliseconds": str(milliseconds)})
                rows = self._connection.execute(statement, dict(parameters)).all()
                # The limit goes with it.
                reading.rollback()
        except OperationalError as error:
            if not isinstance(error.orig, psycopg.errors.QueryCanceled):
                raise
            raise UnansweredError from error
        finally:
            self._seconds -= time.monotonic() - begun
        return rows
