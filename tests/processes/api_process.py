"""The API as users start it: a command's processes, on an address through all their lives."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from own_postgres.child_process import spawn

# What is waited for comes in a second or two; a bound so long only ends a test that hangs.
PATIENCE_SECONDS = 60
SHORTEST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.25
# The promise to those who stop us: whoever waits longer may kill.
STOP_SECONDS = 10


def eventually(
    condition: Callable[[], Any], *, seconds: float = PATIENCE_SECONDS, pause: float | None = None
) -> Any:
    """Returns what the condition returns as soon as it is true.

    Without a pause of its own it looks the less often the longer it waits: whoever waits for a
    process would otherwise take the core that the process needs.
    """
    began = time.monotonic()
    while not (result := condition()):
        waited = time.monotonic() - began
        assert waited < seconds, "it never came true"
        time.sleep(pause or min(SHORTEST_PAUSE_SECONDS + waited / 20, LONGEST_PAUSE_SECONDS))
    return result


@contextmanager
def port_of_our_own() -> Generator[int]:
    """A port that the kernel gives nobody else between two lives of a server."""
    with socket.socket() as place:
        # Bound, never listening.
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", 0))
        yield place.getsockname()[1]


@dataclass(kw_only=True)
class ApiProcess:
    """`deploy-reward api`, which can be killed, stopped, and started again."""

    log: Path
    database_url: str
    workers: int = 1
    process: subprocess.Popen[bytes] | None = None
    port: int = field(init=False)
    _open: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self.port = self._open.enter_context(port_of_our_own())
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._open.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts the command and waits until it answers."""
        self.process = spawn(
            [
                *(sys.executable, "-m", "cli", "api"),
                *("--port", str(self.port), "--workers", str(self.workers)),
                *("--data-dir", str(self.log.with_name("api"))),
            ],
            log=self.log,
            env={
                **os.environ,
                "SERVICE_DATABASE_URL": self.database_url,
                "SERVICE_SECRET": "a secret of the tests, long enough",
            },
        )
        eventually(self.answers)

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        # Asked some hundred times while it starts: a client that can speak TLS would take more of
        # a core to be set up each time than the start itself takes.
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        """Ends all its processes at once; none of them hears of it."""
        if self.process is not None:
            session = self.process.pid
            with suppress(ProcessLookupError):
                os.killpg(session, signal.SIGKILL)
            self.process.wait()
            eventually(lambda: not members_of(session))
            self.process = None

    def kill_worker(self, turn: int) -> None:
        """Ends a worker of several, and waits for the worker that takes its place."""
        assert self.process is not None
        workers = sorted(self.worker_pids())
        assert len(workers) == self.workers
        gone = workers[turn % self.workers]
        os.kill(gone, signal.SIGKILL)
        eventually(lambda: len(set(self.worker_pids()) - {gone}) == self.workers)

    def worker_pids(self) -> list[int]:
        assert self.process is not None
        main = self.process.pid
        return [pid for pid, parent in members_of(main).items() if parent == main]

    @contextmanager
    def held(self) -> Generator[None]:
        """Holds all its processes where they are: what is sent meanwhile waits in the kernel."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def ask_to_stop(self) -> float:
        """Sends the signal to end in order, and returns when."""
        assert self.process is not None
        asked = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return asked

    def stopped(self, asked: float) -> float:
        """Waits for the end, as long as was promised, and returns how long it took."""
        assert self.process is not None
        session = self.process.pid
        eventually(lambda: not members_of(session), seconds=STOP_SECONDS)
        took = time.monotonic() - asked
        assert self.process.wait() == 0, self.log.read_text()[-4000:]
        self.process = None
        return took


def members_of(session: int) -> dict[int, int]:
    """The parent of each live process of a session, by the number of the process."""
    return {pid: parent for pid, (parent, its_session) in _live().items() if its_session == session}


def descendants_of(ancestor: int) -> set[int]:
    """The live processes that a process started, that these started, and so on."""
    live, result = _live(), {ancestor}
    while more := {pid for pid, (parent, _) in live.items() if parent in result} - result:
        result |= more
    return result - {ancestor}


def _live() -> dict[int, tuple[int, int]]:
    result: dict[int, tuple[int, int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent, _, session = status.rpartition(")")[2].split()[:4]
        if state not in "ZX":
            result[int(folder.name)] = (int(parent), int(session))
    return result
