"""The past log: earlier events as a binding reads them, before writers have to wait for it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Row, TextClause, text

from storage.schema.clock import binding_time, store_time

BoundT = TypeVar("BoundT")

# A bound on the rounds of a binding; no binding asks for so many.
_MOST_READINGS = 1000


class _MissingRowsError(Exception):
    """A binding needs rows that were not read before it took the log's lock."""

    def __init__(self, statement: TextClause, parameters: Mapping[str, Any]) -> None:
        super().__init__()
        self.statement, self.parameters = statement, parameters

    @property
    def key(self) -> tuple[str, bytes]:
        return self.statement.text, msgspec.json.encode(self.parameters)


class PastLog:
    """The log as a binding reads it, before the lock that all writers of the log wait for.

    A month of events takes seconds to read. So a binding that needs rows lets go of the lock, and
    begins again once they are read. Outside of a binding rows are read at once.

    Attributes:
        until: When the reading began: a moment before the binding.
    """

    def __init__(self, connection: Connection) -> None:
        """Begins to read, for a transaction that is going to bind."""
        self.until = store_time(connection)
        self._connection = connection
        self._rows: dict[tuple[str, bytes], Sequence[Row[Any]]] = {}
        self._is_binding = False

    def bound(self, bind: Callable[[datetime], BoundT]) -> BoundT:
        """Returns the result of `bind` at the time of the binding, under the log's lock.

        It may be called several times: all that it wrote is undone but for the last.
        """
        self._is_binding = True
        self._connection.execute(text("SAVEPOINT unbound"))
        while True:
            try:
                result = bind(binding_time(self._connection))
            except _MissingRowsError as missing:
                # To go back is to let go of the locks that were taken since.
                self._connection.execute(text("ROLLBACK TO SAVEPOINT unbound"))
                self._rows[missing.key] = self._read(missing)
            else:
                self._connection.execute(text("RELEASE SAVEPOINT unbound"))
                return result

    def rows(self, statement: TextClause, parameters: Mapping[str, Any]) -> Sequence[Row[Any]]:
        """Returns the rows of a statement; its parameters have no time that the binding moves."""
        missing = _MissingRowsError(statement, parameters)
        if (known := self._rows.get(missing.key)) is not None:
            return known
        if self._is_binding and len(self._rows) < _MOST_READINGS:
            raise missing
        return self._read(missing)

    def _read(self, missing: _MissingRowsError) -> Sequence[Row[Any]]:
        return self._connection.execute(missing.statement, dict(missing.parameters)).all()
