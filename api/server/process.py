"""The API as a process: uvicorn, with logs that hold no query string and no value."""

import asyncio
import gc
import logging
import logging.config
import os
import resource
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, cast

import psycopg
import uvicorn
from sqlalchemy.exc import OperationalError

from api.runtime.settings import ApiSettings, ServerLimits
from api.server.connection import Connection, Connections
from api.server.uvicorn_protocol import STARTUP_FAILURE
from api.server.workers import Workers
from storage.postgres.durability import WeakStoreError, refuse_weak_store
from storage.postgres.engine import open_engine
from storage.schema.migrate import StoreVersionError, is_newest, refuse_unknown_version
from storage.tenants.settings import uncounted_values

_log = logging.getLogger("api")

# From SIGTERM on: when what is unanswered is answered 503, when its work is broken off, and when
# the process ends whatever it is doing. Orchestrators commonly kill after 10.
_UNANSWERED_SECONDS = 6.5
_SHUTDOWN_SECONDS = 8
_END_SECONDS = 9.5
_BACKLOG = 2048
_ASK_AGAIN_SECONDS = 5.0

LOGGING: Mapping[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "line",
            "stream": "ext://sys.stderr",
        }
    },
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "api": {"level": "INFO"},
        "uvicorn": {"level": "INFO"},
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
        host: The address to listen on.
        port: The port to listen on; 0 takes a free one.
        workers: How many processes.
        application: What makes it, by name: module, colon, function.

    Raises:
        SystemExit: 0 at a signal; another code, after one line in the log, when it cannot start:
            a variable is wrong, the port is taken, or the store may lose acknowledged events
            or is of another version.
    """
    logging.config.dictConfig(dict(LOGGING))
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn raises the signal that stopped it anew, once it has stopped.
        signal.signal(number, _leave)
    try:
        limits = ServerLimits.from_environment()
        database_url = ApiSettings.from_environment().database_url
        unasked = None if _known_to_be_safe(database_url) else database_url
    except (StoreVersionError, ValueError, WeakStoreError) as error:
        _log.error("%s", error)
        raise SystemExit(STARTUP_FAILURE) from None
    _raise_file_limit(limits)
    connections = Connections(limits)
    config = uvicorn.Config(
        application,
        factory=True,
        host=host,
        port=port,
        loop="uvloop",
        # Called like the class that it stands for.
        http=cast("type[asyncio.Protocol]", connections),
        # Nothing here speaks WebSocket.
        ws="none",
        log_config=None,
        # The application writes its own, without query strings.
        access_log=False,
        # Whose word on the client's address counts is a setting of each project.
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    raise SystemExit(_serve_together(config, connections, workers, unasked))


def _leave(*_: object) -> None:
    raise SystemExit(0)


def _known_to_be_safe(database_url: str) -> bool:
    """Tells whether the store is fit to serve from; False when it cannot be asked yet.

    Raises:
        StoreVersionError: A later version has made it, or an earlier one.
        WeakStoreError: It may lose committed transactions.
    """
    try:
        _refuse_store(database_url)
    except (psycopg.Error, OperationalError):
        _log.warning(
            "the store cannot be reached: requests are answered with 503 until it can (does its"
            " server run, and is SERVICE_DATABASE_URL right?)"
        )
        return False
    return True


def _refuse_store(url: str) -> None:
    refuse_weak_store(url)
    engine = open_engine(url, pool_size=1)
    try:
        with engine.connect() as connection:
            refuse_unknown_version(connection)
            if not is_newest(connection):
                _log.warning("the store has no tables yet: run `deploy-reward migrate`")
                return
            for line in uncounted_values(connection):
                _log.warning("%s", line)
    finally:
        engine.dispose()


def _raise_file_limit(limits: ServerLimits) -> None:
    # Twice: connections over the limit are refused, and for that accepted.
    wanted = 2 * limits.most_connections + 256
    soft, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (-1, resource.RLIM_INFINITY) or soft >= wanted:
        return
    possible = wanted if hard_limit == resource.RLIM_INFINITY else min(wanted, hard_limit)
    resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard_limit))
    if possible < wanted:
        _log.warning(
            "%d connections need a limit of %d open files; this process may have %d",
            *(limits.most_connections, wanted, possible),
        )


def _serve_together(
    config: uvicorn.Config, connections: Connections, count: int, unasked: str | None
) -> int:
    """Serves by worker processes on one address, and returns the exit code.

    A single worker is a process of its own too: when it is killed, the next one stands in a tenth
    of a second, because everything is imported here, and its clients wait in the kernel meanwhile.
    """
    # Set before the library is first imported, which looks at it then.
    folder = tempfile.mkdtemp(prefix="deploy-reward-metrics-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    try:
        # Once for all: the workers are forks.
        import_module("api.app")
        mark_process_dead = import_module("prometheus_client.multiprocess").mark_process_dead
        # Memory is shared with the workers until somewhere is written to, as a collection does.
        gc.collect()
        gc.freeze()
        listeners = _listeners(config.host, config.port, count)

        def work(place: int, life: int) -> int:
            server = Server(config, connections, unasked=unasked, life=life)
            return server.outcome([listeners[place]])

        return Workers(
            count=count,
            work=work,
            # Held open here, a socket would take connections that nobody serves any more.
            before_stop=lambda: _close(listeners),
            ended=mark_process_dead,
        ).run()
    except OSError as error:
        _log.error("cannot listen on %s, port %d: %s", config.host, config.port, error.strerror)
        return STARTUP_FAILURE
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _listeners(host: str, port: int, count: int) -> list[socket.socket]:
    """Returns sockets on one address, among which the kernel divides the connections evenly.

    From one socket, the worker that wakes first takes all that wait: with long connections it
    keeps them. Here each has its own, which stays open in this process while the worker is
    replaced: clients then wait instead of being turned away.

    Raises:
        OSError: The address is taken, or not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the option that lets many share: another service's port must not be shared.
    socket.create_server((host, port), family=family).close()
    listeners: list[socket.socket] = []
    for _ in range(count):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        port = listener.getsockname()[1]
        listeners.append(listener)
    for listener in listeners:
        listener.listen(_BACKLOG)
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    _log.info("workers: %d, running on http://%s:%d", count, shown, port)
    return listeners


