"""The store that a command works on, wherever it comes from."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from own_postgres.server import EmbeddedPostgres

from cli.main import main
from cli.operations import store
from cli.operations.store import store_url
from cli.processes.dagster_home import POSTGRES_VARIABLE, dagster_environment, write_dagster_home
from storage.postgres.data_dir import running_url
from storage.postgres.engine import connection_string
from storage.schema.migrate import upgrade
from tests.processes.api_process import eventually
from tests.processes.server_folder import server_folder

pytestmark = pytest.mark.process


@pytest.fixture
def data_dir(monkeypatch) -> Iterator[Path]:
    monkeypatch.delenv("SERVICE_DATABASE_URL", raising=False)
    with server_folder() as folder:
        yield folder / "data"


@pytest.mark.nightly
def test_a_command_waits_while_another_sets_up_a_new_store(data_dir) -> None:
    with EmbeddedPostgres(data_dir) as server:
        command = [sys.executable, "-m", "cli", "project", "list", "--data-dir", str(data_dir)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as second:
            assert second.stdout is not None
            assert second.stderr is not None
            assert second.stderr.readline().startswith(b"The store is being set up; waiting")
            upgrade(server.url)
            assert second.stdout.read() == b"\n"
            assert second.stderr.read() == b""
        assert second.returncode == 0
        assert running_url(data_dir) == server.url


def test_a_store_that_nobody_sets_up_is_told_in_one_line(data_dir, monkeypatch) -> None:
    monkeypatch.setattr(store, "MIGRATION_SECONDS", 0.0)
    with EmbeddedPostgres(data_dir):
        answer = CliRunner().invoke(main, ["project", "list", "--data-dir", str(data_dir)])
    assert answer.exit_code == 1
    line = "Error: the store has no tables of deploy-reward yet: run `deploy-reward migrate`\n"
    assert answer.stderr == line


BORROWER = """
import sys
from pathlib import Path
import psycopg
from cli.operations.store import store_url
from storage.postgres.engine import connection_string
with store_url(Path(sys.argv[1])) as url:
    print("found", flush=True)
    sys.stdin.readline()
    with psycopg.connect(connection_string(url)) as connection:
        print(*connection.execute("SELECT 1").fetchone(), flush=True)
"""


def test_a_command_that_started_the_store_waits_for_one_that_found_it(data_dir) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BORROWER, str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as borrower:
        assert borrower.stdin is not None
        assert borrower.stdout is not None
        stdin = borrower.stdin
        with store_url(data_dir):
            assert borrower.stdout.readline() == "found\n"
            # Let go only while this thread is on its way out of its own store.
            main = threading.main_thread().ident
            assert main is not None
            leaving = threading.Thread(
                target=lambda: (eventually(lambda: _leaves(main)), stdin.close())
            )
            leaving.start()
        leaving.join()
        assert borrower.stdout.readline() == "1\n"
    assert borrower.returncode == 0
    assert running_url(data_dir) is None


def _leaves(thread: int) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code.co_name == "store_url":
            return True
        frame = frame.f_back
    return False


def test_dagster_accepts_its_settings_and_keeps_to_its_schema(data_dir, monkeypatch) -> None:
    from dagster import DagsterInstance  # noqa: PLC0415 (two seconds that only this test needs)

    with EmbeddedPostgres(data_dir) as server:
        home = write_dagster_home(data_dir)
        env = dagster_environment(server.url, home, data_dir, web_url="http://127.0.0.1:3000")
        monkeypatch.setenv(POSTGRES_VARIABLE, env[POSTGRES_VARIABLE])
        with DagsterInstance.from_config(str(home)) as instance:
            assert not instance.telemetry_enabled
            assert not instance.nux_enabled
            assert instance.run_monitoring_enabled
            assert instance.run_coordinator.dequeue_interval_seconds == 5
            assert instance.run_retries_enabled
            assert instance.get_runs() == []
        assert env["SERVICE_DAGSTER_URL"] == "http://127.0.0.1:3000"
        monkeypatch.setenv("SERVICE_DAGSTER_URL", "https://dagster.shop.example")
        env = dagster_environment(server.url, home, data_dir, web_url="http://127.0.0.1:3000")
        assert env["SERVICE_DAGSTER_URL"] == "https://dagster.shop.example"
        with psycopg.connect(connection_string(server.url)) as connection:
            schemas = connection.execute(
                "SELECT DISTINCT schemaname FROM pg_tables "
                "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
            ).fetchall()
    assert schemas == [("dagster",)]


def test_no_address_of_a_store_is_written_into_dagsters_settings(tmp_path) -> None:
    home = write_dagster_home(tmp_path)
    assert "postgresql" not in (home / "dagster.yaml").read_text()
