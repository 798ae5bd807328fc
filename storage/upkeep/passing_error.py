"""Passing errors: of a connection, server, lake or engine, which a later attempt may not meet."""

import psycopg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from storage.log.file_errors import LakeError, WrongFileError, WrongLakeError
from storage.pipeline.engines.engine import EngineError, EngineMemoryError
from storage.postgres.engine import StoreUnavailable

# Beside connections that were lost or could not be made: the server starts, stops or has no place
# left; two transactions met each other; a lock was not to be had in time.
_STATES = ("08", "57P", "53300", "53100", "40001", "40P01", "55P03")


def is_passing(error: Exception) -> bool:
    """Tells whether an error says nothing of the data that was being worked on."""
    if isinstance(error, DBAPIError):
        state = error.orig.sqlstate if isinstance(error.orig, psycopg.Error) else None
        lost = isinstance(error, OperationalError | InterfaceError) and state is None
        return lost or error.connection_invalidated or (state or "").startswith(_STATES)
    if isinstance(error, EngineMemoryError | WrongFileError | WrongLakeError):
        return False
    return isinstance(error, EngineError | LakeError | StoreUnavailable | PoolTimeoutError)


def is_timeout(error: Exception) -> bool:
    """Tells whether a statement took longer than its limit."""
    return isinstance(error, DBAPIError) and isinstance(error.orig, psycopg.errors.QueryCanceled)
