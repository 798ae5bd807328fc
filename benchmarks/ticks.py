"""Ticks: their cost, against the history that is stored and the experiments that are open.

Run by `python -m benchmarks.ticks`. Everything happens in an embedded PostgreSQL: days of
canary traffic are laid in the log, all of it is walked, and then come ticks of a block of new
events each, the same number whatever was stored before.
"""

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from sqlalchemy import Connection, text

from benchmarks.report import options, report
from benchmarks.store import MeasuredStore, deploy, measured_store, register_frozen
from domain.registration import PRODUCTION, Registration
from orchestration.pipeline.steps import publish, stage_due
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.schema.clock import claim_derived_tables
from storage.schema.partitions import create_days, partition_name
from storage.tenants.projects import create_project

BLOCK = timedelta(minutes=5)
EVENTS_A_SESSION = 5
SESSIONS_A_BLOCK = 78  # 90 days of them are 10 million events
GRACE = 120
CANARY_DAYS = 8
TICKS = 12
STEPS = ("exposures", "cells", "evidence", "publish")

# A session is five events within a minute; every third names its user, of whom there are half as
# many as sessions; a session in twenty converts.
_DAY = """
INSERT INTO {table} (
    project_id, environment, event, session_id, occurred_at, received_at, commit_sha, route,
    pseudonym, trusted
)
SELECT {project}, '{environment}',
    (ARRAY['page_view', 'click', 'scroll', 'page_view',
        CASE WHEN mod(n, 20) = 0 THEN 'activation' ELSE 'page_view' END])[k],
    's{name}-' || n,
    at, at + interval '800 milliseconds',
    CASE WHEN mod(hashint8(n), 2) = 0 THEN '{treatment}' ELSE '{control}' END,
    (ARRAY['/', '/list', '/item/[id]', '/cart', '/checkout'])[k],
    CASE WHEN mod(n, 3) = 0 THEN decode(md5('u' || hashint8(n / 6)), 'hex') END,
    false
FROM generate_series(0, {sessions} - 1) AS n
CROSS JOIN generate_series(1, {each}) AS k
CROSS JOIN LATERAL (
    SELECT timestamptz '{begin}' + (n + 0.5) * interval '{spread} microseconds'
        + (k - 1) * interval '10 seconds' AS at
) AS t
WHERE at < timestamptz '{end}' - interval '1 second'
ORDER BY at
"""


def sha(number: int) -> str:
    """The commit of that number."""
    return f"{number:08x}" * 5


@dataclass(kw_only=True)
class World:
    """Projects with canary traffic, in a store of their own.

    Attributes:
        sessions: How many begin in a block, in all projects together.
        projects: Their numbers.
        begins: Where the log begins.
        now: How far it is laid; earlier than the clock, so that nothing waits.
        events: How many it holds.
    """

    store: MeasuredStore
    sessions: int
    projects: list[int]
    begins: datetime
    now: datetime
    events: int = 0

    def lay(self, until: datetime, *, treatment: str, control: str) -> None:
        """Lays traffic on both arms up to a time, in every project, day by day."""
        while self.now < until:
            midnight = self.now.replace(hour=0, minute=0) + timedelta(days=1)
            end = min(until, midnight)
            each = self.sessions // len(self.projects)
            for number in self.projects:
                self._lay_within_a_day(number, end, each, treatment=treatment, control=control)
            self.now = end

    def _lay_within_a_day(
        self, project: int, end: datetime, each: int, *, treatment: str, control: str
    ) -> None:
        sessions = each * int((end - self.now) / BLOCK)
        with self.store.engine.begin() as connection:
            create_days(connection, [self.now.date()])
            laid = _DAY.format(
                table=partition_name(self.now.date()),
                project=project,
                environment=PRODUCTION,
                name=f"{self.now:%y%m%d%H%M}",
                treatment=treatment,
                control=control,
                sessions=sessions,
                each=EVENTS_A_SESSION,
                begin=self.now.isoformat(),
                end=end.isoformat(),
                spread=int((end - self.now).total_seconds() * 1e6 / sessions),
            )
            self.events += connection.exec_driver_sql(laid).rowcount

    def deploy(
        self, commit: str, at: datetime, *, base: str | None = None, share: float | None = None
    ) -> None:
        """Deploys a commit in every project."""
        with self.store.engine.begin() as connection:
            for number in self.projects:
                deploy(connection, number, commit, at, base=base, share=share)

    def register(self, commit: str, *, metrics: Sequence[str] = ("activation",)) -> None:
        """Registers a commit in every project, once for each metric."""
        with self.store.engine.begin() as connection:
            for number in self.projects:
                for metric in metrics:
                    asked = Registration(treatment_commit=commit, target_metric=metric)
                    register_frozen(connection, number, asked)

    def walk(self, as_of: datetime) -> dict[str, float]:
        """Takes the steps, each in a transaction of its own, and returns their seconds."""
        seconds: dict[str, float] = {}

        def step(name: str, work: Callable[[Connection], object]) -> None:
            begun = time.perf_counter()
            with self.store.engine.begin() as connection:
                claim_derived_tables(connection)
                work(connection)
            seconds[name] = time.perf_counter() - begun

        step("exposures", lambda c: extend_exposures(c, as_of=as_of))
        step("cells", extend_cells)
        step("evidence", lambda c: stage_due(c, as_of=as_of))
        step("publish", publish)
        return seconds

    def counted(self, table: str) -> int:
        """Returns the number of rows."""
        with self.store.engine.begin() as connection:
            return connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()


