"""A connection that does at once what waits for it: group commit, and group reads."""

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

AskT = TypeVar("AskT")
AnswerT = TypeVar("AnswerT")

# A connection whose server vanished without a word is given up after 5 + 3 x 2 seconds.
_KEEPALIVE: Mapping[str, Any] = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}


class _Waiting(Generic[AskT, AnswerT]):
    __slots__ = ("answer", "ask")

    def __init__(self, ask: AskT, answer: asyncio.Future[AnswerT]) -> None:
        self.ask = ask
        self.answer = answer


class Group(Generic[AskT, AnswerT]):
    """Carries out what requests ask of the store: all that wait, together, on one connection.

    What arrives while a round is under way goes with the next one: under load the cost of a
    round is shared, and without load nobody waits for company.
    """

    def __init__(
        self,
        url: str,
        carry_out: Callable[[AsyncConnection[Any], Sequence[AskT]], Awaitable[Sequence[AnswerT]]],
    ) -> None:
        """Makes a group that is not running yet.

        Args:
            url: The store.
            carry_out: Answers all asks of a round, in their order, on a connection in
                autocommit. Its exception is the answer to each request of the round; faults of
                the data alone are then found by asking one by one.
        """
        self._url = url
        self._carry_out = carry_out
        self._waiting: list[_Waiting[AskT, AnswerT]] = []
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

    def ask(self, ask: AskT) -> "asyncio.Future[AnswerT]":
        """Returns the future answer to an ask.

        Raises:
            StoreUnavailable: The group has ended.
        """
        if self._closing:
            raise StoreUnavailable("the service is stopping")
        answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(ask, answer))
        self._arrival.set()
        return answer

    async def _serve(self) -> None:
        while self._waiting or not self._closing:
            await self._arrival.wait()
            self._arrival.clear()
            waiting, self._waiting = self._waiting, []
            if waiting:
                await self._answer(waiting)

    async def _answer(self, waiting: Sequence[_Waiting[AskT, AnswerT]]) -> None:
        # Clients that gave up are served all the same: they may already have been told nothing.
        try:
            connection = await self._connected()
            answers = await self._carry_out(connection, [request.ask for request in waiting])
        except psycopg.DataError as error:
            # Nothing that passed the API's checks should come here; no request may fail because
            # of another's data.
            if len(waiting) > 1:
                for request in waiting:
                    await self._answer([request])
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


def _settle(waiting: Sequence[_Waiting[Any, AnswerT]], answers: Sequence[AnswerT]) -> None:
    for request, answer in zip(waiting, answers, strict=True):
        if not request.answer.done():
            request.answer.set_result(answer)


def _fail(waiting: Sequence[_Waiting[Any, Any]], error: Exception) -> None:
    for request in waiting:
        if not request.answer.done():
            request.answer.set_exception(error)
