"""What a sealed day costs on Spark: on a worker of a single core, on two, and in DuckDB beside it.

Run by `make bench-rebuild` where Spark is installed (`make spark` installs it). A day of canary
traffic is stored and sealed into files. Then a cluster on this machine computes the day's exposures
and cells from the files: a master, workers of a single core each and a Connect server. CPU is that
of all its JVMs and of the process that asks; what starting them takes is left out.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.days.rebuild import stored
from benchmarks.days.spark_cluster import Cluster, missing_part, running_cluster
from benchmarks.report import options, report
from benchmarks.store import measured_store
from storage.lake.day_engines import DayEngineSettings, open_day_engine
from storage.lake.duckdb_engine import DuckDBLimits
from storage.lake.lake import FolderLake
from storage.lake.reader import read_apart
from storage.lake.sealing import Sealer
from storage.pipeline.experiments import open_experiments
from storage.pipeline.moments import microseconds
from storage.pipeline.whole_lives import compute_whole_lives
from storage.postgres.engine import open_engine

EXECUTOR_MIB = 2048
SAMPLES_A_SECOND = 4


@dataclass(frozen=True, kw_only=True)
class Row:
    """A day of a given size on an engine.

    Attributes:
        workers: Of a single core each; none for DuckDB with a single thread.
        seconds: From the first statement to the last row.
        cpu: Seconds of all processes that compute.
        peak_mib: The most that they held.
        load: The machine's, averaged over the last minute.
        counts: Of cells, units and conversions: the same for all.
    """

    events: int
    workers: int
    seconds: float
    cpu: float
    peak_mib: float
    load: float
    counts: Sequence[int]


class PeakMemory:
    """The most memory that a cluster held while this lasted."""

    def __init__(self, cluster: Cluster) -> None:
        self.mib = 0.0
        self._cluster = cluster
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def _sample(self) -> None:
        while not self._ended.wait(1 / SAMPLES_A_SECOND):
            self.mib = max(self.mib, self._cluster.memory_mib())

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def computed(url: str, lake: FolderLake, settings: DayEngineSettings, as_of: datetime) -> list[int]:
    """Computes the day, and counts its cells, units and conversions."""
    engine = open_engine(url)
    try:
        with read_apart(engine, lake) as log, open_day_engine(settings, lake=lake) as opened:
            experiments = open_experiments(log.connection, only=None)
            lives = compute_whole_lives(opened, log, experiments, as_of=microseconds(as_of))
            assert lives.read
            (counts,) = opened.rows("SELECT count(*), sum(n1 + n0), sum(x1 + x0) FROM new_cells")
            return [int(count) for count in counts]
    finally:
        engine.dispose()


def in_duckdb(url: str, folder: Path, as_of: datetime) -> dict[str, Any]:
    """Computes the day in this process alone, and returns what that took."""
    settings = DayEngineSettings(limits=DuckDBLimits(memory_mib=1024))
    begun, at = time.process_time(), time.perf_counter()
    counts = computed(url, FolderLake(folder), settings, as_of)
    return {
        "counts": counts,
        "seconds": time.perf_counter() - at,
        "cpu": time.process_time() - begun,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def on_spark(url: str, lake: FolderLake, as_of: datetime, *, workers: int) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="deploy-reward-spark-") as folder,
        running_cluster(Path(folder), workers=workers, executor_mib=EXECUTOR_MIB) as cluster,
    ):
        settings = DayEngineSettings(spark_remote=cluster.remote)
        with open_day_engine(settings, lake=lake) as warm:
            list(warm.rows("SELECT count(*) FROM range(1000)"))
        before, own = cluster.cpu_seconds(), time.process_time()
        at = time.perf_counter()
        with PeakMemory(cluster) as peak:
            counts = computed(url, lake, settings, as_of)
        return {
            "counts": counts,
            "seconds": time.perf_counter() - at,
            "cpu": cluster.cpu_seconds() - before + time.process_time() - own,
            "peak_mib": peak.mib,
        }


@contextmanager
def sealed_day(events: int) -> Generator[tuple[str, FolderLake, datetime]]:
    with measured_store() as store:
        day = stored(store, events=events, experiments=3)
        files = FolderLake(store.folder / "sealed")
        assert Sealer(engine=store.engine, lake=files).seal() is not None
        yield store.url, files, day.midnight + timedelta(days=3)


def measured(events: int) -> Generator[Row]:
    with sealed_day(events) as (url, lake, as_of):
        child = subprocess.run(
            [
                *(sys.executable, "-m", "benchmarks.days.spark"),
                *("--child", url, str(lake.folder), as_of.isoformat()),
            ],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ},
        )
        load = os.getloadavg()[0]
        yield Row(events=events, workers=0, load=load, **json.loads(child.stdout))
        for workers in (1, 2):
            took = on_spark(url, lake, as_of, workers=workers)
            yield Row(events=events, workers=workers, load=os.getloadavg()[0], **took)


def main() -> None:
    """Measures each size and prints it."""
    parser = options(__doc__, sizes=(1_000_000, 10_000_000))
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        url, folder, as_of = chosen.child
        sys.stdout.write(json.dumps(in_duckdb(url, Path(folder), datetime.fromisoformat(as_of))))
        return
    if missing := missing_part():
        Console().print(f"Spark is left out: {missing}")
        return
    rows = [row for events in chosen.sizes for row in measured(events)]
    at = {(row.events, row.workers): row for row in rows}
    for row in rows:
        assert row.counts == at[row.events, 0].counts
    columns: dict[str, Callable[[Row], str]] = {
        "events": lambda row: f"{row.events:,}",
        "engine": lambda row: f"Spark, {row.workers}" if row.workers else "DuckDB",
        "seconds": lambda row: f"{row.seconds:.1f}",
        "CPU s": lambda row: f"{row.cpu:.1f}",
        "of DuckDB's": lambda row: f"{row.cpu / at[row.events, 0].cpu:.1f}",
        "wall, of one worker's": lambda row: f"{row.seconds / at[row.events, 1].seconds:.2f}",
        "MiB": lambda row: f"{row.peak_mib:,.0f}",
        "load": lambda row: f"{row.load:.1f}",
    }
    title = "A sealed day, three experiments: DuckDB, and Spark on one core a worker"
    report(rows, columns, lines=chosen.lines, title=title)


if __name__ == "__main__":
    main()