def _close(listeners: Sequence[socket.socket]) -> None:
    for listener in listeners:
        listener.close()


class Server(uvicorn.Server):
    """uvicorn's server, which answers each request that it accepted, and always ends."""

    def __init__(
        self,
        config: uvicorn.Config,
        connections: Connections,
        *,
        unasked: str | None = None,
        life: int | None = None,
    ) -> None:
        """Makes a server that does not listen yet.

        Args:
            config: Its `http` is `connections`.
            connections: What makes its connections.
            unasked: The address of a store whose durability could not be checked yet.
            life: A file descriptor that comes to its end when the process does that started us.
        """
        super().__init__(config)
        self._connections = connections
        self._unasked = unasked
        self._life = life
        self._asking: asyncio.Task[None] | None = None
        self._last_resort = threading.Timer(_END_SECONDS, os._exit, [1])
        self._last_resort.daemon = True
        self._refused = False

    def outcome(self, sockets: list[socket.socket] | None = None) -> int:
        """Serves until a signal, and returns the exit code."""
        try:
            self.run(sockets)
        finally:
            self._last_resort.cancel()
        return STARTUP_FAILURE if self._refused or not self.started else 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to listen."""
        await super().startup(sockets)
        # What is here now stays: no collection of garbage need look at it again.
        gc.collect()
        gc.freeze()
        loop = asyncio.get_running_loop()
        self._connections.watch(loop, self.server_state)
        if self._life is not None:
            loop.add_reader(self._life, self._end_as_orphan, loop, self._life)
        if self._unasked is not None:
            self._asking = loop.create_task(self._refuse_unfit_store(self._unasked))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops listening, answers everybody who was let in, and ends the application."""
        self._last_resort.start()
        if self._asking is not None:
            self._asking.cancel()
        self._connections.stopping = True
        loop = asyncio.get_running_loop()
        loop.call_later(_UNANSWERED_SECONDS, self._end_unanswered)
        await self._accept_the_last(sockets or ())
        await super().shutdown(sockets)
        self._connections.unwatch()

    async def _accept_the_last(self, sockets: Sequence[socket.socket]) -> None:
        """Stops listening, and accepts the connections that the kernel has already completed."""
        loop = asyncio.get_running_loop()
        waiting: list[socket.socket] = []
        for server in self.servers:
            # The event loop closes its own at once, and resets those who wait in it.
            queues = [socket.socket(fileno=os.dup(own.fileno())) for own in server.sockets]
            server.close()
            for own in sockets:
                own.close()
            for queue in queues:
                waiting += _accepted(queue)
        for client in waiting:
            client.settimeout(0)
            await loop.connect_accepted_socket(self._connection, client)

    def _connection(self) -> asyncio.Protocol:
        return self._connections(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def _end_unanswered(self) -> None:
        for connection in list(self.server_state.connections):
            cast("Connection", connection).end_unanswered()

    def _end_as_orphan(self, loop: asyncio.AbstractEventLoop, life: int) -> None:
        loop.remove_reader(life)
        _log.warning("the process that started this worker is gone")
        self.should_exit = True

    async def _refuse_unfit_store(self, url: str) -> None:
        while True:
            try:
                return await asyncio.to_thread(_refuse_store, url)
            except (StoreVersionError, WeakStoreError) as error:
                _log.error("%s", error)
                self._refused = self.should_exit = True
                return None
            except (psycopg.Error, OperationalError):
                await asyncio.sleep(_ASK_AGAIN_SECONDS)


def _accepted(queue: socket.socket) -> list[socket.socket]:
    """Returns the connections that wait in a listening socket, and closes it."""
    connections: list[socket.socket] = []
    with queue:
        while len(connections) < _BACKLOG:
            try:
                connections.append(queue.accept()[0])
            except (BlockingIOError, OSError):
                break
    return connections
