"""A reading of the log apart from the served tables: as of an earlier time, or from nothing."""

import contextlib
from collections.abc import Callable, Generator

import psycopg
from sqlalchemy import Connection, Engine, text

from storage.schema.annex_tables import DERIVED
from storage.schema.tables import self_checks

# Whole days are read at once: what is sorted or hashed stays in memory, and of tables that last for
# a statement or two a small sample is enough. The server ends the statement of a process that was
# killed within a second, and with it the session.
_SETTINGS = (
    "work_mem = '128MB'",
    "default_statistics_target = 10",
    "client_connection_check_interval = '1s'",
)

# Any number that no other application in the same database uses.
REBUILD_LOCK = 7_246_012


@contextlib.contextmanager
def separate_reading(engine: Engine, *, swaps: bool = False) -> Generator[Connection]:
    """Yields a connection on which the derived tables are empty, temporary and its own.

    Temporary tables come first in every search path: the very statements that fill the served
    tables fill these instead. All is rolled back at the end.

    Args:
        swaps: Whether all is committed instead: rows are swapped in, and where another transaction
            wrote any of them meanwhile, PostgreSQL refuses the commit.
    """
    with (
        rebuilding(engine) if swaps else _connected(engine) as connection,
        separated(connection, commits=swaps),
    ):
        yield connection


@contextlib.contextmanager
def rebuilding(
    engine: Engine, *, waiting: Callable[[], None] = lambda: None
) -> Generator[Connection]:
    """Yields a connection that alone rebuilds for as long as it lasts; nobody is erased meanwhile.

    Args:
        waiting: Called where another rebuild must end first.
    """
    with _connected(engine) as connection:
        # It is closed at the end rather than used again: its lock ends with the session.
        connection.detach()
        with connection.begin():
            if is_rebuilding(connection):
                waiting()
        with connection.begin():
            _claim_rebuild(connection)
        yield connection


def _claim_rebuild(connection: Connection) -> None:
    """Makes this the only session that rebuilds, until it ends; no person is erased meanwhile.

    An erasure could not find the copies of a person's rows that a rebuild has read.
    """
    connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": REBUILD_LOCK})


def await_rebuild(connection: Connection) -> None:
    """Waits for the rebuild under way, if any; none begins before this transaction ends."""
    connection.execute(text("SELECT pg_advisory_xact_lock_shared(:key)"), {"key": REBUILD_LOCK})


def is_rebuilding(connection: Connection) -> bool:
    """Returns whether a rebuild is under way; if not, none begins before this transaction ends."""
    shared = text("SELECT pg_try_advisory_xact_lock_shared(:key)")
    return not connection.execute(shared, {"key": REBUILD_LOCK}).scalar_one()


@contextlib.contextmanager
def separated(connection: Connection, *, commits: bool) -> Generator[None]:
    """Makes a separate reading of a connection, and commits or undoes all of it at the end."""
    with connection.begin() as transaction:
        # The reading sees a single state of the log: of whoever is forgotten meanwhile it would
        # else read both events and tombstones.
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        # It loads pyarrow, which a tick does without.
        from storage.lake.reader import keep_log  # noqa: PLC0415

        keep_log(connection)
        for setting in _SETTINGS:
            connection.execute(text(f"SET LOCAL {setting}"))
        _create_temporary_tables(connection)
        yield
        if not commits:
            transaction.rollback()


def _create_temporary_tables(connection: Connection) -> None:
    """Creates an empty temporary table of the name of each derived table, in front of it."""
    # A recomputation waits for no day's repair: to it no day is unequal.
    for table in (*DERIVED, self_checks):
        # Their other indexes help to find a few rows among many: here all are read at once.
        key = ", ".join(column.name for column in table.primary_key)
        connection.execute(
            text(
                f"CREATE TEMP TABLE {table.name} (LIKE {table.name} INCLUDING DEFAULTS,"
                f" PRIMARY KEY ({key})) ON COMMIT DROP"
            )
        )


@contextlib.contextmanager
def _connected(engine: Engine) -> Generator[Connection]:
    """Yields a connection that prepares no statement, nor uses a statement that it prepared before.

    Such a statement goes on reading the tables that it was prepared for, whatever temporary ones
    come before them now.
    """
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        if not isinstance(driver, psycopg.Connection):
            raise TypeError(f"the store is read through {type(driver)}: psycopg is expected")
        threshold = driver.prepare_threshold
        driver.prepare_threshold = None
        try:
            yield connection
        finally:
            driver.prepare_threshold = threshold
