"""Sealing: rows a second and a CPU second from PostgreSQL to listed files, and bytes an event.

Run by `python -m benchmarks.sealing`. One day of canary traffic is laid in the log of an
embedded PostgreSQL and sealed into a folder; the processes of PostgreSQL count among the CPU.
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table
from sqlalchemy import text

from benchmarks.rebuild import laid, serving
from storage.log.comparison import compare_files
from storage.log.lake import FolderLake
from storage.log.sealing import Sealer
from storage.schema.partitions import partition_name

SIZES = (100_000, 1_000_000, 10_000_000)
_BLOCK = 512


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One day, sealed.

    Attributes:
        events: How many the day has.
        files: How many files hold them.
        seconds: Of the whole run.
        cpu_seconds: Of ours and of PostgreSQL's processes.
        own_cpu_seconds: Of ours alone.
        peak_mib: The most memory that our process ever had.
        file_bytes: What `sealed_hours` lists.
        disk_bytes: What `du` counts of the day's folder.
        table_bytes: What the day takes in PostgreSQL, with its indexes.
        compare_seconds: Of the check that the files hold what the log holds.
    """

    events: int
    files: int
    seconds: float
    cpu_seconds: float
    own_cpu_seconds: float
    peak_mib: float
    file_bytes: int
    disk_bytes: int
    table_bytes: int
    compare_seconds: float


def measured(url: str, postgres: int, *, events: int, folder: Path) -> Measured:
    """Lays a day and seals it."""
    day = laid(url, events=events, experiments=0)
    lake = FolderLake(folder)
    with day.engine.begin() as connection:
        size = text("SELECT pg_total_relation_size(to_regclass(:name))")
        name = partition_name(day.midnight.date())
        table_bytes = connection.execute(size, {"name": name}).scalar_one()
    # What laid the day must not end in between: its CPU would be counted.
    day.engine.dispose()
    time.sleep(1)
    begun, server, own = time.perf_counter(), _cpu_of(postgres), time.process_time()
    run = Sealer(engine=day.engine, lake=lake).seal(most_seconds=3600)
    seconds = time.perf_counter() - begun
    time.sleep(1)
    own_cpu, server_cpu = time.process_time() - own, _cpu_of(postgres) - server
    if run is None or run.rows != events:
        raise SystemExit(f"not every event was sealed: {run}")
    begun = time.perf_counter()
    with day.engine.begin() as connection:
        compared = compare_files(connection, lake)
    if compared.different:
        raise SystemExit(f"files differ from the log: {compared.different}")
    compare_seconds = time.perf_counter() - begun
    day.engine.dispose()
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return Measured(
        events=events,
        files=len(paths),
        seconds=seconds,
        cpu_seconds=own_cpu + server_cpu,
        own_cpu_seconds=own_cpu,
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        file_bytes=run.size,
        disk_bytes=sum(path.stat().st_blocks * _BLOCK for path in folder.rglob("*")),
        table_bytes=table_bytes,
        compare_seconds=compare_seconds,
    )


def _cpu_of(postgres: int) -> float:
    """Returns the CPU seconds of a server and of its children, of those that ended as well."""
    server = psutil.Process(postgres)
    times = [server.cpu_times(), *(child.cpu_times() for child in server.children())]
    ended = times[0].children_user + times[0].children_system
    return ended + sum(one.user + one.system for one in times)


def shown(rows: Sequence[Measured]) -> Table:
    """Returns the measurements as a table."""
    table = Table(title="One day of runtime events, sealed")
    for name in ("events", "files", "rows/s", "rows/CPU s", "of ours", "MiB", "bytes/event"):
        table.add_column(name, justify="right")
    for name in ("du", "PostgreSQL", "compare"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            f"{row.events:,}",
            str(row.files),
            f"{row.events / row.seconds:,.0f}",
            f"{row.events / row.cpu_seconds:,.0f}",
            f"{row.events / row.own_cpu_seconds:,.0f}",
            f"{row.peak_mib:.0f}",
            f"{row.file_bytes / row.events:.1f}",
            f"{row.disk_bytes / 1e6:.1f} MB",
            f"{row.table_bytes / 1e6:.0f} MB",
            f"{row.compare_seconds:.1f} s",
        )
    return table


def main() -> None:
    """Measures each size and prints it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sizes", default=",".join(map(str, SIZES)), help="events of the day")
    options.add_argument("--lines", type=Path, help="JSON lines are appended here")
    chosen = options.parse_args()
    rows: list[Measured] = []
    for events in map(int, chosen.sizes.split(",")):
        with serving() as (url, postgres), tempfile.TemporaryDirectory() as folder:
            rows.append(measured(url, postgres, events=events, folder=Path(folder)))
    Console(width=150).print(shown(rows))
    if chosen.lines:
        with chosen.lines.open("a") as lines:
            for row in rows:
                lines.write(json.dumps({"at": datetime.now(UTC).isoformat(), **asdict(row)}) + "\n")


if __name__ == "__main__":
    main()
