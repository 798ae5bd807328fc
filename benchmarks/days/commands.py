"""Commands: time, CPU and memory of the first `evaluate` of a day of history, then of `rebuild`.

Run by `make bench-rebuild`. A day of canary traffic is stored in an embedded PostgreSQL, as an
import stores it, and three experiments are registered on it. Then the commands run as processes of
their own. CPU is that of the command and of PostgreSQL; memory is the peak of each.
"""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

from benchmarks.days.rebuild import stored
from benchmarks.memory import PRIVATE, memory_mib
from benchmarks.report import options, report
from benchmarks.store import MeasuredStore, measured_store

_SAMPLE_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Row:
    """The measurement of a command over a day of a given size."""

    events: int
    command: str
    seconds: float
    command_cpu: float
    postgres_cpu: float
    command_mib: float
    postgres_mib: float

    @property
    def cpu(self) -> float:
        """CPU seconds of both."""
        return self.command_cpu + self.postgres_cpu


@contextmanager
def sampled_memory(process: int) -> Generator[list[float]]:
    """Yields samples of the private memory of a server's largest process, in MiB."""
    peaks, ended = [0.0], threading.Event()

    def sample() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
            peaks.append(max((memory_mib(child, PRIVATE) for child in children), default=0.0))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()


def _wait(process: int) -> tuple[int, resource.struct_rusage, float]:
    """Returns a process's status and usage at its end, and its peak of memory in MiB."""
    peak = 0.0
    while True:
        ended, status, usage = os.wait4(process, os.WNOHANG)
        if ended:
            return status, usage, peak
        peak = max(peak, memory_mib(process))
        sleep(_SAMPLE_SECONDS)


def measure(*words: str, store: MeasuredStore, events: int) -> Row:
    """Runs a command to its end, and returns its measurement."""
    spent, begun = store.cpu_seconds(), perf_counter()
    with sampled_memory(store.process) as peaks:
        child = subprocess.Popen(
            [sys.executable, "-m", "cli", *words, "--json"],
            stdout=subprocess.DEVNULL,
            env={
                "SERVICE_SECRET": "a secret of the benchmarks, long enough",
                **os.environ,
                "SERVICE_DATABASE_URL": store.url,
            },
        )
        status, usage, peak = _wait(child.pid)
    if status:
        raise SystemExit(f"{words[0]} failed: see its error above")
    return Row(
        events=events,
        command=words[0],
        seconds=perf_counter() - begun,
        command_cpu=usage.ru_utime + usage.ru_stime,
        postgres_cpu=store.cpu_seconds() - spent,
        command_mib=peak,
        postgres_mib=max(peaks),
    )


COLUMNS: dict[str, Callable[[Row], str]] = {
    "command": lambda row: row.command,
    "wall": lambda row: f"{row.seconds:.1f} s",
    "CPU": lambda row: f"{row.cpu:.1f} s",
    "of it PostgreSQL": lambda row: f"{row.postgres_cpu:.1f} s",
    "memory": lambda row: f"{row.command_mib:.0f} MiB",
    "a backend's": lambda row: f"{row.postgres_mib:.0f} MiB",
}


def main() -> None:
    """Measures each size and prints it."""
    chosen = options(__doc__, sizes=(1_000_000,)).parse_args()
    rows: list[Row] = []
    for events in chosen.sizes:
        with measured_store() as store:
            stored(store, events=events, experiments=3)
            rows += [
                measure(command, store=store, events=events) for command in ("evaluate", "rebuild")
            ]
    columns: dict[str, Callable[[Row], str]] = {"events": lambda row: f"{row.events:,}", **COLUMNS}
    title = "Commands over one day of history, three experiments"
    report(rows, columns, lines=chosen.lines, title=title)


if __name__ == "__main__":
    main()
