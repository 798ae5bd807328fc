"""Batches concurrent requests onto a connection: group commit, and group reads."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Generic, Self, TypeAlias, TypeVar

import psycopg
from sqlalchemy.exc import DBAPIError

from storage.postgres.engine import StoreUnavailable, unavailable
from storage.postgres.exchange import Exchange

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")


# A request that waits, and its future answer.
_Pending: TypeAlias = tuple[RequestT, asyncio.Future[AnswerT]]


class Batcher(Generic[RequestT, AnswerT]):
    """Carries out requests to the store: all that wait, together, in a round.

    What arrives while a round is under way goes with the next round: under load the cost of a
    round is shared, and without load no request waits for another. A large round costs its rows
    more than itself: then the next round need not wait for its end, and has another connection.
    """

    def __init__(
        self,
        url: str,
        carry_out: Callable[[Exchange, Sequence[RequestT]], Awaitable[Sequence[AnswerT]]],
        *,
        connections: int = 1,
        large: int = 0,
    ) -> None:
        """Makes a batcher that is not running yet.

        Args:
            carry_out: Answers all requests of a round, in their order. Its exception is the answer
                to each request of the round; faults of the data alone are then isolated by trying
                each alone.
        """
        self._url = url
        self._carry_out = carry_out
        self._connections, self._large = connections, large
        self._waiting: list[_Pending[RequestT, AnswerT]] = []
        self._size = 0
        self._free = [Exchange(url) for _ in range(connections)]
        self._rounds: set[asyncio.Task[None]] = set()
        self._closing = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """Lets rounds begin; at the end everything that waits is carried out first."""
        try:
            yield self
        finally:
            self._closing = True
            while self._rounds:
                await asyncio.wait(self._rounds)
            for exchange in self._free:
                await exchange.close()

    def submit(self, request: RequestT, *, size: int = 0) -> "asyncio.Future[AnswerT]":
        """Returns the future answer to a request."""
        if self._closing:
            raise StoreUnavailable("the service is stopping")
        answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        self._size += size
        is_idle = len(self._free) == self._connections
        if is_idle or (self._free and self._size >= self._large):
            # A task begins once what is ready now has run: more requests may come with it.
            rounds = asyncio.create_task(self._serve(self._free.pop()))
            self._rounds.add(rounds)
            rounds.add_done_callback(self._rounds.discard)
        return answer

    async def _serve(self, exchange: Exchange) -> None:
        """Carries out rounds over a connection for as long as requests wait."""
        while self._waiting:
            waiting, self._waiting, self._size = self._waiting, [], 0
            await self._answer(exchange, waiting)
        self._free.append(exchange)

    async def _answer(
        self, exchange: Exchange, waiting: Sequence[_Pending[RequestT, AnswerT]]
    ) -> None:
        # Clients that gave up are served all the same: they may have no answer yet.
        try:
            answers = await self._carry_out(exchange, [request for request, _ in waiting])
        except psycopg.DataError as error:
            # Nothing that passed the API's checks should come here; no request may fail because
            # of another's data.
            if len(waiting) > 1:
                for pending in waiting:
                    await self._answer(exchange, [pending])
            else:
                _fail(waiting, error)
        except (psycopg.Error, DBAPIError, OSError) as error:
            await exchange.close()
            failure = unavailable(getattr(error, "orig", error))
            failure.__cause__ = error
            _fail(waiting, failure)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the rounds
            await exchange.close()
            _fail(waiting, error)
        else:
            _settle(waiting, answers)


def _settle(waiting: Sequence[_Pending[Any, AnswerT]], answers: Sequence[AnswerT]) -> None:
    for (_, future), answer in zip(waiting, answers, strict=True):
        if not future.done():
            future.set_result(answer)


def _fail(waiting: Sequence[_Pending[Any, Any]], error: Exception) -> None:
    for _, future in waiting:
        if not future.done():
            future.set_exception(error)
