"""Commands: time, CPU and memory of the first `evaluate` of a day of history, then of `rebuild`.

Run by `make bench-rebuild`. One day of canary traffic is stored in an embedded PostgreSQL, as an
import stores it, and three experiments are registered on it. Then the commands run as processes of
their own. CPU is that of the command and of PostgreSQL; memory is the peak of each.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.table import Table

from benchmarks.rebuild import cpu_seconds, serving, stored

_SAMPLE_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Row:
    """The measurement of a command over a day of one size."""

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
            peaks.append(max((_private_mib(child) for child in children), default=0.0))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()


def _private_mib(process: str) -> float:
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    return 0.0


def measure(*words: str, url: str, events: int, postgres: int) -> Row:
    """Runs a command to its end, and returns its measurement."""
    spent, begun = cpu_seconds(postgres), perf_counter()
    with sampled_memory(postgres) as peaks:
        child = subprocess.Popen(
            [sys.executable, "-m", "cli", *words, "--json"],
            stdout=subprocess.DEVNULL,
            env={
                "SERVICE_SECRET": "a secret of benchmarks",
                **os.environ,
                "SERVICE_DATABASE_URL": url,
            },
        )
        _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{words[0]} failed: see its error above")
    return Row(
        events=events,
        command=words[0],
        seconds=perf_counter() - begun,
        command_cpu=usage.ru_utime + usage.ru_stime,
        postgres_cpu=cpu_seconds(postgres) - spent,
        command_mib=usage.ru_maxrss / 1024,
        postgres_mib=max(peaks),
    )


def as_table(rows: Sequence[Row], *, title: str, counted: str) -> Table:
    """Returns the measurements as a table."""
    table = Table(title=title)
    for name in (counted, "command", "wall", "CPU", "of it PostgreSQL", "memory", "a backend's"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            f"{row.events:,}",
            row.command,
            f"{row.seconds:.1f} s",
            f"{row.cpu:.1f} s",
            f"{row.postgres_cpu:.1f} s",
            f"{row.command_mib:.0f} MiB",
            f"{row.postgres_mib:.0f} MiB",
        )
    return table


def main() -> None:
    """Measures each size and prints it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sizes", default="1000000", help="events of the day")
    options.add_argument("--lines", type=Path, help="JSON lines are appended here")
    arguments = options.parse_args()
    rows: list[Row] = []
    for events in map(int, arguments.sizes.split(",")):
        with serving() as (url, postgres):
            stored(url, events=events, experiments=3).engine.dispose()
            rows += [
                measure(command, url=url, events=events, postgres=postgres)
                for command in ("evaluate", "rebuild")
            ]
    Console(width=150).print(
        as_table(
            rows, title="Commands over one day of history, three experiments", counted="events"
        )
    )
    if arguments.lines:
        with arguments.lines.open("a") as lines:
            for row in rows:
                lines.write(json.dumps({"at": datetime.now(UTC).isoformat(), **asdict(row)}) + "\n")


if __name__ == "__main__":
    main()
