"""A connection that does at once what waits for it: group commit, and group reads."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, Self, TypeVar

import psycopg
from psycopg import Connection

from storage.engine import PATIENCE, StoreUnavailable, connection_string, session_options

AskT = TypeVar("AskT")
AnswerT = TypeVar("AnswerT")

# Keeps one statement, and one answer's delay, bounded; more than any server has connections.
_MOST_TOGETHER = 4096
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
    round is shared, and without load nobody waits for company. The rounds run in a thread, where
    the driver waits without Python's help; the event loop meanwhile reads the next requests.
    """

    def __init__(
        self,
        url: str,
        carry_out: Callable[[Connection[Any], Sequence[AskT]], Sequence[AnswerT]],
        *,
        name: str,
    ) -> None:
        """Makes a group that is not running yet.

        Args:
            url: The store.
            carry_out: Answers all asks of a round, in their order, on a connection in
                autocommit. What it raises is the answer to each ask of the round; faults of
                the data alone are then found by asking one by one.
            name: Of the thread.
        """
        self._url = url
        self._carry_out = carry_out
        self._name = name
        self._asked: SimpleQueue[_Waiting[AskT, AnswerT] | None] = SimpleQueue()
        self._connection: Connection[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """Runs the rounds; at the end everything that waits is carried out first."""
        self._loop = asyncio.get_running_loop()
        thread = Thread(target=self._serve, name=self._name)
        thread.start()
        try:
            yield self
        finally:
            self._closing = True
            self._asked.put(None)
            await asyncio.to_thread(thread.join)

    def ask(self, ask: AskT) -> "asyncio.Future[AnswerT]":
        """Returns the future answer to an ask.

        Raises:
            StoreUnavailable: The group has ended.
        """
        if self._closing or self._loop is None:
            raise StoreUnavailable("the service is stopping")
        answer: asyncio.Future[AnswerT] = self._loop.create_future()
        self._asked.put(_Waiting(ask, answer))
        return answer

    def _serve(self) -> None:
        going_on = True
        while going_on:
            waiting, going_on = self._next_round()
            if waiting:
                self._answer(waiting)
        self._forget_connection()

    def _next_round(self) -> tuple[list[_Waiting[AskT, AnswerT]], bool]:
        """Returns what waits, once something does, and whether more can come."""
        waiting: list[_Waiting[AskT, AnswerT]] = []
        with contextlib.suppress(Empty):
            while len(waiting) < _MOST_TOGETHER:
                one = self._asked.get() if not waiting else self._asked.get_nowait()
                if one is None:
                    return waiting, False
                waiting.append(one)
        return waiting, True

    def _answer(self, waiting: Sequence[_Waiting[AskT, AnswerT]]) -> None:
        # Clients that gave up are served all the same: they may already have been told nothing.
        try:
            answers = self._carry_out(self._connected(), [one.ask for one in waiting])
        except psycopg.DataError as error:
            # Nothing that passed the API's checks should come here; no request may fail because
            # of another's data.
            if len(waiting) > 1:
                for one in waiting:
                    self._answer([one])
            else:
                self._fail(waiting, error)
        except (psycopg.Error, OSError) as error:
            self._forget_connection()
            unavailable = StoreUnavailable("the store cannot be reached")
            unavailable.__cause__ = error
            self._fail(waiting, unavailable)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the rounds
            self._forget_connection()
            self._fail(waiting, error)
        else:
            self._tell(_settle, waiting, answers)

    def _fail(self, waiting: Sequence[_Waiting[AskT, AnswerT]], error: Exception) -> None:
        self._tell(_fail, waiting, error)

    def _tell(self, told: Callable[..., None], *what: object) -> None:
        assert self._loop is not None  # noqa: S101 - the thread starts after the loop is known
        # Only a process that is being torn down has closed its loop before its groups.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(told, *what)

    def _connected(self) -> Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(
                connection_string(self._url),
                autocommit=True,
                options=f"{session_options()} {PATIENCE}",
                connect_timeout=5,
                **_KEEPALIVE,
            )
        return self._connection

    def _forget_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                connection.close()


def _settle(waiting: Sequence[_Waiting[Any, AnswerT]], answers: Sequence[AnswerT]) -> None:
    for one, answer in zip(waiting, answers, strict=True):
        if not one.answer.done():
            one.answer.set_result(answer)


def _fail(waiting: Sequence[_Waiting[Any, Any]], error: Exception) -> None:
    for one in waiting:
        if not one.answer.done():
            one.answer.set_exception(error)
