"""The store that a command works on: the named store, a running service's, or its own."""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click
from own_postgres.server import EmbeddedPostgres, make_data_dir
from sqlalchemy import Connection, Engine

from storage.postgres.data_dir import running_url
from storage.postgres.engine import opened_engine
from storage.schema.migrate import EmptyStoreError, refuse_other_version, upgrade
from storage.tenants.projects import find_project

# How long a command waits for the process that started the store to migrate it.
MIGRATION_SECONDS = 20.0
TURN_SECONDS = 0.1


@contextmanager
def store_url(data_dir: Path) -> Generator[str]:
    """The SQLAlchemy address of a store of this version, for as long as the context lasts.

    Args:
        data_dir: the service's data directory; made when it does not stand.

    Raises:
        own_postgres.server.EmbeddedPostgresError: no server runs, and none can be started.
        storage.schema.migrate.StoreVersionError: the store is of another version.
    """
    with any_store_url(data_dir) as url:
        _wait_for_this_version(url)
        yield url


@contextmanager
def any_store_url(data_dir: Path) -> Generator[str]:
    """The address of the store that a command works on, of whatever version it is.

    `SERVICE_DATABASE_URL`, else the server that runs on the data directory, else the embedded
    PostgreSQL, started for this command, brought to this version, and stopped at its end. A
    server started by a command waits at its end for the commands that use it.

    Args:
        data_dir: the service's data directory; made when it does not stand.
    """
    if named := os.environ.get("SERVICE_DATABASE_URL"):
        yield named
        return
    make_data_dir(data_dir)
    with (data_dir / "commands.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if url := running_url(data_dir):
            yield url
            return
        with EmbeddedPostgres(data_dir) as postgres:
            upgrade(postgres.url)
            try:
                yield postgres.url
            finally:
                if postgres.process is not None:
                    # Unlocked first: two commands that both wished to end would wait for ever.
                    fcntl.flock(lock, fcntl.LOCK_UN)
                    fcntl.flock(lock, fcntl.LOCK_EX)


def _wait_for_this_version(url: str) -> None:
    """Return when the store is of this version; its server may be about to migrate it."""
    deadline = time.monotonic() + MIGRATION_SECONDS
    waits = False
    with opened_engine(url) as engine:
        while True:
            try:
                with engine.connect() as connection:
                    return refuse_other_version(connection)
            except EmptyStoreError:
                # A named store is migrated by a command, whose end its owner sees.
                if time.monotonic() > deadline or "SERVICE_DATABASE_URL" in os.environ:
                    raise
            if not waits:
                click.echo("The store is being set up; waiting until it is ready.", err=True)
                waits = True
            time.sleep(TURN_SECONDS)


@contextmanager
def store_engine(data_dir: Path) -> Generator[Engine]:
    """Connections to the store that a command works on, for as long as the context lasts."""
    with store_url(data_dir) as url, opened_engine(url) as engine:
        yield engine


@contextmanager
def store_transaction(data_dir: Path) -> Generator[Connection]:
    """A transaction on the store that a command works on, committed at the end of the context."""
    with store_engine(data_dir) as engine, engine.begin() as connection:
        yield connection


@contextmanager
def project_transaction(data_dir: Path, project: str) -> Generator[tuple[Connection, int]]:
    """Such a transaction, and the number of a project that is named by its name or number."""
    with store_transaction(data_dir) as connection:
        yield connection, find_project(connection, project).project_id
