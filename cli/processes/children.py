"""The processes that make up the service, as its supervisor starts, asks and stops them."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from own_postgres.child_process import fresh_log, spawn
from own_postgres.server import EmbeddedPostgres, EmbeddedPostgresError

from cli.processes.dagster_home import LOCATION
from cli.processes.supervisor import Child

DEFINITIONS = "orchestration.definitions"
THIS_PYTHON = "--use-python-environment-entry-point"  # not whichever `dagster` the path finds

# Nobody can send an event while these are away: more than a loop costs that starts them in vain.
API_BACKOFF_SECONDS = 2.0
# It takes half a second more to accept connections.
STORE_BACKOFF_SECONDS = 1.0

# It answers what it was asked before it ends; by itself it takes no longer than this.
API_STOP_SECONDS = 10.0

# Last started, first stopped; within a stage, together.
_STORE, _SERVERS, _DAGSTER = range(3)


def free_port() -> int:
    """A port on 127.0.0.1 that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def taken(host: str, port: int) -> bool:
    """Whether another process listens there already, or we may not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            return False
    except OSError:
        return True


def reachable(host: str) -> str:
    """The address under which this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (read, not bound)


def compiled_once(env: Mapping[str, str], data_dir: Path) -> Mapping[str, str]:
    """An environment in which Python keeps compiled modules: here, where it may not beside them.

    Images often forbid it, and who installs may be another user. Each start would compile all that
    it imports, which is half of the time until the API serves.
    """
    may_keep = os.access(sysconfig.get_path("purelib"), os.W_OK)
    if "PYTHONPYCACHEPREFIX" in env or (may_keep and "PYTHONDONTWRITEBYTECODE" not in env):
        return env
    kept = {name: text for name, text in env.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(data_dir / "bytecode")}


@dataclass(frozen=True, kw_only=True)
class Servers:
    """The servers beside the store, which share a data directory and an environment."""

    data_dir: Path
    env: Mapping[str, str]
    workspace: Path

    def api(self, *, host: str, port: int, workers: int) -> Child:
        """The REST API: `deploy-reward api` as a process of its own, with workers below it."""
        where = ["--host", host, "--port", str(port), "--data-dir", str(self.data_dir)]
        return self._child(
            "API",
            ["cli", "api", *where, "--workers", str(workers)],
            log="api",
            stage=_SERVERS,
            ready=lambda: answers(reachable(host), port, "/readyz"),
            stop_seconds=API_STOP_SECONDS,
            longest_backoff_seconds=API_BACKOFF_SECONDS,
        )

    def code_server(self, *, port: int) -> Child:
        """The only process that holds our definitions, for Dagster's daemon and web server.

        `dagster code-server start` would put another before it, which can load changed code: our
        code changes with a new start.
        """
        where = ["--host", "127.0.0.1", "--port", str(port), "--location-name", LOCATION]
        return self._child(
            "Dagster code server",
            ["dagster", "api", "grpc", "-m", DEFINITIONS, *where, THIS_PYTHON],
            log="dagster-code-server",
            stage=_SERVERS,
            ready=lambda: _listens("127.0.0.1", port),
            # Where partitions are to begin with another day (`deploy_reward_first_day`).
            ends_itself=True,
        )

    def daemon(self) -> Child:
        """Dagster's daemon: schedules, the run queue, run monitoring."""
        return self._child(
            "Dagster daemon",
            ["orchestration.daemon", "run", "-w", str(self.workspace)],
            log="dagster-daemon",
            stage=_DAGSTER,
        )

    def web_server(self, *, port: int) -> Child:
        """Dagster's web server, which has no login and so never leaves 127.0.0.1.

        Behind our guard: it answers other sites' pages otherwise.
        """
        where = ["-h", "127.0.0.1", "-p", str(port), "-w", str(self.workspace)]
        return self._child(
            "Dagster web server",
            ["orchestration.web_server", *where],
            log="dagster-webserver",
            stage=_DAGSTER,
            ready=lambda: _has_loaded(port),
        )

    def _child(
        self,
        name: str,
        module: Sequence[str],
        *,
        log: str,
        stage: int,
        ready: Callable[[], bool] = lambda: True,
        ends_itself: bool = False,
        stop_seconds: float = Child.stop_seconds,
        longest_backoff_seconds: float = Child.longest_backoff_seconds,
    ) -> Child:
        path = fresh_log(self.data_dir / "logs" / f"{log}.log")
        command, env = [sys.executable, "-m", *module], compiled_once(self.env, self.data_dir)
        return Child(
            name=name,
            # Started in the data directory: a folder `stats` or `api` where the user stands
            # would else be imported for ours.
            start=lambda: spawn(command, log=path, env=env, cwd=self.data_dir, umask=0o077),
            ready=ready,
            ends_itself=ends_itself,
            log=path,
            stage=stage,
            stop_seconds=stop_seconds,
            longest_backoff_seconds=longest_backoff_seconds,
        )


def postgres(server: EmbeddedPostgres, data_dir: Path) -> Child:
    """The embedded PostgreSQL, which starts itself."""

    def start() -> subprocess.Popen[bytes]:
        server.start()
        if server.process is None:
            raise EmbeddedPostgresError(
                f"another command is using the store in {data_dir}; wait until it ends"
            )
        return server.process

    return Child(
        name="PostgreSQL",
        start=start,
        log=data_dir / "logs" / "postgres.log",
        stage=_STORE,
        stop_signal=signal.SIGINT,  # fast shutdown: SIGTERM would wait for every client to leave
        longest_backoff_seconds=STORE_BACKOFF_SECONDS,
    )


def answers(host: str, port: int, path: str) -> bool:
    """Whether a server answers a path by 200."""
    connection = http.client.HTTPConnection(host, port, timeout=2.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _has_loaded(port: int) -> bool:
    """Whether Dagster's web server answers, and our definitions have loaded behind it."""
    query = json.dumps(
        {
            "query": "{ workspaceOrError { ... on Workspace { locationEntries {"
            " locationOrLoadError { __typename } } } } }"
        }
    )
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2.0)
    try:
        connection.request("POST", "/graphql", query, {"Content-Type": "application/json"})
        answer = json.load(connection.getresponse())
        entries = answer["data"]["workspaceOrError"]["locationEntries"]
        loaded = [entry["locationOrLoadError"] for entry in entries]
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return False
    finally:
        connection.close()
    return bool(loaded) and all(
        location is not None and location["__typename"] == "RepositoryLocation"
        for location in loaded
    )


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2.0):
            return True
    except OSError:
        return False
