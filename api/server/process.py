"""The API as a process: uvicorn as released, with logs that hold no query string and no value."""

import asyncio
import gc
import logging
import logging.config
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, TextIO

import psycopg
import uvicorn
from sqlalchemy.exc import OperationalError

from api.runtime.settings import ApiSettings
from api.server.workers import STARTUP_FAILURE, Workers
from storage.postgres.durability import WeakStoreError, refuse_weak_store
from storage.postgres.engine import open_engine
from storage.schema.migrate import StoreVersionError, is_newest, refuse_unknown_version
from storage.tenants.secret import SecretError
from storage.tenants.store_secret import bind_secret

_log = logging.getLogger("api")

# A client that keeps its connection busy sends its next request within this time after SIGTERM.
_LAST_REQUEST_SECONDS = 1.0
# Requests still unanswered after these get 503. Orchestrators commonly kill after 10.
_UNANSWERED_SECONDS = 6
_BACKLOG = 2048
# The most of a request's head that comes in parts: path, query and header fields.
_HEAD_BYTES = 40 * 1024
_ASK_AGAIN_SECONDS = 5.0


class LogLines(logging.StreamHandler[TextIO]):
    """Writes each record in a line of its own, also where a full disk has cut the line before."""

    _is_cut = False
    _begin = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record."""
        self._begin, self._is_cut = "\n" if self._is_cut else "", False
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        """Returns a record as a line."""
        return self._begin + super().format(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Notes that a line may be cut; says any other fault as logging does."""
        if isinstance(sys.exception(), OSError):
            self._is_cut = True
        else:
            super().handleError(record)


LOGGING: Mapping[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"()": LogLines, "formatter": "line", "stream": "ext://sys.stderr"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "api": {"level": "INFO"},
        # Its warnings are of what clients send: a line for each request would bury the rest.
        "uvicorn": {"level": "ERROR"},
    },
}


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    application: str = "api.app:create_app",
) -> None:
    """Serves the application that the environment describes until SIGTERM or SIGINT.

    Args:
        port: The port to listen on; 0 takes a free port.

    Raises:
        SystemExit: 0 at a signal; another code, after a line in the log, when it cannot start:
            a variable is wrong, the port is taken, or the store may lose acknowledged events
            or is of another version.
    """
    logging.config.dictConfig(dict(LOGGING))
    _leave_on_signals()
    try:
        settings = ApiSettings.from_environment()
        unasked = None if _known_to_be_safe(settings) else settings
    except (StoreVersionError, ValueError, WeakStoreError) as error:
        _log.error("%s", error)
        raise SystemExit(STARTUP_FAILURE) from None
    _raise_file_limit(settings.most_connections)
    config = uvicorn.Config(
        application,
        factory=True,
        host=host,
        port=port,
        loop="uvloop",
        http=settings.http_parser,
        h11_max_incomplete_event_size=_HEAD_BYTES,
        # Nothing here speaks WebSocket.
        ws="none",
        log_config=None,
        # The application writes its own, without query strings.
        access_log=False,
        # Each project's settings name the proxies whose address of the client counts.
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        limit_concurrency=settings.most_connections,
        timeout_keep_alive=settings.idle_seconds,
        timeout_graceful_shutdown=_UNANSWERED_SECONDS,
    )
    raise SystemExit(_serve_together(config, workers, unasked))


def _leave_on_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn raises the signal that stopped it anew, once it has stopped.
        signal.signal(number, lambda _signal, _frame: sys.exit(0))


def _known_to_be_safe(settings: ApiSettings) -> bool:
    """Tells whether the store is fit to serve from; False when it cannot be asked yet."""
    try:
        _refuse_store(settings)
    except (psycopg.Error, OperationalError):
        _log.warning(
            "the store cannot be reached: requests are answered with 503 until it can (does its"
            " server run, and is SERVICE_DATABASE_URL right?)"
        )
        return False
    return True


def _refuse_store(settings: ApiSettings) -> None:
    refuse_weak_store(settings.database_url)
    engine = open_engine(settings.database_url, pool_size=1)
    try:
        with engine.begin() as connection:
            refuse_unknown_version(connection)
            if is_newest(connection):
                bind_secret(connection, settings.secret)
            else:
                _log.warning("the store has no tables yet: run `deploy-reward migrate`")
    finally:
        engine.dispose()


