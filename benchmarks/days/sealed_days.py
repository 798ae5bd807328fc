"""Sealed days: what DuckDB takes to compute a day that is in the lake alone, to 100 million events.

Run by `python -m benchmarks.days.sealed_days --sizes 1000000,10000000,100000000`. The files of a
day of canary traffic are written and listed, as sealing would, in a store that holds none of the
events: PostgreSQL would take an hour to store the largest. Then the day's exposures and cells are
computed in a process of its own, after the files were verified, which is measured apart. Beside it
DuckDB counts the day's distinct sessions, and runs the query that a data engineer would write.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
from sqlalchemy import text

from benchmarks.days.analyst import analysed
from benchmarks.days.rebuild import CONTROL, EVENTS_A_SESSION, TREATMENT, Laid, stored
from benchmarks.days.whole_lives import computed_in_duckdb
from benchmarks.report import options, report
from benchmarks.store import measured_store
from domain.registration import PRODUCTION
from storage.lake.lake import file_sha256, open_lake
from storage.lake.sealed_hours import sealed_files
from storage.lake.verification import wrong_files
from storage.postgres.engine import open_engine

HOURS = 24
# The traffic of `benchmarks.days.rebuild`, with sessions in the order in which they begin.
_HOUR = """
COPY (
    SELECT CAST(1 AS INTEGER) AS project_id, '{environment}' AS environment,
        CASE
            WHEN k = 1 THEN 'page_view'
            WHEN k = 4 AND dice % 20 = 0 THEN 'activation'
            WHEN k = 5 AND dice % 100 = 7 THEN 'error'
            WHEN k = 5 THEN 'page_view'
            ELSE 'click'
        END AS event,
        session_id, occurred, received,
        CASE WHEN dice // 8 % 2 = 0 THEN '{treatment}' ELSE '{control}' END AS commit_sha,
        CASE WHEN k < 4 THEN '/list' ELSE '/item/[id]' END AS route,
        CASE WHEN n % 5 = 0 THEN sha256(concat('u', n // 10 * 10)) END AS pseudonym,
        false AS trusted, false AS signed, CAST(NULL AS VARCHAR) AS event_id,
        CAST(NULL AS BIGINT) AS value, CAST(NULL AS VARCHAR) AS flags,
        CAST(NULL AS VARCHAR) AS properties, CAST(NULL AS BIGINT) AS sent
    FROM (
        SELECT n, k, dice, CAST(md5(concat(n, '{begin}')) AS UUID)::VARCHAR AS session_id,
            {begin} + 1000000 + n * {gap} + k * 12000000 AS occurred,
            {begin} + 1000000 + n * {gap} + k * 12000000 + (200 + dice * k % 1800) * 1000
                AS received
        FROM (
            SELECT n, CAST(hash(n) & 2147483647 AS BIGINT) AS dice
            FROM range({first}, {last}) AS sessions(n)
        ) AS drawn
        CROSS JOIN (SELECT unnest(range(1, {each} + 1)) AS k) AS numbers
    ) AS timed
    WHERE received >= {begin} + {hour} * 3600000000
      AND received < {begin} + ({hour} + 1) * 3600000000
    ORDER BY session_id
) TO '{file}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 1000000)
"""
_LIST = text("""
INSERT INTO sealed_hours (hour, part, closed_at, sealed_at, file, rows, bytes, sha256, last_erasure)
VALUES (:hour, 0, now(), now(), :file, :rows, :bytes, :sha256, 0)
""")
_SECOND = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Row:
    """A day of a given size: CPU seconds, and the peak memory of the computing process."""

    events: int
    lake_mib: float
    count_cpu: float
    analyst_cpu: float
    verify_cpu: float
    cpu: float
    seconds: float
    peak_mib: float

    @property
    def rate(self) -> float:
        """Events a CPU second."""
        return self.events / self.cpu


def write_day(day: Laid, lake: Path, events: int) -> None:
    """Writes the files of a day, and lists them in its store."""
    sessions = events // EVENTS_A_SESSION
    begin, gap = round(day.midnight.timestamp()) * _SECOND, 86_000 * _SECOND // sessions
    for hour in range(HOURS):
        begins = day.midnight + timedelta(hours=hour)
        name = f"{begins:%Y-%m-%d/%H}-0-benchmark.parquet"
        file = lake / name
        file.parent.mkdir(parents=True, exist_ok=True)
        first = max(0, (hour * 3600 - 90) * _SECOND // gap)
        last = min(sessions, (hour + 1) * 3600 * _SECOND // gap)
        (rows,) = duckdb.execute(
            _HOUR.format(
                environment=PRODUCTION,
                treatment=TREATMENT,
                control=CONTROL,
                begin=begin,
                gap=gap,
                first=first,
                last=last,
                each=EVENTS_A_SESSION,
                hour=hour,
                file=file,
            )
        ).fetchall()[0]
        values = {
            "hour": begins,
            "file": name,
            "rows": rows,
            "bytes": file.stat().st_size,
            "sha256": file_sha256(file),
        }
        with day.store.engine.begin() as connection:
            connection.execute(_LIST, values)


def counted(lake: Path) -> float:
    """Returns the CPU seconds that counting the distinct sessions takes, in a single thread."""
    with duckdb.connect(":memory:", config={"threads": 1}) as database:
        spent = time.process_time()
        database.execute(
            f"SELECT count(DISTINCT session_id) FROM read_parquet('{lake}/*/*.parquet')"
        ).fetchall()
        return time.process_time() - spent


def measured(events: int) -> Row:
    with measured_store() as store:
        lake = store.folder / "lake"
        day = stored(store, events=0, experiments=3)
        write_day(day, lake, events)
        as_of = (day.midnight + timedelta(days=3)).isoformat()
        child = subprocess.run(
            [sys.executable, "-m", "benchmarks.days.sealed_days", "--child", store.url, as_of],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        found = json.loads(child.stdout)
        assert found["events"] == events
        size = sum(file.stat().st_size for file in lake.rglob("*.parquet"))
        count_cpu, (analyst_cpu, _) = counted(lake), analysed(lake)
        return Row(lake_mib=size / 2**20, count_cpu=count_cpu, analyst_cpu=analyst_cpu, **found)


def computed(url: str, as_of: datetime) -> dict[str, float]:
    """Computes the day in this process, and returns what that took."""
    engine = open_engine(url)
    with engine.connect() as connection:
        listed = sealed_files(connection, as_of - timedelta(days=30), as_of)
    spent = time.process_time()
    assert wrong_files(open_lake(), listed) == {}
    verify_cpu = time.process_time() - spent
    engine.dispose()
    # Which reads no file again to verify it.
    found = computed_in_duckdb(url, as_of)
    return {
        "events": found["events"],
        "verify_cpu": verify_cpu,
        "cpu": found["duckdb_cpu"] + found["copy_cpu"],
        "seconds": found["duckdb_seconds"],
        "peak_mib": found["peak_mib"],
    }


def main() -> None:
    """Measures each size and prints it."""
    parser = options(__doc__, sizes=(1_000_000, 10_000_000))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        url, as_of = chosen.child
        sys.stdout.write(json.dumps(computed(url, datetime.fromisoformat(as_of))))
        return
    rows = [measured(events) for events in chosen.sizes]
    columns: dict[str, Callable[[Row], str]] = {
        "events": lambda row: f"{row.events:,}",
        "lake": lambda row: f"{row.lake_mib:,.0f} MiB",
        "computed": lambda row: f"{row.cpu:.1f} s",
        "verified": lambda row: f"{row.verify_cpu:.3f} s",
        "of the computation": lambda row: f"{row.verify_cpu / row.cpu:.3f}",
        "events a CPU s": lambda row: f"{row.rate:,.0f}",
        "of the first's CPU an event": lambda row: f"{rows[0].rate / row.rate:.2f}",
        "wall": lambda row: f"{row.seconds:.1f} s",
        "process": lambda row: f"{row.peak_mib:,.0f} MiB",
        "count(DISTINCT) in DuckDB": lambda row: f"{row.count_cpu:.1f} s",
        "the analyst's query": lambda row: f"{row.analyst_cpu:.1f} s",
        "computed, of the query": lambda row: f"{row.cpu / row.analyst_cpu:.1f}",
    }
    title = "A sealed day, three experiments, in DuckDB with one thread: CPU seconds"
    report(rows, columns, lines=chosen.lines, title=title)


if __name__ == "__main__":
    main()
