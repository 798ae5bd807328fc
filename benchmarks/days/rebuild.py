"""Rebuilds: what the check of a day costs, against counting its sessions.

Run by `python -m benchmarks.days.rebuild`. A day of canary traffic is laid in the log of an
embedded PostgreSQL, walked, and sealed into a lake as each hour is; then, in turns and with
everything warm, the sessions of the day are counted by `SELECT count(DISTINCT session_id)`, and the
day is computed anew and compared. With `--days` its experiments have run for so many such days,
which the check of the last day reads as well.
"""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median

from sqlalchemy import Connection, text

from benchmarks.report import numbers, options, report
from benchmarks.store import MeasuredStore, deploy, measured_store, register_frozen
from domain.registration import PRODUCTION, Registration
from orchestration.pipeline.day_check import compare_days
from storage.lake.lake import open_lake
from storage.lake.sealing import Sealer
from storage.log.events import note_history
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.schema.clock import claim_derived_tables
from storage.schema.partitions import create_days, partition_name
from storage.tenants.projects import create_project
from storage.upkeep.reading import separate_reading

SIZES = (100_000, 1_000_000, 10_000_000)
EVENTS_A_SESSION = 5
CONTROL, TREATMENT = "c0ffee00" * 5, "decade10" * 5
METRICS = ("activation", "signup_completed", "search")

# A session is named as a browser would, begins at any time of the day, and sends five events on
# two routes; 1 in 20 converts, 1 in 100 meets an error, 1 in 5 names its user,
# of whom each comes twice. Events are stored in the order in which they are received.
_DAY = """
COPY (
    SELECT {project}, '{environment}',
        CASE
            WHEN k = 1 THEN 'page_view'
            WHEN k = 4 AND dice % 20 = 0 THEN 'activation'
            WHEN k = 5 AND dice % 100 = 7 THEN 'error'
            WHEN k = 5 THEN 'page_view'
            ELSE 'click'
        END,
        name,
        at, at + (200 + (dice * k) % 1800) * interval '1 millisecond' AS received_at,
        CASE WHEN dice / 8 % 2 = 0 THEN '{treatment}' ELSE '{control}' END,
        CASE WHEN k < 4 THEN '/list' ELSE '/item/[id]' END,
        CASE WHEN n % 5 = 0 THEN sha256(('u' || n / 10 * 10)::bytea) END,
        false, false
    FROM generate_series(1, {sessions}) AS n
    CROSS JOIN LATERAL (
        SELECT hashint8extended(n, 7) & 2147483647 AS dice,
            md5(n::text || '{begin}')::uuid::text AS name
    ) AS s
    CROSS JOIN generate_series(1, {each}) AS k
    CROSS JOIN LATERAL (
        SELECT timestamptz '{begin}' + interval '1 second'
            + (dice / 2147483648.0) * interval '86000 seconds' + k * interval '12 seconds' AS at
    ) AS t
    ORDER BY 6
) TO STDOUT (FORMAT binary)
"""


@dataclass(frozen=True, kw_only=True)
class Laid:
    """A store with a day of traffic in it, walked.

    Attributes:
        midnight: Where the day begins.
        events: How many were laid.
    """

    store: MeasuredStore
    midnight: datetime
    events: int


def stored(store: MeasuredStore, *, events: int, experiments: int, days: int = 1) -> Laid:
    """Stores days of which the last ended two days ago, and registers experiments on the first."""
    engine = store.engine
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    midnight = today - timedelta(days=3)
    midnights = [midnight - timedelta(days=number) for number in reversed(range(days))]
    with engine.begin() as connection:
        project_id = create_project(connection, "shop").project_id
        create_days(connection, [begin.date() for begin in midnights])
        deploy(connection, project_id, CONTROL, midnights[0] - timedelta(days=1))
        deploy(connection, project_id, TREATMENT, midnights[0], base=CONTROL, share=0.5)
    for begin in midnights:
        _store_day(store, project_id, begin, events=events)
    with engine.begin() as connection:
        # As history it keeps its past, though it is registered last.
        note_history(connection, project_id, [(PRODUCTION, today)])
        for metric in METRICS[:experiments]:
            asked = Registration(treatment_commit=TREATMENT, target_metric=metric)
            register_frozen(connection, project_id, asked)
    store.vacuum()
    return Laid(store=store, midnight=midnight, events=events)


def _store_day(store: MeasuredStore, project_id: int, midnight: datetime, *, events: int) -> None:
    day = _DAY.format(
        project=f"{project_id}::int",
        environment=PRODUCTION,
        control=CONTROL,
        treatment=TREATMENT,
        begin=midnight.isoformat(),
        sessions=events // EVENTS_A_SESSION,
        each=EVENTS_A_SESSION,
    )
    target = (
        f"COPY {partition_name(midnight.date())} (project_id, environment, event, session_id,"
        " occurred_at, received_at, commit_sha, route, pseudonym, trusted, signed)"
        " FROM STDIN (FORMAT binary)"
    )
    with store.engine.connect() as told, store.engine.begin() as kept:
        source, sink = told.connection.cursor(), kept.connection.cursor()
        with source.copy(day) as rows, sink.copy(target) as copy:
            for row in rows:
                copy.write(row)


