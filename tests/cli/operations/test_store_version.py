"""A store of another version than the code: refused in a line by whatever opens it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import psycopg
import pytest
from click.testing import Result
from sqlalchemy import make_url

from cli.main import COMMANDS
from storage.postgres.engine import connection_string
from storage.schema.migrate import StoreVersionError
from tests.processes.code_server import evaluate
from tests.processes.server_folder import migrated_server, server_folder

NEWER = "the store is of version 9999, newer than this deploy-reward, which makes 0"
OLDER = "the store is of version 0039, older than this deploy-reward, which makes 0"
CURES = {
    NEWER: "install the version that made it",
    OLDER: "start anew with an empty database, or in another folder by --data-dir",
}
EMPTY = "the store has no tables of deploy-reward yet: run `deploy-reward migrate`"

EXPERIMENT = f"exp_{'a' * 20}"
# A command of each kind that opens a store; what it is about need not be there.
OPENING = {
    "project": ["list"],
    "keys": ["list", "--project", "shop"],
    "settings": ["show", "--project", "shop"],
    "dashboard": ["--owner", "--project", "shop"],
    "import": ["events.ndjson", "--project", "shop"],
    "evaluate": [],
    "deploy": ["4f2a9c1", "--project", "shop"],
    "withdraw": [f"dep_{'a' * 20}", "--project", "shop"],
    "register": ["--project", "shop", "--metric", "signup"],
    "list": ["--project", "shop"],
    "place": ["--project", "shop", "--flag", "cart=true"],
    "wait": [EXPERIMENT],
    "explain": [EXPERIMENT],
    "doctor": ["--project", "shop"],
    "portfolio": ["--project", "shop"],
    "close": [EXPERIMENT],
    "freeze": ["--reason", "a release"],
    "unfreeze": [],
    "webhooks": ["list"],
    "audit": [EXPERIMENT],
    "audit-trail": ["--project", "shop"],
    "forget": ["--project", "shop", "--session", "s"],
    "rebuild": [],
    "dagster": ["--port", "0"],
}
# The servers have a test of their own; the others open no store.
OTHERS = {"up", "api", "migrate", "plan", "simulate", "mcp", "outcomes", "metrics", "verify"}


def mark(url: str, version: str) -> None:
    with psycopg.connect(connection_string(url)) as connection:
        connection.execute("UPDATE deploy_reward.alembic_version SET version_num = %s", [version])


@pytest.fixture
def run(store, command, tmp_path, monkeypatch) -> Callable[..., Result]:
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    monkeypatch.setenv("SERVICE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events.ndjson").write_text("")
    return command


def test_every_command_is_here() -> None:
    assert OPENING.keys() | OTHERS == COMMANDS.keys()


@pytest.mark.parametrize(("version", "line"), [("9999", NEWER), ("0039", OLDER)])
def test_no_command_touches_a_store_of_another_version(store, run, version, line) -> None:
    mark(store.url, version)
    for name, words in {**OPENING, "migrate": []}.items():
        ended = run(name, *words)
        assert (ended.exit_code, ended.stdout) == (1, ""), name
        assert ended.stderr.startswith(f"Error: {line}"), name
        assert ended.stderr.endswith(f"{CURES[line]}\n"), name
        assert ended.stderr.count("\n") == 1, name


def test_a_tick_refuses_a_store_of_another_version(store) -> None:
    for version, line in (("9999", NEWER), ("0039", OLDER)):
        mark(store.url, version)
        with pytest.raises(dg.DagsterResourceFunctionError) as refused:
            evaluate(store.url)
        assert isinstance(refused.value.__cause__, StoreVersionError)
        assert str(refused.value.__cause__).startswith(line)


def test_a_store_without_tables_says_migrate(postgres_url, run, monkeypatch) -> None:
    empty = make_url(postgres_url).set(database="postgres")
    monkeypatch.setenv("SERVICE_DATABASE_URL", empty.render_as_string(hide_password=False))
    ended = run("project", "list")
    assert (ended.exit_code, ended.stderr) == (1, f"Error: {EMPTY}\n")


# --- Servers ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def safe_url() -> Iterator[str]:
    """A store that syncs to disk, as the servers ask of it."""
    with server_folder() as folder, migrated_server(folder) as postgres:
        yield postgres.url


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "version", "reason"),
    [
        (["api", "--port", "0"], "9999", NEWER),
        (["up", "--api-port", "0", "--dagster-port", "0"], "0039", OLDER),
    ],
    ids=["newer", "older"],
)
def test_no_server_starts_on_a_store_of_another_version(
    safe_url, words, version, reason, tmp_path
) -> None:
    mark(safe_url, version)
    environment: dict[str, Any] = {
        **os.environ,
        "SERVICE_DATABASE_URL": safe_url,
        "SERVICE_DATA_DIR": str(tmp_path),
        "SERVICE_SECRET": "a secret of the tests, long enough",
    }
    ended = subprocess.run(
        [sys.executable, "-m", "cli", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode != 0
    (line,) = ended.stderr.splitlines()
    assert reason in line
