"""The API's store: a transaction a request, and the same error whenever it is away."""

import asyncio
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakValueDictionary

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine

from storage.postgres.engine import StoreUnavailable, unavailable

ResultT = TypeVar("ResultT")

# As long as a connection waits for a lock.
_TURN_SECONDS = 8.0
# Errors that psycopg raises where SQLAlchemy does not wrap them.
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, OSError)


class Store:
    """Runs the store's functions, each in a transaction of its own."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._turns = WeakValueDictionary[int, asyncio.Lock]()

    async def run_in_turn(self, project_id: int, work: Callable[[Connection], ResultT]) -> ResultT:
        """Returns as `run` does, after the project's earlier calls.

        Work that locks the project waits here: it would hold a connection that others need.

        Raises:
            StoreUnavailable: As of `run`; or too many calls of the project are before this.
        """
        turn = self._turns.setdefault(project_id, asyncio.Lock())
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await turn.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("too many changes of this project wait") from error
        try:
            return await self.run(work)
        finally:
            turn.release()

    async def run(self, work: Callable[[Connection], ResultT]) -> ResultT:
        """Returns what `work` returns, once its transaction is committed to disk.

        Raises:
            StoreUnavailable: The store cannot be reached or written, or broke off.
        """
        try:
            async with self._engine.begin() as connection:
                return await connection.run_sync(work)
        except (OperationalError, InterfaceError, PoolTimeoutError, *_AWAY) as error:
            raise unavailable(getattr(error, "orig", error)) from error
        except DBAPIError as error:
            # A standby just after a failover; a store not yet migrated lacks tables.
            if isinstance(error.orig, psycopg.errors.ReadOnlySqlTransaction):
                raise unavailable(error.orig) from error
            if error.connection_invalidated or isinstance(
                error.orig, psycopg.InternalError | psycopg.errors.UndefinedTable
            ):
                raise StoreUnavailable("the store is not ready") from error
            raise
