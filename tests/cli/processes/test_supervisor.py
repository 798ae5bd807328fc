"""The supervisor, on small real processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from own_postgres.child_process import LOG_BYTES, cut_log, fresh_log, spawn
from own_postgres.server import EmbeddedPostgres

from cli.processes.children import Servers, compiled_once, postgres
from cli.processes.supervisor import (
    Child,
    ChildFailedError,
    StopRequest,
    Supervisor,
    stop_on_signals,
)
from tests.processes.api_process import eventually

pytestmark = pytest.mark.process

SLEEP = "import time; time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
FRUITFUL = "import subprocess, sys; subprocess.Popen(['sleep', '600']); " + SLEEP
ENDS_WHEN_TOLD = 'while [ ! -e "$1" ]; do sleep 0.01; done'
NOTES_ITS_END = """
import signal, sys, time
def end(*_):
    with open(sys.argv[1], 'a') as file:
        file.write(sys.argv[2] + '\\n')
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open(sys.argv[3], 'w').close()
time.sleep(600)
"""


class Room:
    """A supervisor that runs in this thread, its reports, and children of a line each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: list[str] = []
        self.supervisor = Supervisor(report=self.reports.append)
        self.never = StopRequest()

    def child(self, name: str, code: str, *arguments: str, **changes: object) -> Child:
        log = self.folder / f"{name}.log"
        command = [sys.executable, "-c", code, *arguments]
        known = {
            "name": name,
            "log": log,
            "start": lambda: spawn(command, log=log),
            "first_backoff_seconds": 0.01,
        }
        return Child(**{**known, **changes})  # pyright: ignore[reportArgumentType]

    def add(self, child: Child) -> int:
        assert self.supervisor.add(child, self.never)
        return self.supervisor.processes[child.name]

    def add_mortal(self, name: str, **changes: object) -> None:
        """Add a child that ends now, and at once after each restart."""
        end, log = self.folder / f"{name}.end", self.folder / f"{name}.log"
        # A shell stands and ends within milliseconds: it never lives longer than its back-off.
        command = ["sh", "-c", ENDS_WHEN_TOLD, name, end]
        self.add(self.child(name, "", start=lambda: spawn(command, log=log), **changes))
        end.touch()

    def run_until(self, condition: Callable[[], bool]) -> None:
        request = StopRequest()
        result: list[bool] = []

        def watch() -> None:
            try:
                result.append(eventually(condition))
            finally:
                request.make()

        watcher = threading.Thread(target=watch)
        watcher.start()
        self.supervisor.run(request)
        watcher.join()
        assert result == [True], self.reports


@pytest.fixture
def room(tmp_path) -> Iterator[Room]:
    made = Room(tmp_path)
    yield made
    made.supervisor.stop()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    # It may also end between the opening of the file and the reading of it.
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_child_that_keeps_dying_is_started_ever_less_often(room) -> None:
    room.add_mortal("worker")
    room.run_until(lambda: sum("again in" in report for report in room.reports) >= 4)
    waits = [float(report.split()[-2]) for report in room.reports if "again in" in report][:4]
    assert waits == [0, 0.01, 0.03, 0.07]


@pytest.mark.parametrize(("name", "seconds"), [("API", 2), ("PostgreSQL", 1)])
def test_whoever_takes_events_is_soon_started_again_however_often_it_died(
    room, name, seconds
) -> None:
    servers = Servers(data_dir=room.folder, env={}, workspace=room.folder)
    api = servers.api(host="127.0.0.1", port=1, workers=1)
    store = postgres(EmbeddedPostgres(room.folder), room.folder)
    (child,) = (child for child in (api, store) if child.name == name)
    longest = child.longest_backoff_seconds
    # As after many deaths.
    room.add_mortal(name, first_backoff_seconds=60.0, longest_backoff_seconds=longest)
    room.run_until(lambda: len(room.reports) >= 3)
    assert room.reports[2] == f"{name} ended with code 0; starting it again in {seconds} s"


