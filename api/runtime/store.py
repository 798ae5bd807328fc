"""The API's store: a transaction a request, and the same error whenever it is away."""

from collections.abc import Callable
from typing import TypeVar

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine

from storage.postgres.engine import StoreUnavailable, unavailable

ResultT = TypeVar("ResultT")

# Errors that psycopg raises where SQLAlchemy does not wrap them.
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, OSError)


class Store:
    """Runs the store's functions, each in a transaction of its own."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

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
