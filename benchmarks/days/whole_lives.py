"""Whole lives: what it costs to compute a day of events, in PostgreSQL and in DuckDB.

Run by `make bench-rebuild`. A day of canary traffic is stored in an embedded PostgreSQL. Its
sessions are counted by `SELECT count(DISTINCT session_id)`; then the pipeline's text computes the
day's exposures and cells from nothing: in PostgreSQL, and in DuckDB, in a process of its own.
DuckDB reads a copy of the rows in Parquet, as it reads sealed hours; the copy's cost stands apart.
Its memory is bounded as a service's: SERVICE_ENGINE_MEMORY_MIB, 1,024 by default.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from benchmarks.days.rebuild import COUNT, Laid, stored, timed
from benchmarks.memory import memory_mib
from benchmarks.report import numbers, options, report
from benchmarks.store import measured_store
from storage.lake.day_engines import day_engine_settings
from storage.lake.duckdb_engine import DuckDBEngine, open_duckdb
from storage.lake.lake import open_lake
from storage.lake.reader import read_apart
from storage.pipeline.experiments import open_experiments
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.pipeline.moments import microseconds
from storage.pipeline.whole_lives import compute_whole_lives
from storage.postgres.engine import open_engine
from storage.upkeep.reading import separate_reading


@dataclass(frozen=True, kw_only=True)
class Row:
    """A day of a given size: CPU seconds, and the peak memory of DuckDB's whole process.

    PostgreSQL's own computation is left out of days that are larger than was asked.
    """

    events: int
    experiments: int
    count_cpu: float
    postgres_cpu: float | None
    copy_cpu: float
    duckdb_cpu: float
    duckdb_seconds: float
    peak_mib: float

    @property
    def ratio(self) -> float:
        """Of DuckDB's CPU to that of the count."""
        return self.duckdb_cpu / max(self.count_cpu, 0.01)


class CopyCost:
    """What an engine's copies of PostgreSQL's rows take, in CPU seconds of this process."""

    def __init__(self, engine: DuckDBEngine) -> None:
        self.cpu = 0.0
        self._copy = engine.copy
        engine.copy = self._measured

    def _measured(self, name: str, batches) -> None:
        begun = time.process_time()
        self._copy(name, batches)
        self.cpu += time.process_time() - begun


def computed_in_duckdb(url: str, as_of: datetime) -> dict[str, float]:
    """Computes the day in this process, and returns what that took."""
    engine = open_engine(url)
    limits = day_engine_settings().limits
    with read_apart(engine, open_lake()) as log, open_duckdb(limits) as duck:
        copying = CopyCost(duck)
        begun, at = time.process_time(), time.perf_counter()
        lives = compute_whole_lives(
            duck, log, open_experiments(log.connection, only=None), as_of=microseconds(as_of)
        )
        spent, seconds = time.process_time() - begun, time.perf_counter() - at
        ((events,),) = lives.engine.rows("SELECT count(*) FROM log_rows")
    engine.dispose()
    return {
        "events": events,
        "copy_cpu": copying.cpu,
        "duckdb_cpu": spent - copying.cpu,
        "duckdb_seconds": seconds,
        "peak_mib": memory_mib("self"),
    }


def measured(laid: Laid, *, experiments: int, with_postgres: bool) -> Row:
    as_of = laid.midnight + timedelta(days=3)
    postgres_cpu: float | None = None

    def text(separate: Connection) -> None:
        extend_exposures(separate, as_of=as_of)
        extend_cells(separate)

    with separate_reading(laid.store.engine) as separate:
        separate.execute(COUNT)
        _, count_cpu = timed(laid.store, lambda: separate.execute(COUNT))
        if with_postgres:
            _, postgres_cpu = timed(laid.store, lambda: text(separate))
    child = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.days.whole_lives",
            "--child",
            laid.store.url,
            as_of.isoformat(),
        ],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ},
    )
    return Row(
        experiments=experiments,
        count_cpu=count_cpu,
        postgres_cpu=postgres_cpu,
        **json.loads(child.stdout),
    )


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "events": lambda row: f"{row.events:,}",
    "experiments": lambda row: str(row.experiments),
    "count(DISTINCT)": lambda row: f"{row.count_cpu:.2f}",
    "PostgreSQL": lambda row: "–" if row.postgres_cpu is None else f"{row.postgres_cpu:.2f}",
    "DuckDB": lambda row: f"{row.duckdb_cpu:.2f}",
    "ratio to count": lambda row: f"{row.ratio:.2f}",
    "events a CPU s": lambda row: f"{row.events / row.duckdb_cpu:,.0f}",
    "copy to Parquet": lambda row: f"{row.copy_cpu:.2f}",
    "DuckDB's process": lambda row: f"{row.peak_mib:.0f} MiB",
}


def main() -> None:
    """Measures each size and prints it."""
    parser = options(__doc__, sizes=(1_000_000, 10_000_000))
    parser.add_argument(
        "--postgres-up-to",
        type=int,
        default=10_000_000,
        help="events of the largest day that PostgreSQL computes too: it takes ten times as long",
    )
    parser.add_argument("--experiments", type=numbers, default=(1, 3), help="at most 3")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        url, as_of = chosen.child
        sys.stdout.write(json.dumps(computed_in_duckdb(url, datetime.fromisoformat(as_of))))
        return
    rows: list[Row] = []
    for events in chosen.sizes:
        for experiments in chosen.experiments:
            with measured_store() as store:
                day = stored(store, events=events, experiments=experiments)
                in_postgres = events <= chosen.postgres_up_to
                rows.append(measured(day, experiments=experiments, with_postgres=in_postgres))
    title = "One day computed: CPU seconds"
    report(rows, _COLUMNS, lines=chosen.lines, title=title)


if __name__ == "__main__":
    main()