def test_nothing_that_fails_in_tending_a_child_ends_the_others(room, small_disk) -> None:
    first = room.add(room.child("neighbour", SLEEP))
    log = small_disk / "api.log"
    log.write_bytes(b"x" * (LOG_BYTES + 1))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    commands = iter([["sleep", "600"]])

    def start() -> subprocess.Popen[bytes]:
        # Once, then its program is gone.
        return spawn(next(commands, [small_disk / "no program"]), log=room.folder / "log")

    room.add(room.child("worker", "", log=log, start=start, longest_backoff_seconds=0.01))
    os.kill(room.supervisor.processes["worker"], signal.SIGKILL)
    room.run_until(lambda: any("; again in 0" in report for report in room.reports))
    room.add_mortal("other")
    room.run_until(lambda: any("other ended" in report for report in room.reports))
    for line in ("the log of worker is not cut: Read-only file system", "; again in 0"):
        assert sum(line in report for report in room.reports) == 1, room.reports
    assert room.supervisor.processes["neighbour"] == first


def test_a_terminal_that_takes_no_line_ends_nothing(room) -> None:
    with Path("/dev/full").open("w") as full:
        room.supervisor = Supervisor(report=partial(print, file=full, flush=True))
        first = room.add(room.child("neighbour", SLEEP))
        worker = room.add(room.child("worker", SLEEP))
        os.kill(worker, signal.SIGKILL)
        room.run_until(lambda: room.supervisor.processes.get("worker", worker) != worker)
        assert room.supervisor.processes["neighbour"] == first
        with suppress(OSError):
            full.close()


def test_a_child_that_lived_longer_than_its_backoff_is_started_again_at_once(room) -> None:
    briefly = "import time; time.sleep(0.1)"
    waits = {"first_backoff_seconds": 60.0, "longest_backoff_seconds": 0.05}
    room.add(room.child("worker", briefly, **waits))
    room.run_until(lambda: len(room.reports) >= 5)
    waits = {report.split()[-2] for report in room.reports if "again in" in report}
    assert waits == {"0"}


def test_a_child_that_may_end_by_itself_is_started_again_without_a_word(room) -> None:
    end, starts = room.folder / "end", list[int]()

    def start() -> subprocess.Popen[bytes]:
        starts.append(1)
        command = ["sh", "-c", ENDS_WHEN_TOLD, "server", end]
        return spawn(command if len(starts) == 1 else ["sleep", "600"], log=room.folder / "log")

    room.add(room.child("server", "", start=start, ends_itself=True))
    end.touch()
    room.run_until(lambda: len(starts) == 2)
    assert room.reports == []


def test_a_child_that_cannot_even_be_started_again_is_tried_again(room) -> None:
    starts: list[int] = []
    log = room.folder / "log"

    def start() -> subprocess.Popen[bytes]:
        starts.append(1)
        if len(starts) == 2:
            raise RuntimeError("no room")
        return spawn([sys.executable, "-c", SLEEP], log=log)

    first = room.add(room.child("worker", "", start=start))
    os.kill(first, signal.SIGKILL)
    room.run_until(lambda: room.supervisor.processes.get("worker", first) != first)
    assert any("worker does not start: no room" in report for report in room.reports)


def test_a_child_that_ends_at_its_first_start_is_an_error_that_quotes_its_log(room) -> None:
    dying = room.child("worker", "raise SystemExit('out of cheese')", ready=lambda: False)
    with pytest.raises(ChildFailedError, match=r"worker ended with code 1(.|\n)*out of cheese"):
        room.supervisor.add(dying, room.never)


def test_a_child_that_never_serves_is_an_error(room) -> None:
    silent = room.child("worker", SLEEP, ready=lambda: False, start_seconds=0.1)
    with pytest.raises(ChildFailedError, match="worker did not answer"):
        room.supervisor.add(silent, room.never)


def test_a_stop_asked_for_during_a_start_ends_the_waiting(room) -> None:
    request = StopRequest()

    def ready() -> bool:
        request.make()
        return False

    assert not room.supervisor.add(room.child("worker", SLEEP, ready=ready), request)


def test_a_later_stage_is_stopped_before_an_earlier_one(room) -> None:
    ends = room.folder / "ends"
    for stage, name in enumerate(["store", "api", "web"]):
        begun = room.folder / f"{name}.begun"
        room.add(
            room.child(
                name, NOTES_ITS_END, str(ends), name, str(begun), stage=stage, ready=begun.exists
            )
        )
    room.supervisor.stop()
    assert ends.read_text().split() == ["web", "api", "store"]


