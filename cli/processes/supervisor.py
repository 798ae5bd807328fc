"""A supervisor of child processes: started in order, restarted when dead, stopped in reverse."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from own_postgres.child_process import cut_log

TURN_SECONDS = 0.05


class ChildFailedError(RuntimeError):
    """A child did not come up; the message names it, its log and the log's last lines."""


class StopRequest:
    """Whether this process was asked to stop."""

    def __init__(self) -> None:
        # A plain flag: a signal may interrupt any instruction, a lock's own included.
        self.made = False

    def make(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Ask; fit to be a signal's handler."""
        self.made = True


@contextmanager
def stop_on_signals() -> Generator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGHUP into a stop request, until the context ends."""
    request = StopRequest()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # A service started by `nohup` is to outlive the terminal.
    heard = [number for number in numbers if not _hung_up_ignored(number)]
    before = {number: signal.signal(number, request.make) for number in heard}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hung_up_ignored(number: signal.Signals) -> bool:
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


@dataclass(frozen=True, kw_only=True)
class Child:
    """A child process of the supervisor: its command and its state.

    Attributes:
        ends_itself: whether it may end with code 0, to be started again without a word.
        first_backoff_seconds: how long it stays away once it has died twice, doubled at each death.
        longest_backoff_seconds: how long it stays away at most, however often it has died; a
            process that lived longer is started again at once.
    """

    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    ready: Callable[[], bool] = lambda: True
    log: Path
    stage: int = 0
    start_seconds: float = 180.0
    stop_seconds: float = 4.0
    stop_signal: signal.Signals = signal.SIGTERM
    ends_itself: bool = False
    first_backoff_seconds: float = 0.5
    longest_backoff_seconds: float = 30.0


class _Watched:
    """A child, its process and the history that decides on its next start."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.due_at = 0.0
        self.failures = 0
        # Reports on its log and its start since either last succeeded.
        self.complaints: dict[str, str] = {}
        self.is_silent = False

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def launch(self) -> None:
        self.started_at = time.monotonic()
        self.process = self.child.start()

    def bury(self) -> float:
        """End the rest of a dead child's process group, and set when it starts again."""
        if self.process is not None:
            _kill_group(self.process)
            self.process = None
        longest = self.child.longest_backoff_seconds
        if time.monotonic() - self.started_at > longest:
            self.failures = 0
        wait = min(self.child.first_backoff_seconds * (2**self.failures - 1), longest)
        self.failures += 1
        self.due_at = time.monotonic() + wait
        return wait


class Supervisor:
    """Starts children in turn, keeps them running, and stops them in reverse.

    Every method must be called from the same thread that lives as long as the children: on Linux
    they are made to end when the thread that started them does.
    """

    def __init__(self, *, report: Callable[[str], None]) -> None:
        self._reports = report
        self._watched: list[_Watched] = []

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def processes(self) -> dict[str, int]:
        """The process number of each child that lives now."""
        return {
            watched.child.name: watched.process.pid
            for watched in self._watched
            if watched.process is not None and watched.alive
        }

    def add(self, child: Child, stop: StopRequest) -> bool:
        """Start a child and return when it serves.

        The children before it are tended meanwhile.

        Returns:
            False when a stop was asked for first.
        """
        watched = _Watched(child)
        self._watched.append(watched)
        watched.launch()
        deadline = time.monotonic() + child.start_seconds
        while not stop.made:
            if not watched.alive:
                code = watched.process.returncode if watched.process else 0
                raise ChildFailedError(
                    f"{watched.child.name} {_ending(code)}" + _last_words(watched.child.log)
                )
            if child.ready():
                return True
            if time.monotonic() > deadline:
                raise ChildFailedError(
                    f"{child.name} did not answer within {child.start_seconds:.0f} s"
                    + _last_words(child.log)
                )
            self._tend(self._watched[:-1])
            time.sleep(TURN_SECONDS)
        return False

    def run(self, stop: StopRequest) -> None:
        """Keep the children running until a stop is asked for."""
        while not stop.made:
            self._tend(self._watched)
            time.sleep(TURN_SECONDS)

    def stop(self) -> None:
        """Stop all children, the last stage first; killed are those that take too long."""
        for stage in sorted({watched.child.stage for watched in self._watched}, reverse=True):
            _stop_together([watched for watched in self._watched if watched.child.stage == stage])
        self._watched.clear()

    def _tend(self, children: Sequence[_Watched]) -> None:
        for watched in children:
            self._tend_log(watched)
            if watched.alive:
                continue
            if watched.process is not None:
                code, wait = watched.process.returncode, watched.bury()
                watched.is_silent = code == 0 and watched.child.ends_itself and not wait
                if not watched.is_silent:
                    ending = f"{_ending(code)}; starting it again in {wait:g} s"
                    self._report(f"{watched.child.name} {ending}")
            elif time.monotonic() >= watched.due_at:
                self._restart(watched)

    def _tend_log(self, watched: _Watched) -> None:
        try:
            cut_log(watched.child.log)
            watched.complaints.pop("log", None)
        except OSError as failure:
            line = f"the log of {watched.child.name} is not cut: {failure.strerror}"
            self._report_once(watched, "log", line)

    def _report_once(self, watched: _Watched, part: str, line: str) -> None:
        if watched.complaints.get(part) != line:
            watched.complaints[part] = line
            self._report(line)

    def _report(self, line: str) -> None:
        # The terminal may be gone, or a file on a full disk.
        with suppress(OSError):
            self._reports(line)

    def _restart(self, watched: _Watched) -> None:
        try:
            watched.launch()
        except Exception as error:  # noqa: BLE001 (whatever it is, the other children go on)
            wait = watched.bury()
            line = f"{watched.child.name} does not start: {error}; again in {wait:g} s"
            self._report_once(watched, "start", line)
        else:
            watched.complaints.pop("start", None)
            if not watched.is_silent:
                self._report(f"{watched.child.name} started again")


def _stop_together(children: Sequence[_Watched]) -> None:
    for watched in children:
        if watched.process is not None and watched.alive:
            watched.process.send_signal(watched.child.stop_signal)
    deadline = time.monotonic() + max(watched.child.stop_seconds for watched in children)
    while any(watched.alive for watched in children) and time.monotonic() < deadline:
        time.sleep(0.01)
    for watched in children:
        if watched.process is not None:
            _kill_group(watched.process)
            watched.process.wait()


def _kill_group(leader: subprocess.Popen[bytes]) -> None:
    """Kill what lives in the group of a child, which leads a session of its own."""
    try:
        os.killpg(leader.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # PermissionError: macOS, when all are zombies
        return


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _last_words(log: Path) -> str:
    try:
        tail = log.read_text(errors="replace").splitlines()[-15:]
    except FileNotFoundError:
        return ""
    return "\n".join([f"; the end of {log}:", *tail])
