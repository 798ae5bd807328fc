"""Batches concurrent requests onto one connection: group commit, and group reads."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import psycopg
from psycopg import AsyncConnection
from sqlalchemy.exc import DBAPIError

from storage.postgres.engine import (
    PATIENCE,
    StoreUnavailable,
    connection_string,
    session_options,
    unavailable,
)

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")

# A connection whose server vanished without a word is given up after 5 + 3 x 2 seconds.
_KEEPALIVE: Mapping[str, Any] = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}


class _Pending(Generic[RequestT, AnswerT]):
    __slots__ = ("answer", "request")

    def __init__(self, request: RequestT, answer: asyncio.Future[AnswerT]) -> None:
        self.request = request
        self.answer = answer


class Batcher(Generic[RequestT, AnswerT]):
    """Carries out requests to the store: all that wait, together, on one connection.

    What arrives while a round is under way goes with the next one: under load the cost of a
    round is shared, and without load no request waits for another.
    """

    def __init__(
        self,
        url: str,
        carry_out: Callable[
            [AsyncConnection[Any], Sequence[RequestT]], Awaitable[Sequence[AnswerT]]
        ],
    ) -> None:
        """Makes a batcher that is not running yet.

        Args:
            url: The store.
            carry_out: Answers all requests of a round, in their order, on a connection in
                autocommit. Its exception is the answer to each request of the round; faults of
                the data alone are then found by trying each alone.
        """
        self._url = url
        self._carry_out = carry_out
        self._waiting: list[_Pending[RequestT, AnswerT]] = []
        self._arrival = asyncio.Event()
        self._connection: AsyncConnection[Any] | None = None
        self._closing = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """Runs the rounds; at the end everything that waits is carried out first."""
        rounds = asyncio.create_task(self._serve())
        try:
            yield self
        finally:
            self._closing = True
            self._arrival.set()
            await rounds
            await self._forget_connection()

    def submit(self, request: RequestT) -> "asyncio.Future[AnswerT]":
        """Returns the future answer to a request.

        Raises:
            StoreUnavailable: The batcher has ended.
        """
        if self._closing:
            raise StoreUnavailable("the service is stopping")
        answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Pending(request, answer))
        self._arrival.set()
        return answer

    async def _serve(self) -> None:
        while self._waiting or not self._closing:
            await self._arrival.wait()
            self._arrival.clear()
            waiting, self._waiting = self._waiting, []
            if waiting:
                await self._answer(waiting)

    async def _answer(self, waiting: Sequence[_Pending[RequestT, AnswerT]]) -> None:
        # Clients that gave up are served all the same: they may already have been told nothing.
        try:
            connection = await self._connected()
            answers = await self._carry_out(connection, [pending.request for pending in waiting])
        except psycopg.DataError as error:
            # Nothing that passed the API's checks should come here; no request may fail because
            # of another's data.
            if len(waiting) > 1:
                for pending in waiting:
                    await self._answer([pending])
            else:
                _fail(waiting, error)
        except (psycopg.Error, DBAPIError, OSError) as error:
            await self._forget_connection()
            failure = unavailable(getattr(error, "orig", error))
            failure.__cause__ = error
            _fail(waiting, failure)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the rounds
            await self._forget_connection()
            _fail(waiting, error)
        else:
            _settle(waiting, answers)

    async def _connected(self) -> AsyncConnection[Any]:
        if self._connection is None:
            self._connection = await AsyncConnection.connect(
                connection_string(self._url),
                autocommit=True,
                options=f"{session_options()} {PATIENCE}",
                connect_timeout=5,
                **_KEEPALIVE,
            )
        return self._connection

    async def _forget_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                await connection.close()


def _settle(waiting: Sequence[_Pending[Any, AnswerT]], answers: Sequence[AnswerT]) -> None:
    for pending, answer in zip(waiting, answers, strict=True):
        if not pending.answer.done():
            pending.answer.set_result(answer)


def _fail(waiting: Sequence[_Pending[Any, Any]], error: Exception) -> None:
    for pending in waiting:
        if not pending.answer.done():
            pending.answer.set_exception(error)
