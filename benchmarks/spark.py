"""What a sealed day costs on Spark: on one worker of one core, on two, and in DuckDB beside it.

Run by `make bench-rebuild` where Spark is installed (`make spark` installs it). One day of canary
traffic is stored and sealed into files. Then a cluster on this machine computes the day's exposures
and cells from the files: a master, workers of one core each and a Connect server. CPU is that of
all its JVMs and of the process that asks; what starting them takes is left out.
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
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.rebuild import serving, stored
from storage.log.lake import FolderLake
from storage.log.reader import read_apart
from storage.log.sealing import Sealer
from storage.pipeline.engines.day_engines import DayEngineSettings, open_day_engine
from storage.pipeline.engines.duckdb_engine import DuckDBLimits
from storage.pipeline.experiments import open_experiments
from storage.pipeline.moments import microseconds
from storage.pipeline.whole_lives import compute_whole_lives
from storage.postgres.engine import open_engine
from tests.processes.spark_cluster import Cluster, missing_part, running_cluster

EXECUTOR_MIB = 2048
SAMPLES_A_SECOND = 4


@dataclass(frozen=True, kw_only=True)
class Row:
    """A day of one size on one engine.

    Attributes:
        workers: Of one core each; none for DuckDB with one thread.
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
            assert lives.events
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
    with serving() as (url, _), tempfile.TemporaryDirectory(prefix="deploy-reward-lake-") as lake:
        day = stored(url, events=events, experiments=3)
        files = FolderLake(Path(lake))
        assert Sealer(engine=day.engine, lake=files).seal() is not None
        day.engine.dispose()
        yield url, files, day.midnight + timedelta(days=3)


def measured(events: int) -> Generator[Row]:
    with sealed_day(events) as (url, lake, as_of):
        child = subprocess.run(
            [
                *(sys.executable, "-m", "benchmarks.spark"),
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


def shown(rows: Sequence[Row]) -> Table:
    table = Table(title="A sealed day, three experiments: DuckDB, and Spark on one core a worker")
    for name in ("events", "engine", "seconds", "CPU s", "of DuckDB's", "wall, 2 of 1", "MiB"):
        table.add_column(name, justify="right")
    table.add_column("load", justify="right")
    at = {(row.events, row.workers): row for row in rows}
    for row in rows:
        duckdb, alone = at[row.events, 0], at.get((row.events, 1))
        ratio = f"{row.seconds / alone.seconds:.2f}" if alone and row.workers == 2 else ""
        table.add_row(
            f"{row.events:,}",
            f"Spark, {row.workers}" if row.workers else "DuckDB",
            f"{row.seconds:.1f}",
            f"{row.cpu:.1f}",
            f"{row.cpu / duckdb.cpu:.1f}",
            ratio,
            f"{row.peak_mib:,.0f}",
            f"{row.load:.1f}",
        )
    return table


def main() -> None:
    """Measures each size and prints it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sizes", default="1000000,10000000", help="events of the day")
    options.add_argument("--lines", type=Path, help="JSON lines are appended here")
    options.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.child:
        url, folder, as_of = chosen.child
        sys.stdout.write(json.dumps(in_duckdb(url, Path(folder), datetime.fromisoformat(as_of))))
        return
    if missing := missing_part():
        Console().print(f"Spark is left out: {missing}")
        return
    rows: list[Row] = []
    for events in map(int, chosen.sizes.split(",")):
        for row in measured(events):
            rows.append(row)
            if chosen.lines:
                with chosen.lines.open("a") as lines:
                    line = {"at": datetime.now(UTC).isoformat(), **asdict(row)}
                    lines.write(json.dumps(line) + "\n")
        assert len({tuple(row.counts) for row in rows if row.events == events}) == 1
    Console(width=120).print(shown(rows))


if __name__ == "__main__":
    main()
