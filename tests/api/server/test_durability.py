"""The server's word is worth what its store's is: a store that may forget is refused."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy import make_url

from storage.postgres.durability import WeakStoreError, refuse_weak_store, weak_settings
from storage.postgres.engine import connection_string
from tests.processes.api_process import eventually

SERVE = [sys.executable, "-c", "from api.server.process import serve; serve(port=0, workers=%d)"]
CLI = [sys.executable, "-m", "cli"]


def administer(url: str, statement: str) -> None:
    with psycopg.connect(connection_string(url), autocommit=True) as connection:
        connection.execute(statement.encode())


@contextmanager
def off(url: str, name: str) -> Iterator[None]:
    if name == "synchronous_commit":
        # A database's own, which no other test uses.
        database = make_url(url).database
        where = f'DATABASE "{database}"'
    else:
        where = "SYSTEM"
    administer(url, f"ALTER {where} SET {name} = off")
    administer(url, "SELECT pg_reload_conf()")
    try:
        yield
    finally:
        administer(url, f"ALTER {where} RESET {name}")
        administer(url, "SELECT pg_reload_conf()")


def eventually_equal(ask: Callable[[], list[str]], expected: list[str]) -> None:
    # A server reads its settings anew a moment after it was asked to.
    for _ in range(1000):
        if ask() == expected:
            return
    assert ask() == expected


def test_a_store_as_it_comes_is_safe(safe_postgres) -> None:
    assert weak_settings(safe_postgres.url) == []
    refuse_weak_store(safe_postgres.url)


@pytest.mark.parametrize("name", ["full_page_writes", "synchronous_commit"])
def test_each_setting_that_data_rest_on_must_be_on(store, name) -> None:
    # The tests' own server runs without fsync.
    with off(store.url, name):
        eventually_equal(lambda: list(weak_settings(store.url)), sorted(["fsync", name]))
        with pytest.raises(WeakStoreError, match=f"has fsync and {name} off"):
            refuse_weak_store(store.url)
    with pytest.raises(WeakStoreError, match="has fsync off"):
        refuse_weak_store(store.url)


@pytest.mark.process
@pytest.mark.parametrize(
    "command",
    [
        [*SERVE[:-1], SERVE[-1] % 2],
        [*CLI, "api", "--port", "0"],
        [*CLI, "up", "--api-port", "0", "--dagster-port", "0"],
    ],
    ids=["serve", "api", "up"],
)
def test_a_weak_store_is_refused_in_one_line(store, command, tmp_path) -> None:
    environment = {
        **os.environ,
        "SERVICE_DATABASE_URL": store.url,
        "SERVICE_DATA_DIR": str(tmp_path),
        "SERVICE_SECRET": "a secret of the tests, long enough",
    }
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode != 0
    (line,) = ended.stderr.splitlines()
    assert "the store has fsync off and may lose what it has acknowledged" in line


@pytest.mark.process
def test_a_store_that_comes_back_weak_ends_the_server(store, tmp_path) -> None:
    # Nobody listens in an empty folder; later it is the way to the tests' own server.
    away = tmp_path / "socket"
    url = make_url(store.url)
    moved = url.set(query={**url.query, "host": str(away)})
    environment = {
        **os.environ,
        "SERVICE_DATABASE_URL": moved.render_as_string(hide_password=False),
        "SERVICE_SECRET": "a secret of the tests, long enough",
    }
    log = tmp_path / "api.log"
    code = "from api.server.process import serve; serve(port=0)"
    with log.open("wb") as output:
        server = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=output)
    try:
        eventually(lambda: "cannot be reached" in log.read_text())
        away.symlink_to(str(url.query["host"]))
        assert server.wait(timeout=60) == 3
    finally:
        server.kill()
        server.wait()
    assert "the store has fsync off" in log.read_text()