def laid(store: MeasuredStore, *, events: int, experiments: int, days: int = 1) -> Laid:
    """Stores such days, and adds their exposures and cells."""
    day = stored(store, events=events, experiments=experiments, days=days)
    with store.engine.begin() as connection:
        claim_derived_tables(connection)
        extend_exposures(connection, as_of=day.midnight + timedelta(days=3))
        extend_cells(connection)
    store.vacuum()
    return day


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A day computed anew and compared with what is served, against counting its sessions.

    Attributes:
        events: Of the day.
        experiments: That read the day.
        count_seconds: Of `SELECT count(DISTINCT session_id)`; of all seconds the median.
        check_seconds: Of the computation, the comparison and all verdicts.
        count_cpu: CPU seconds of PostgreSQL, parallel workers included.
        check_cpu: The same, with those of this process, in which DuckDB computes.
        cpu_ratio: Of these: other load of the machine disturbs it less.
        peak_mib: Of this process.
    """

    events: int
    experiments: int
    count_seconds: float
    check_seconds: float
    count_cpu: float
    check_cpu: float
    cpu_ratio: float
    peak_mib: float


def measured(laid: Laid, *, experiments: int, rounds: int) -> Measured:
    """Counts and checks in turns, in a single transaction's settings."""
    # A settled day is read from its files.
    if Sealer(engine=laid.store.engine, lake=open_lake()).seal() is None:
        raise SystemExit("another process seals")
    day, as_of = laid.midnight.date(), laid.midnight + timedelta(days=3)
    count: list[tuple[float, float]] = []
    check: list[tuple[float, float]] = []

    def checked(separate: Connection) -> None:
        found = compare_days(separate, day, day, as_of=as_of)
        if not found.equal or found.experiments != experiments:
            raise SystemExit(f"the day computed is not the day served: {found}")

    for number in range(rounds + 1):
        with separate_reading(laid.store.engine) as separate:
            count.append(timed(laid.store, lambda: separate.execute(COUNT)))
            spent = time.process_time()
            seconds, cpu = timed(laid.store, lambda: checked(separate))
            check.append((seconds, cpu + time.process_time() - spent))
        if number == 0:  # the first warms caches
            count.clear()
            check.clear()
    count_seconds, count_cpu = (median(values) for values in zip(*count, strict=True))
    check_seconds, check_cpu = (median(values) for values in zip(*check, strict=True))
    return Measured(
        events=laid.events,
        experiments=experiments,
        count_seconds=count_seconds,
        check_seconds=check_seconds,
        count_cpu=count_cpu,
        check_cpu=check_cpu,
        cpu_ratio=check_cpu / max(count_cpu, 0.01),
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


COUNT = text("SELECT count(DISTINCT session_id) FROM runtime_events")


def timed(store: MeasuredStore, work: Callable[[], object]) -> tuple[float, float]:
    """Returns the seconds that some work takes, and PostgreSQL's CPU seconds."""
    begun, spent = time.perf_counter(), store.cpu_seconds()
    work()
    return time.perf_counter() - begun, store.cpu_seconds() - spent


_COLUMNS: dict[str, Callable[[Measured], str]] = {
    "events": lambda row: f"{row.events:,}",
    "experiments": lambda row: str(row.experiments),
    "count": lambda row: f"{row.count_seconds:.2f} s",
    "check": lambda row: f"{row.check_seconds:.2f} s",
    "CPU count": lambda row: f"{row.count_cpu:.2f} s",
    "CPU check": lambda row: f"{row.check_cpu:.2f} s",
    "CPU ratio": lambda row: f"{row.cpu_ratio:.1f}",
    "memory": lambda row: f"{row.peak_mib:.0f} MiB",
}


def main() -> None:
    """Measures each size and prints it."""
    parser = options(__doc__, sizes=SIZES)
    parser.add_argument("--experiments", type=numbers, default=(1, 3), help="at most 3")
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    rows: list[Measured] = []
    for events in chosen.sizes:
        for experiments in chosen.experiments:
            with measured_store() as store:
                day = laid(store, events=events, experiments=experiments, days=chosen.days)
                rows.append(measured(day, experiments=experiments, rounds=chosen.rounds))
    title = "One day checked, beside SELECT count(DISTINCT session_id) of the same rows"
    report(rows, _COLUMNS, lines=chosen.lines, title=title)


if __name__ == "__main__":
    main()
