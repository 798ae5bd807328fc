"""An exchange with the store: statements sent together over a connection, and their results."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from storage.postgres.engine import PATIENCE, connection_string, session_options

# A connection whose server vanished without a word is given up after 5 + 3 x 2 seconds.
_KEEPALIVE: Mapping[str, Any] = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
# Larger pieces would make libpq's buffer grow before anything is sent.
_PIECE = 2**20
# As often psycopg itself looks at a socket that it waits for.
_AGAIN_SECONDS = 0.1


class Exchange:
    """Asks the store over a connection of its own, by libpq.

    psycopg's cursors wait for the server at each statement, and hand the socket to the event loop
    anew each time. Rounds of many requests spent more on that than on their rows: here statements
    go together, and the loop watches the socket for as long as the connection lives.
    """

    def __init__(self, url: str) -> None:
        """Makes an exchange whose connection is opened by its first statement."""
        self._url = url
        self._loop: asyncio.AbstractEventLoop
        self._connection: AsyncConnection[Any] | None = None
        self._pgconn: PGconn
        self._socket = -1
        # Done once there is something to read, or room to write.
        self._news: asyncio.Future[None]
        self._lost: psycopg.Error | None = None
        self._names: dict[bytes, bytes] = {}

    async def _opened(self) -> PGconn:
        """Returns the connection, opened anew where there is none or the server has ended it."""
        if self._connection is not None and self._lost is None:
            return self._pgconn
        # It broke between requests: none need fail to find out.
        await self.close()
        self._connection = await AsyncConnection.connect(
            connection_string(self._url),
            autocommit=True,
            options=f"{session_options()} {PATIENCE}",
            connect_timeout=5,
            **_KEEPALIVE,
        )
        self._pgconn = self._connection.pgconn
        self._names, self._lost = {}, None
        self._loop, self._socket = asyncio.get_running_loop(), self._pgconn.socket
        self._news = self._loop.create_future()
        self._loop.add_reader(self._socket, self._read)
        return self._pgconn

    async def close(self) -> None:
        """Ends the connection; the next statement opens another."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        # libpq closes a socket that broke, and another connection may have its number by now.
        if self._lost is None:
            self._unwatch()
        with contextlib.suppress(psycopg.Error, OSError):
            await connection.close()

    async def prepared(self, query: bytes, parameters: Sequence[bytes]) -> PGresult:
        """Returns the rows of a query, which is prepared at its first use."""
        pgconn = await self._opened()
        name = self._names.get(query)
        if name is None:
            name = b"query_%d" % len(self._names)
            pgconn.send_prepare(name, query)
            await self._flushed()
            await self._last(await self._result())
            self._names[query] = name
        pgconn.send_query_prepared(name, parameters)
        await self._flushed()
        return await self._last(await self._result())

    async def begun(self, statements: bytes) -> PGresult:
        """Sends a statement and a COPY as a single transaction; returns the statement's rows.

        `copied` or `abandoned` ends the transaction.
        """
        pgconn = await self._opened()
        pgconn.send_query(statements)
        await self._flushed()
        first, copying = await self._result(), await self._result()
        if first is None or copying is None or copying.status != ExecStatus.COPY_IN:
            await self._last(copying or first)
            raise psycopg.OperationalError("the store did not begin a COPY")
        return first

    async def copied(self, data: bytes) -> None:
        """Gives the COPY its data, and returns once the transaction is committed.

        Raises:
            psycopg.Error: It is not, or its commit was lost sight of.
        """
        for at in range(0, len(data), _PIECE):
            _require_taken(self._pgconn.put_copy_data(data[at : at + _PIECE]))
            await self._flushed()
        _require_taken(self._pgconn.put_copy_end())
        await self._flushed()
        await self._last(await self._result())

    async def abandoned(self) -> None:
        """Ends the transaction without a trace."""
        _require_taken(self._pgconn.put_copy_end(b"abandoned"))
        await self._flushed()
        while await self._result() is not None:
            pass

    def _read(self) -> None:
        try:
            self._pgconn.consume_input()
        except psycopg.Error as error:
            self._lost = error
            self._unwatch()
        self._wake()

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)

    def _wake(self) -> None:
        if not self._news.done():
            self._news.set_result(None)

    async def _next_news(self) -> None:
        if self._lost is not None:
            raise self._lost
        self._news = self._loop.create_future()
        # libuv watches a socket no longer whose peer died with something unread: it says so once,
        # and what libpq reads then may be the server's last words, not the end behind them.
        again = self._loop.call_later(_AGAIN_SECONDS, self._read)
        try:
            await self._news
        finally:
            again.cancel()

    async def _flushed(self) -> None:
        while self._pgconn.flush():
            self._loop.add_writer(self._socket, self._wake)
            try:
                await self._next_news()
            finally:
                if self._lost is None:
                    self._loop.remove_writer(self._socket)

    async def _result(self) -> PGresult | None:
        while self._pgconn.is_busy():
            await self._next_news()
        return self._pgconn.get_result()

    async def _last(self, result: PGresult | None) -> PGresult:
        """Returns a result behind which there is no other."""
        while (later := await self._result()) is not None:
            result = later
        if result is None or result.status == ExecStatus.FATAL_ERROR:
            raise _error(result)
        return result


def _require_taken(taken: int) -> None:
    # All that came before it is flushed: only a lack of memory keeps libpq from taking it.
    if not taken:
        raise psycopg.OperationalError("libpq has no room for the data of a COPY")


def _error(result: PGresult | None) -> psycopg.Error:
    if result is None:
        return psycopg.OperationalError("the connection to the store broke")
    state = result.error_field(DiagnosticField.SQLSTATE)
    message = (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
    try:
        kind = psycopg.errors.lookup((state or b"").decode())
    except KeyError:
        kind = psycopg.OperationalError
    return kind(message)