def test_a_child_that_will_not_stop_is_killed(room) -> None:
    deaf = room.add(room.child("worker", DEAF, stop_seconds=0.2))
    room.supervisor.stop()
    assert not alive(deaf)


def test_what_a_child_started_goes_with_it(room) -> None:
    parent = room.add(room.child("worker", FRUITFUL))
    offspring = Path(f"/proc/{parent}/task/{parent}/children")
    eventually(lambda: bool(offspring.read_text().split()))
    grandchild = int(offspring.read_text().split()[0])
    room.supervisor.stop()
    eventually(lambda: not alive(grandchild))


def test_a_terminals_interrupt_does_not_reach_a_child(room) -> None:
    child = room.add(room.child("worker", SLEEP))
    assert os.getsid(child) == child != os.getsid(0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_become_a_request_and_are_given_back(number) -> None:
    outside = signal.signal(number, signal.SIG_DFL)
    try:
        with stop_on_signals() as request:
            assert not request.made
            signal.raise_signal(number)
            assert request.made
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, outside)


def test_who_is_started_by_nohup_outlives_the_terminal() -> None:
    outside = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as request:
            signal.raise_signal(signal.SIGHUP)
            assert not request.made
    finally:
        signal.signal(signal.SIGHUP, outside)


def test_a_child_of_who_ignores_the_signals_still_hears_them(room) -> None:
    outside = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        child = room.add(room.child("worker", SLEEP))
    finally:
        for number, handler in outside.items():
            signal.signal(number, handler)
    ignored = next(
        line.split()[1]
        for line in Path(f"/proc/{child}/status").read_text().splitlines()
        if line.startswith("SigIgn")
    )
    assert not int(ignored, 16) & (1 << (signal.SIGTERM - 1))


def test_logs_and_what_children_write_are_their_owners_alone(room) -> None:
    servers = Servers(data_dir=room.folder, env=dict(os.environ), workspace=room.folder)
    before = os.umask(0o022)
    try:
        # A folder as older versions left it.
        (room.folder / "logs").mkdir()
        api = servers.api(host="127.0.0.1", port=1, workers=1)
        process = api.start()
    finally:
        os.umask(before)
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    finally:
        process.kill()
        process.wait()
    assert "Umask:\t0077" in status
    assert api.log.stat().st_mode & 0o777 == 0o600
    assert api.log.parent.stat().st_mode & 0o777 == 0o700


def test_a_long_log_is_cut_and_copied_only_where_the_disk_has_room(tmp_path, small_disk) -> None:
    (small_disk / "others").write_bytes(b"x" * 2 * LOG_BYTES)
    full = small_disk / "logs"
    full.mkdir()
    for folder, kept in ((tmp_path, ["api.log", "api.log.1"]), (full, ["api.log"])):
        log = folder / "api.log"
        log.write_bytes(b"x" * LOG_BYTES)
        # What an earlier cut has left there makes room too.
        if folder == full:
            log.with_name("api.log.1").touch()
        cut_log(log)
        assert log.stat().st_size == LOG_BYTES, "it is not too long yet"
        with log.open("ab") as more:
            more.write(b"y")
        cut_log(log)
        assert log.stat().st_size == 0
        assert sorted(path.name for path in folder.iterdir()) == kept
    assert (tmp_path / "api.log.1").stat().st_mode & 0o777 == 0o600


def test_the_last_three_logs_are_kept(tmp_path) -> None:
    log = tmp_path / "logs" / "api.log"
    for start in range(6):
        fresh_log(log).write_text(str(start))
    kept = {path.name: path.read_text() for path in log.parent.iterdir()}
    assert kept == {"api.log": "5", "api.log.1": "4", "api.log.2": "3", "api.log.3": "2"}


def test_what_a_child_imports_is_compiled_once_where_python_may_keep_nothing(tmp_path) -> None:
    given = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    env = compiled_once(given, tmp_path)
    code = "import click; print(click.__spec__.cached)"
    ran = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env
    )
    kept = Path(ran.stdout.strip())
    assert kept.is_relative_to(tmp_path / "bytecode")
    assert kept.is_file()
    # Who names a place of their own is asked no more.
    assert (
        compiled_once({**given, "PYTHONPYCACHEPREFIX": "/x"}, tmp_path)["PYTHONPYCACHEPREFIX"]
        == "/x"
    )
