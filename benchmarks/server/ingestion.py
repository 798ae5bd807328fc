"""Ingestion and polling: requests a second of real servers, as ratios to what bounds them.

Run by `make bench`. The load comes from wrk (Debian's package), the store is an embedded
PostgreSQL with fsync on, and everything shares this machine's cores: only ratios say much.
"""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import psycopg

from benchmarks.report import options, report
from benchmarks.server.load import BATCH_CONNECTIONS, CONNECTIONS, Load, posting
from benchmarks.server.stage import TREE, Server, Stage, serving, staged
from storage.postgres.engine import connection_string, session_options
from storage.tenants.keys import KeyKind

SIZES = (1, 10, 100, 500)
WORKERS = (1, 2)
COPIED_ROWS = 500_000
# By events a request and workers: what is asked for, and what was measured first.
_LIMITS = {(100, 1): 0.3, (100, 2): 0.3, (500, 2): 0.5}
_BEFORE = {(100, 1): "0.16-0.22", (100, 2): "0.16-0.22", (500, 2): "0.29-0.33"}
# A constant and a verdict are polled in turns: other work on the machine comes and goes.
_TURNS = 3
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A load on a server.

    Attributes:
        what: What was asked.
        server: Which checkout answered.
        workers: Its worker processes.
        rows: Events a request holds; 0 where there are none.
        requests_per_second: Answered with success.
        p50_ms: Half of the answers came within these milliseconds.
        p99_ms: 99 of 100 answers did.
        api_cpu: CPU seconds of the server a second.
        store_cpu: CPU seconds of PostgreSQL a second.
        api_mib: The server's most resident memory, all its processes.
        failures: Answers of 400 and more, and broken connections.
        ratio: To what bounds it; None where nothing does.
        cpu_ratio: The same by CPU seconds of the server and PostgreSQL, which other work on the
            machine disturbs less.
        limit: The least ratio that is asked for.
        before: The ratio that was measured first.
        bound: What bounds it.
    """

    what: str
    server: str
    workers: int
    rows: int
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    api_cpu: float
    store_cpu: float
    api_mib: float
    failures: int
    ratio: float | None = None
    cpu_ratio: float | None = None
    limit: float | None = None
    before: str = ""
    bound: str = ""

    @property
    def requests_per_cpu(self) -> float:
        """Requests a CPU second of the server and of PostgreSQL."""
        return self.requests_per_second / max(self.api_cpu + self.store_cpu, 1 / _TICKS)

    @property
    def api_microseconds(self) -> float:
        """CPU microseconds of the server a request, or an event where a request holds some."""
        return self.api_cpu / (self.requests_per_second * max(self.rows, 1)) * 1e6

    @property
    def store_microseconds(self) -> float:
        """The same of PostgreSQL."""
        return self.store_cpu / (self.requests_per_second * max(self.rows, 1)) * 1e6

    @property
    def per_core(self) -> float:
        """Events, or requests that hold none, that a core takes in a second, PostgreSQL's part in.

        A second of CPU does less where other work disturbs it: what it says then is a floor.
        """
        return self.requests_per_cpu * max(self.rows, 1)

    @property
    def rows_per_second(self) -> float:
        """Events a second."""
        return self.requests_per_second * self.rows


def loaded(
    stage: Stage, server: Server, *, what: str, path: str, seconds: float, rows: int = 0
) -> Measured:
    """Returns what a server answers under load.

    Args:
        stage: The store behind it.
        what: The name in the report.
        path: What is asked.
        seconds: For how long, after a second that does not count.
        rows: Events a request; 0 asks by GET.
    """
    script = posting(rows) if rows else ""
    kind = KeyKind.WRITE if rows else KeyKind.PROJECT
    connections = CONNECTIONS if rows <= 1 else BATCH_CONNECTIONS
    load = Load(stage=stage, script=script, connections=connections, kind=kind)
    load.on(server.url + path, seconds=1)
    before = cpu_seconds(server.process), cpu_seconds(stage.postgres)
    told = load.on(server.url + path, seconds=seconds)
    after = cpu_seconds(server.process), cpu_seconds(stage.postgres)
    elapsed = told["microseconds"] / 1e6
    return Measured(
        what=what,
        server=server.label,
        workers=server.workers,
        rows=rows,
        requests_per_second=(told["requests"] - told["failures"]) / elapsed,
        p50_ms=told["p50_us"] / 1e3,
        p99_ms=told["p99_us"] / 1e3,
        api_cpu=(after[0] - before[0]) / elapsed,
        store_cpu=(after[1] - before[1]) / elapsed,
        api_mib=peak_mib(server.process),
        failures=told["failures"],
    )


def copied_rows(stage: Stage, rows: int) -> tuple[float, float]:
    """Returns how fast rows that are in the log enter it again: binary COPY, a single process.

    Returns:
        Rows a second, and rows a CPU second of this process and of PostgreSQL.
    """
    with psycopg.connect(
        connection_string(stage.url), autocommit=True, options=session_options()
    ) as connection:
        wanted = f"SELECT * FROM runtime_events LIMIT {rows}"
        with connection.cursor().copy(f"COPY ({wanted}) TO STDOUT (FORMAT BINARY)") as copy:
            blocks = [bytes(block) for block in copy]
        encoded = b"".join(blocks)
        chunks = [encoded[at : at + 2**18] for at in range(0, len(encoded), 2**18)]
        found = connection.execute("SELECT count(*) FROM runtime_events").fetchone()
        stored = min(rows, found[0] if found else 0)
        began, spent = time.perf_counter(), time.process_time() + cpu_seconds(stage.postgres)
        with connection.cursor().copy("COPY runtime_events FROM STDIN (FORMAT BINARY)") as copy:
            for chunk in chunks:
                copy.write(chunk)
        cpu = time.process_time() + cpu_seconds(stage.postgres) - spent
        return stored / (time.perf_counter() - began), stored / max(cpu, 1 / _TICKS)


def descendants(process: int) -> list[int]:
    """Returns a process and all that it, and they, started."""
    found, waiting = [], [process]
    while waiting:
        one = waiting.pop()
        found.append(one)
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            waiting += [int(child) for child in task.read_text().split()]
    return found


def cpu_seconds(process: int) -> float:
    """Returns the CPU seconds of a process and its descendants, those that ended included."""
    total = 0
    for one in descendants(process):
        with contextlib.suppress(FileNotFoundError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(ticks) for ticks in fields[11:15])
    return total / _TICKS


def peak_mib(process: int) -> float:
    """Returns the most resident memory of a process and its descendants, in MiB."""
    total = 0
    for one in descendants(process):
        status = Path(f"/proc/{one}/status").read_text()
        if (found := re.search(r"VmHWM:\s+(\d+) kB", status)) is not None:
            total += int(found[1])
    return total / 1024


def ingestion(stage: Stage, trees: dict[str, Path], seconds: float) -> list[Measured]:
    """Returns the rows a second at each size of batch, and what bounds them."""
    measured: list[Measured] = []
    for label, tree in trees.items():
        for workers in WORKERS:
            with serving(stage, tree=tree, label=label, workers=workers, stored=True) as server:
                measured += [
                    loaded(
                        stage, server, what="events", path="/v1/events", seconds=seconds, rows=rows
                    )
                    for rows in SIZES
                ]
    with serving(stage, tree=TREE, label="now", workers=1, stored=False) as server:
        unstored = loaded(
            stage, server, what="not stored", path="/v1/events", seconds=seconds, rows=1
        )
    copied, copied_by_cpu = copied_rows(stage, COPIED_ROWS)
    return [
        *(
            replace(
                one,
                ratio=one.requests_per_second / unstored.requests_per_second,
                cpu_ratio=one.requests_per_cpu / unstored.requests_per_cpu,
                limit=0.9,
                before="0.81",
                bound="not stored",
            )
            if one.rows == 1
            else replace(
                one,
                ratio=one.rows_per_second / copied,
                cpu_ratio=one.requests_per_cpu * one.rows / copied_by_cpu,
                limit=_LIMITS.get((one.rows, one.workers)),
                before=_BEFORE.get((one.rows, one.workers), ""),
                bound="binary COPY",
            )
            for one in measured
        ),
        unstored,
        replace(
            unstored,
            what="binary COPY",
            server="psql's peer",
            rows=1,
            requests_per_second=copied,
            p50_ms=0,
            p99_ms=0,
            api_cpu=0,
            store_cpu=0,
            api_mib=0,
        ),
    ]


def polling(stage: Stage, trees: dict[str, Path], seconds: float) -> list[Measured]:
    """Returns how fast a verdict is polled, against a constant answer of the same server."""
    measured: list[Measured] = []
    for label, tree in trees.items():
        for workers in WORKERS:
            with serving(stage, tree=tree, label=label, workers=workers, stored=True) as server:
                turns = [_polled(stage, server, seconds / _TURNS) for _ in range(_TURNS)]
            constant, polled = sorted(turns, key=_cpu_ratio)[_TURNS // 2]
            tail = median(polled.p99_ms / constant.p99_ms for constant, polled in turns)
            measured += [
                constant,
                replace(
                    polled,
                    ratio=median(
                        polled.requests_per_second / constant.requests_per_second
                        for constant, polled in turns
                    ),
                    cpu_ratio=median(map(_cpu_ratio, turns)),
                    limit=0.7,
                    before="0.5-0.64",
                    bound=f"a constant; p99 {tail:.1f} times",
                ),
            ]
    return measured


def _polled(stage: Stage, server: Server, seconds: float) -> tuple[Measured, Measured]:
    """Returns a constant and a verdict as they were asked for in turn."""
    path = f"/v1/reward/{stage.experiment_id}"
    return (
        loaded(stage, server, what="a constant", path="/healthz", seconds=seconds),
        loaded(stage, server, what="a verdict", path=path, seconds=seconds),
    )


def _cpu_ratio(turn: tuple[Measured, Measured]) -> float:
    constant, polled = turn
    return polled.requests_per_cpu / constant.requests_per_cpu


_COLUMNS: dict[str, Callable[[Measured], str]] = {
    "what": lambda row: row.what,
    "server": lambda row: row.server,
    "workers": lambda row: str(row.workers),
    "events a request": lambda row: str(row.rows or "-"),
    "requests/s": lambda row: f"{row.requests_per_second:,.0f}",
    "events/s": lambda row: f"{row.rows_per_second:,.0f}" if row.rows else "-",
    "p50 ms": lambda row: f"{row.p50_ms:.2f}",
    "p99 ms": lambda row: f"{row.p99_ms:.2f}",
    "CPU api": lambda row: f"{row.api_cpu:.2f}",
    "CPU store": lambda row: f"{row.store_cpu:.2f}",
    "µs api": lambda row: f"{row.api_microseconds:.1f}",
    "µs store": lambda row: f"{row.store_microseconds:.1f}",
    "a core": lambda row: f"{row.per_core:,.0f}" if row.api_cpu else "",
    "MiB api": lambda row: f"{row.api_mib:.0f}",
    "failed": lambda row: str(row.failures),
    "by CPU": lambda row: "" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}",
    "limit": lambda row: "" if row.limit is None else f"≥ {row.limit}",
    "before": lambda row: row.before,
    "ratio": lambda row: "" if row.ratio is None else f"{row.ratio:.2f} of {row.bound}",
}


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--before", type=Path, help="an earlier checkout, measured beside this")
    parser.add_argument("--only", choices=["ingestion", "polling"])
    chosen = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("the load comes from wrk: apt-get install wrk")
    trees = {"before": chosen.before} if chosen.before else {}
    trees["now"] = TREE
    rows: list[Measured] = []
    for name, measure in {"ingestion": ingestion, "polling": polling}.items():
        if chosen.only in (None, name):
            with staged() as stage:
                rows += measure(stage, trees, chosen.seconds)
    title = "Ratios of one run on this machine, its load included"
    report(rows, _COLUMNS, lines=chosen.lines, title=title)


if __name__ == "__main__":
    main()
