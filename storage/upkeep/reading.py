"""A reading of the log apart from the served tables: as of an earlier time, or from nothing."""

import contextlib
from collections.abc import Generator
from typing import Literal

import psycopg
from sqlalchemy import Connection, Engine, Table, text

from storage.schema.clock import claim_rebuild
from storage.schema.tables import DERIVED, self_checks

# Whole days are read at once: what is sorted or hashed stays in memory, and of tables that last for
# a statement or two a small sample is enough. The server ends the statement of a process that was
# killed within a second, and with it the session.
SETTINGS = (
    "work_mem = '128MB'",
    "default_statistics_target = 10",
    "client_connection_check_interval = '1s'",
)


@contextlib.contextmanager
def separate_reading(engine: Engine, *, swaps: bool = False) -> Generator[Connection]:
    """Yields a connection on which the derived tables are empty, temporary and its own.

    Temporary tables come first in every search path: the very statements that fill the served
    tables fill these instead. All is rolled back at the end.

    Args:
        swaps: Whether all is committed instead: rows are swapped in, as by a rebuild, and where
            another transaction wrote any of them meanwhile, PostgreSQL refuses the commit.
    """
    with engine.connect() as connection, unprepared(connection):
        if swaps:
            # It is closed at the end rather than used again: its lock ends with the session.
            connection.detach()
            with connection.begin():
                claim_rebuild(connection)
        with _separate(connection, commits=swaps):
            yield connection


@contextlib.contextmanager
def _separate(connection: Connection, *, commits: bool) -> Generator[None]:
    with connection.begin() as transaction:
        # The reading sees a single state of the log: of whoever is forgotten meanwhile it would
        # else read both events and tombstones.
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        # It loads pyarrow, which a tick does without.
        from storage.lake.reader import keep_log  # noqa: PLC0415

        keep_log(connection)
        for setting in SETTINGS:
            connection.execute(text(f"SET LOCAL {setting}"))
        create_temporary_tables(connection, on_commit="DROP", keys=True)
        yield
        if not commits:
            transaction.rollback()


def create_temporary_tables(
    connection: Connection, *, on_commit: Literal["DROP", "PRESERVE ROWS"], keys: bool
) -> None:
    """Creates an empty temporary table of the name of each derived table, in front of it.

    Args:
        on_commit: What becomes of them at the end of a transaction.
        keys: Whether each has its primary key; many rows are copied sooner where it comes after.
    """
    # A recomputation waits for no day's repair: to it no day is unequal.
    for table in (*DERIVED, self_checks):
        # Their other indexes help to find a few rows among many: here all are read at once.
        key = f", {primary_key(table)}" if keys else ""
        connection.execute(
            text(
                f"CREATE TEMP TABLE {table.name} (LIKE {table.name} INCLUDING DEFAULTS{key})"
                f" ON COMMIT {on_commit}"
            )
        )


def primary_key(table: Table) -> str:
    """Returns the primary key of a table as SQL says it."""
    return f"PRIMARY KEY ({', '.join(column.name for column in table.primary_key)})"


@contextlib.contextmanager
def unprepared(connection: Connection) -> Generator[None]:
    """Keeps a connection from statements that it prepared before.

    Such a statement goes on reading the tables that it was prepared for, whatever temporary ones
    come before them now.
    """
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise TypeError(f"the store is read through {type(driver)}: psycopg is expected")
    threshold = driver.prepare_threshold
    driver.prepare_threshold = None
    try:
        yield
    finally:
        driver.prepare_threshold = threshold