def _raise_file_limit(connections: int) -> None:
    wanted = connections + 256
    soft, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (-1, resource.RLIM_INFINITY) or soft >= wanted:
        return
    possible = wanted if hard_limit == resource.RLIM_INFINITY else min(wanted, hard_limit)
    resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard_limit))
    if possible < wanted:
        _log.warning(
            "%d connections need a limit of %d open files; this process may have %d",
            *(connections, wanted, possible),
        )


def _serve_together(config: uvicorn.Config, count: int, unasked: ApiSettings | None) -> int:
    """Serves by worker processes on an address, and returns the exit code.

    A single worker is a process of its own too: when it is killed, the next stands in a tenth
    of a second, because everything is imported here, and its clients wait in the kernel meanwhile.
    """
    # Set before the library is first imported, which looks at it then.
    folder = tempfile.mkdtemp(prefix="deploy-reward-metrics-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    parent = os.getpid()

    def work(listener: socket.socket) -> int:
        try:
            return Server(config, unasked=unasked).outcome(listener)
        finally:
            if os.getppid() != parent:
                # It was killed, and left this to its workers.
                shutil.rmtree(folder, ignore_errors=True)

    try:
        # Once for all: the workers are forks. Nothing that is imported is garbage.
        gc.disable()
        import_module("api.app")
        mark_process_dead = import_module("prometheus_client.multiprocess").mark_process_dead
        gc.enable()
        # Memory is shared with the workers until somewhere is written to, as a collection does.
        gc.collect()
        gc.freeze()
        listeners = _listeners(config.host, config.port, count)
        return Workers(listeners, work=work, ended=mark_process_dead).run()
    except OSError as error:
        _log.error("cannot listen on %s, port %d: %s", config.host, config.port, error.strerror)
        return STARTUP_FAILURE
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _listeners(host: str, port: int, count: int) -> list[socket.socket]:
    """Returns sockets on an address, among which the kernel divides the connections evenly.

    From the same socket, the worker that wakes first takes all that wait: with long connections it
    keeps them. Here each has its own, which stays open in this process while the worker is
    replaced: clients then wait instead of being turned away.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the option that lets many share: another service's port must not be shared.
    socket.create_server((host, port), family=family).close()
    listeners: list[socket.socket] = []
    for _ in range(count):
        listener = socket.create_server(
            (host, port), family=family, backlog=_BACKLOG, reuse_port=True
        )
        port = listener.getsockname()[1]
        listeners.append(listener)
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    _log.info("workers: %d, running on http://%s:%d", count, shown, port)
    return listeners


class Server(uvicorn.Server):
    """uvicorn's server, which answers each request that was sent before its port was closed."""

    def __init__(self, config: uvicorn.Config, *, unasked: ApiSettings | None = None) -> None:
        """Makes a server that does not listen yet.

        Args:
            unasked: The settings of a store that could not be checked yet.
        """
        super().__init__(config)
        self._unasked = unasked
        self._refused = False

    def outcome(self, listener: socket.socket) -> int:
        """Serves until a signal, and returns the exit code."""
        _leave_on_signals()
        if self._unasked is not None:
            threading.Thread(
                target=self._refuse_unfit_store, args=(self._unasked,), daemon=True
            ).start()
        self.run([listener])
        return STARTUP_FAILURE if self._refused or not self.started else 0

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops listening, answers everybody who was let in, and ends the application."""
        _log.info("stopping")
        # Responses already under way share this list, so they get the header too.
        self.server_state.default_headers.append((b"connection", b"close"))
        for _ in range(_BACKLOG):
            # Connections that the kernel has completed and nobody has accepted would be reset.
            if not select.select(sockets or (), (), (), 0)[0]:
                break
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        if self.server_state.connections:
            await asyncio.sleep(_LAST_REQUEST_SECONDS)
        await super().shutdown(sockets)

    def _refuse_unfit_store(self, settings: ApiSettings) -> None:
        while not self.should_exit:
            try:
                _refuse_store(settings)
                break
            except (SecretError, StoreVersionError, WeakStoreError) as error:
                _log.error("%s", error)
                self._refused = self.should_exit = True
            except (psycopg.Error, OperationalError):
                time.sleep(_ASK_AGAIN_SECONDS)