@contextmanager
def world(*, sessions: int, projects: int, days: float) -> Iterator[World]:
    """Yields a world that begins some days before today, without events."""
    with measured_store() as store:
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        begins = today - timedelta(days=1) - timedelta(days=days)
        with store.engine.begin() as connection:
            numbers = [create_project(connection, f"shop{i}").project_id for i in range(projects)]
        yield World(store=store, sessions=sessions, projects=numbers, begins=begins, now=begins)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a tick cost: medians over ticks of as many new events each.

    Attributes:
        what: The history or the experiments.
        events: Stored in the log.
        open: Experiments that are not decided.
        exposures: Rows of exposures.
        new_events: Of each tick.
        seconds: By step.
        total: Of all steps.
        cpu: Seconds of this process and of PostgreSQL.
        peak_mib: This process's largest resident memory so far.
    """

    what: str
    events: int
    open: int
    exposures: int
    new_events: int
    seconds: dict[str, float]
    total: float
    cpu: float
    peak_mib: float


def measured(one: World, what: str, *, treatment: str, control: str) -> Measured:
    """Lays a block and walks, again and again."""
    one.store.vacuum()
    walked: list[dict[str, float]] = []
    cpu: list[float] = []
    before = one.events
    for number in range(TICKS + 2):
        one.lay(one.now + BLOCK, treatment=treatment, control=control)
        begun = _cpu_seconds()
        seconds = one.walk(one.now + timedelta(seconds=GRACE))
        if number >= 2:  # the first ones warm plans and caches
            walked.append(seconds)
            cpu.append(_cpu_seconds() - begun)
    return Measured(
        what=what,
        events=one.events,
        open=one.counted("verdicts WHERE NOT decided"),
        exposures=one.counted("exposures"),
        new_events=(one.events - before) // (TICKS + 2),
        seconds={name: median(tick[name] for tick in walked) for name in STEPS},
        total=median(sum(tick.values()) for tick in walked),
        cpu=median(cpu),
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _cpu_seconds() -> float:
    """Returns the CPU seconds of this process and of every PostgreSQL process of this user."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    total = own.ru_utime + own.ru_stime
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text().partition(") ")
            if name.partition("(")[2] == "postgres":
                total += sum(map(int, rest.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return total


def history(days: int, *, open_days: float) -> Measured:
    """A tick after days of traffic, in which a canary ended every ten days and the last is open."""
    with world(sessions=SESSIONS_A_BLOCK, projects=1, days=days) as one:
        end = one.begins + timedelta(days=days)
        opens = end - timedelta(days=open_days)
        number, standing = 1, sha(1)
        one.deploy(standing, one.begins - timedelta(days=1))
        while opens - one.now >= timedelta(days=1):
            number, canary = number + 1, sha(number + 1)
            one.deploy(canary, one.now, base=standing, share=0.5)
            begun = one.now
            one.lay(
                min(begun + timedelta(days=CANARY_DAYS), opens), treatment=canary, control=standing
            )
            one.register(canary)
            one.deploy(canary, one.now, base=standing, share=1.0)
            one.lay(min(begun + timedelta(days=10), opens), treatment=canary, control=canary)
            standing = canary
        canary = sha(number + 1)
        one.deploy(canary, opens, base=standing, share=0.5)
        one.lay(end, treatment=canary, control=standing)
        one.register(canary)
        one.walk(end)
        return measured(one, f"{days} days, open {open_days:g}", treatment=canary, control=standing)


def crowd(experiments: int) -> Measured:
    """A tick with many open experiments, ten a project, after 14 hours of traffic."""
    metrics = ["activation", *(f"metric{i}" for i in range(1, 10))][:experiments]
    with world(sessions=2_000, projects=max(1, experiments // 10), days=1) as one:
        begin = one.begins + timedelta(hours=10)
        one.now = begin
        one.deploy(sha(1), begin - timedelta(days=1))
        one.deploy(sha(2), begin, base=sha(1), share=0.5)
        one.lay(begin + timedelta(hours=14), treatment=sha(2), control=sha(1))
        one.register(sha(2), metrics=metrics)
        one.walk(one.now)
        return measured(one, f"{experiments} open", treatment=sha(2), control=sha(1))


def _report(rows: Sequence[Measured], lines: Path | None) -> None:
    """Prints the rows, each beside the first."""
    columns: dict[str, Callable[[Measured], str]] = {
        "": lambda row: row.what,
        "events": lambda row: f"{row.events:,}",
        "open": lambda row: f"{row.open:,}",
        "exposures": lambda row: f"{row.exposures:,}",
        "new": lambda row: f"{row.new_events:,}",
        ", ".join(STEPS): lambda row: ", ".join(f"{1000 * row.seconds[x]:,.0f} ms" for x in STEPS),
        "tick": lambda row: f"{1000 * row.total:,.0f} ms",
        "ratio": lambda row: f"{row.total / rows[0].total:.2f}",
        "CPU": lambda row: f"{row.cpu:.2f} s",
        "MiB": lambda row: f"{row.peak_mib:,.0f}",
    }
    report(rows, columns, lines=lines)


def main() -> None:
    """Measures the chosen rows, and prints them."""
    parser = options(__doc__)
    parser.add_argument("--days", type=int, nargs="*", default=[1, 10, 90])
    parser.add_argument("--open-days", type=float, nargs="*", default=[1, 28])
    parser.add_argument("--experiments", type=int, nargs="*", default=[1, 100, 10_000])
    chosen = parser.parse_args()
    for longest in chosen.open_days:
        rows = [history(days, open_days=min(days, longest)) for days in chosen.days]
        _report(rows, chosen.lines)
    _report([crowd(experiments) for experiments in chosen.experiments], chosen.lines)


if __name__ == "__main__":
    main()
