"""Sealing: rows a second and a CPU second from PostgreSQL to listed files, and bytes an event.

Run by `python -m benchmarks.days.sealing`. A day of canary traffic is laid in the log of an
embedded PostgreSQL and sealed into a folder; the processes of PostgreSQL count among the CPU.
"""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import text

from benchmarks.days.rebuild import laid
from benchmarks.report import options, report
from benchmarks.store import MeasuredStore, measured_store
from storage.lake.comparison import compare_files
from storage.lake.lake import FolderLake
from storage.lake.sealing import Sealer
from storage.schema.partitions import partition_name

SIZES = (100_000, 1_000_000, 10_000_000)
_BLOCK = 512


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A sealed day.

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


def measured(store: MeasuredStore, *, events: int) -> Measured:
    """Lays a day and seals it."""
    day = laid(store, events=events, experiments=0)
    folder = store.folder / "sealed"
    lake = FolderLake(folder)
    with store.engine.begin() as connection:
        size = text("SELECT pg_total_relation_size(to_regclass(:name))")
        name = partition_name(day.midnight.date())
        table_bytes = connection.execute(size, {"name": name}).scalar_one()
    # What laid the day must not end in between: its CPU would be counted.
    store.engine.dispose()
    time.sleep(1)
    begun, server, own = time.perf_counter(), store.cpu_seconds(), time.process_time()
    run = Sealer(engine=store.engine, lake=lake).seal(most_seconds=3600)
    seconds = time.perf_counter() - begun
    time.sleep(1)
    own_cpu, server_cpu = time.process_time() - own, store.cpu_seconds() - server
    if run is None or run.rows != events:
        raise SystemExit(f"not every event was sealed: {run}")
    begun = time.perf_counter()
    with store.engine.begin() as connection:
        compared = compare_files(connection, lake)
    if compared.different:
        raise SystemExit(f"files differ from the log: {compared.different}")
    compare_seconds = time.perf_counter() - begun
    store.engine.dispose()
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


_COLUMNS: dict[str, Callable[[Measured], str]] = {
    "events": lambda row: f"{row.events:,}",
    "files": lambda row: str(row.files),
    "rows/s": lambda row: f"{row.events / row.seconds:,.0f}",
    "rows/CPU s": lambda row: f"{row.events / row.cpu_seconds:,.0f}",
    "of ours": lambda row: f"{row.events / row.own_cpu_seconds:,.0f}",
    "MiB": lambda row: f"{row.peak_mib:.0f}",
    "bytes/event": lambda row: f"{row.file_bytes / row.events:.1f}",
    "du": lambda row: f"{row.disk_bytes / 1e6:.1f} MB",
    "PostgreSQL": lambda row: f"{row.table_bytes / 1e6:.0f} MB",
    "compare": lambda row: f"{row.compare_seconds:.1f} s",
}


def main() -> None:
    """Measures each size and prints it."""
    chosen = options(__doc__, sizes=SIZES).parse_args()
    rows: list[Measured] = []
    for events in chosen.sizes:
        with measured_store() as store:
            rows.append(measured(store, events=events))
    report(rows, _COLUMNS, lines=chosen.lines, title="One day of runtime events, sealed")


if __name__ == "__main__":
    main()
