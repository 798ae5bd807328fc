"""What a tick reads of the log: the days of the new events, whatever is stored beside them."""

import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from orchestration.pipeline.day_check import compare_days
from storage.log.events import note_history
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.pipeline.moments import microseconds
from storage.schema.partitions import create_days, partition_name
from storage.tenants.projects import create_project
from storage.upkeep.invariants import lost_sessions
from storage.upkeep.reading import separate_reading
from storage.views.sources import lags_of_measured_projects, read_sources
from tests.conftest import Store, fresh_store
from tests.repetition import also_nightly
from tests.world import record_deploy, register_experiment

CONTROL, TREATMENT = "c0ffee0", "decade1"
STORED = 35
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
OLDEST = TODAY - timedelta(days=STORED)

# A session an hour of each arm on each day: it names its user, converts, and meets an error.
_TRAFFIC = text("""
INSERT INTO runtime_events (project_id, environment, event, session_id, occurred_at, received_at,
    commit_sha, route, pseudonym, trusted)
SELECT :project, 'production', event, 's' || extract(epoch FROM at) || arm, at, at, arm, '/list',
    sha256(at::text::bytea), false
FROM generate_series(CAST(:first AS timestamptz), :last, interval '1 hour') AS at
CROSS JOIN unnest(ARRAY['page_view', 'click', 'error']) AS event
CROSS JOIN unnest(CAST(:arms AS text[])) AS arm
""")

# How often PostgreSQL began to read each partition: to find a session's user, or in another way.
_SCANS = text("""
SELECT t.relname, t.seq_scan AS times, false AS by_session
FROM pg_stat_user_tables AS t WHERE t.relname LIKE 'runtime\\_events\\_%'
UNION ALL
SELECT i.relname, i.idx_scan, i.indexrelname LIKE '%session_id%'
FROM pg_stat_user_indexes AS i WHERE i.relname LIKE 'runtime\\_events\\_%'
""")

# What a connection counted is reported within a second; here at the end of its transaction.
_TELL = text("SELECT pg_stat_force_next_flush()")


@dataclass(frozen=True, kw_only=True)
class Read:
    """The partitions that some work read, and those in which it looked sessions up."""

    days: set[str]
    looked_up: set[str]


def read_by(engine: Engine, work: Callable[[Connection], object]) -> Read:
    before = _scans(engine)
    with engine.begin() as connection:
        work(connection)
        connection.execute(_TELL)
    after = _scans(engine) - before
    return Read(
        days={name for name, by_session in after if not by_session},
        looked_up={name for name, by_session in after if by_session},
    )


def _scans(engine: Engine) -> Counter[tuple[str, bool]]:
    counted: Counter[tuple[str, bool]] = Counter()
    with engine.begin() as connection:
        connection.execute(_TELL)
    with engine.begin() as connection:
        for row in connection.execute(_SCANS):
            counted[row.relname, row.by_session] += row.times
    return counted


def partitions(first: date, last: date) -> set[str]:
    days = (last - first).days + 1
    return {partition_name(first + timedelta(days=number)) for number in range(days)}


@pytest.fixture(scope="module")
def engine(postgres_url, migrated_template) -> Iterator[Engine]:
    """Five weeks of traffic, four of them with experiments that are open; walked to yesterday."""
    with fresh_store(postgres_url, migrated_template) as store:
        walk_to_yesterday(store)
        yield store.engine


def walk_to_yesterday(store: Store) -> None:
    with store.engine.begin() as connection:
        project = create_project(connection, "shop").project_id
        create_days(connection, [(OLDEST + timedelta(days=n)).date() for n in range(STORED + 1)])
        asked = {"project": project, "arms": [CONTROL, TREATMENT]}
        connection.execute(_TRAFFIC, {**asked, "first": OLDEST, "last": TODAY})
        note_history(connection, project, [("production", TODAY)])
        starts = TODAY - timedelta(days=27)
        record_deploy(connection, project, CONTROL, OLDEST)
        record_deploy(connection, project, TREATMENT, starts, 0.5, base=CONTROL)
        for metric, routes in (("click", None), ("activation", ["/list"])):
            asked_for = {"target_metric": metric, "routes": routes}
            register_experiment(connection, project, treatment_commit=TREATMENT, **asked_for)
        # Days so small are cheaper read whole than looked into.
        name = connection.execute(text("SELECT current_database()")).scalar_one()
        connection.execute(text(f"ALTER DATABASE {name} SET enable_seqscan = off"))
        connection.execute(text("ANALYZE"))
    store.engine.dispose()
    tick(store.engine, TODAY - timedelta(hours=6))


def tick(engine: Engine, as_of: datetime) -> tuple[Read, Read]:
    return (
        read_by(engine, lambda connection: extend_exposures(connection, as_of=as_of)),
        read_by(engine, extend_cells),
    )


YESTERDAY = TODAY.date() - timedelta(days=1)


def test_a_tick_reads_the_days_of_the_new_events_whatever_is_stored(engine) -> None:
    for hours in (5, 4):
        exposures, cells = tick(engine, TODAY - timedelta(hours=hours))

        assert exposures.days == cells.days == {partition_name(YESTERDAY)}
        # A session's user may have been named up to four weeks before.
        assert exposures.looked_up <= partitions(YESTERDAY - timedelta(days=28), YESTERDAY)
        assert cells.looked_up <= {partition_name(YESTERDAY)}


def test_a_day_computed_anew_reads_no_day_that_its_experiments_have_not(engine) -> None:
    day = YESTERDAY - timedelta(days=7)

    def computed() -> None:
        with separate_reading(engine) as separate:
            assert compare_days(separate, day, day, as_of=TODAY).equal
            separate.execute(_TELL)

    read = read_by(engine, lambda _: computed())

    assert partition_name(day) in read.days
    assert read.days | read.looked_up <= partitions(OLDEST.date(), YESTERDAY)


@pytest.mark.parametrize("observation", [read_sources, lags_of_measured_projects, lost_sessions])
def test_an_observation_reads_the_last_days(engine, observation) -> None:
    read = read_by(engine, observation)

    assert read.days <= partitions(YESTERDAY - timedelta(days=1), TODAY.date())
    assert read.looked_up <= read.days


# Canaries, each in an environment of its own: each quarter of an hour a session of each arm.
_MANY = text("""
INSERT INTO runtime_events (project_id, environment, event, session_id, occurred_at, received_at,
    commit_sha, route, trusted)
SELECT :project, 'place' || n, event, 's' || n || arm || extract(epoch FROM at), at, at,
    CASE arm WHEN 0 THEN :control ELSE lpad(n::text, 8, '0') END, '/list', false
FROM generate_series(0, CAST(:experiments AS integer) - 1) AS n
CROSS JOIN generate_series(0, 1) AS arm
CROSS JOIN generate_series(CAST(:first AS timestamptz), :last, interval '15 minutes') AS at
CROSS JOIN unnest(ARRAY['page_view', 'click', 'click']) AS event
""")
_EXPERIMENTS = 60


@pytest.fixture
def canaries(store) -> int:
    """Two hours of traffic of many canaries, not walked; how many events they are."""
    first, last = TODAY - timedelta(hours=3), TODAY - timedelta(hours=1)
    with store.engine.begin() as connection:
        project = create_project(connection, "shop").project_id
        create_days(connection, [first.date()])
        for number in range(_EXPERIMENTS):
            place, commit = f"place{number}", f"{number:08}"
            there = {"environment": place}
            record_deploy(connection, project, CONTROL, OLDEST, **there)
            record_deploy(connection, project, commit, first, 0.5, base=CONTROL, **there)
            asked = {"treatment_commit": commit, "target_metric": "click", **there}
            register_experiment(connection, project, **asked)
        asked_for = {"project": project, "control": CONTROL, "experiments": _EXPERIMENTS}
        events = connection.execute(_MANY, {**asked_for, "first": first, "last": last}).rowcount
        connection.execute(text("ANALYZE"))
    return events


@contextmanager
def executed_plans(connection: Connection) -> Generator[list[dict[str, Any]]]:
    """Yields the plans of the statements that are executed within the context, with their rows."""
    plans: list[dict[str, Any]] = []

    def collect(notice: Any) -> None:
        _, _, plan = notice.message_primary.partition("plan:\n")
        if plan:
            plans.append(json.loads(plan)["Plan"])

    driver = connection.connection.driver_connection
    for setting in ("min_duration = 0", "analyze = on", "format = json", "timing = off"):
        connection.execute(text("LOAD 'auto_explain'"))
        connection.execute(text(f"SET LOCAL auto_explain.log_{setting}"))
    connection.execute(text("SET LOCAL client_min_messages = log"))
    driver.add_notice_handler(collect)
    yield plans
    driver.remove_notice_handler(collect)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


@pytest.mark.nightly
def test_events_are_compared_with_no_input_of_another_experiment(store, canaries) -> None:
    with store.engine.begin() as connection:
        with executed_plans(connection) as exposing:
            assert extend_exposures(connection, as_of=TODAY, at_once=0) == canaries // 3
        with executed_plans(connection) as counting:
            assert extend_cells(connection, at_once=0) >= _EXPERIMENTS

    for plans in (exposing, counting):
        parts = [node for plan in plans for node in nodes(plan)]
        # In any one join: an input of another experiment is sixty times as much.
        compared = max(
            node.get("Rows Removed by Join Filter", 0) * node["Actual Loops"] for node in parts
        )
        assert max(node["Actual Rows"] for node in parts) >= canaries / 3
        assert compared <= canaries


# Experiments that were bound before, each with units of its own.
_PAST = text("""
INSERT INTO exposures (experiment_id, unit, exposed_at, block, arm, stratum, commit_sha, event)
SELECT 'exp_' || md5(n::text), md5(n || ' ' || u), :at, :at, 0, 'whole', :control, 'view'
FROM generate_series(1, CAST(:experiments AS integer)) AS n
CROSS JOIN generate_series(1, CAST(:units AS integer)) AS u
""")
# Sessions of an hour.
_VISITS = text("""
INSERT INTO runtime_events (project_id, environment, event, session_id, occurred_at, received_at,
    commit_sha, route, trusted)
SELECT :project, 'production', 'page_view', md5(extract(epoch FROM at) || ' ' || u), at, at,
    CASE u % 2 WHEN 0 THEN :control ELSE :treatment END, '/list', false
FROM generate_series(CAST(:first AS timestamptz), :last, interval '1 minute') AS at
CROSS JOIN generate_series(1, CAST(:units AS integer)) AS u
""")


# In tables of their own, and in a single statement: PostgreSQL plans these for other numbers of
# them.
@pytest.mark.parametrize(("at_once", "experiments"), also_nightly([(0, 2)], [(1_000_000, 12)]))
@pytest.mark.nightly
def test_a_unit_is_looked_up_among_those_of_its_own_experiment(store, at_once, experiments) -> None:
    first, last = TODAY - timedelta(hours=3), TODAY - timedelta(hours=1)
    with store.engine.begin() as connection:
        project = create_project(connection, "shop").project_id
        create_days(connection, [first.date()])
        record_deploy(connection, project, CONTROL, OLDEST)
        record_deploy(connection, project, TREATMENT, first, 0.5, base=CONTROL)
        asked = {"treatment_commit": TREATMENT, "target_metric": "click"}
        register_experiment(connection, project, **asked)
        shown = {"project": project, "control": CONTROL, "treatment": TREATMENT, "units": 80}
        connection.execute(_VISITS, {**shown, "first": first, "last": last})
        past = {"experiments": experiments, "units": 200_000 // experiments}
        connection.execute(_PAST, {**past, "at": microseconds(OLDEST), "control": CONTROL})
        extend_exposures(connection, as_of=TODAY - timedelta(hours=2))
        connection.execute(text("ANALYZE"))
        with executed_plans(connection) as plans:
            units = extend_exposures(connection, as_of=TODAY, at_once=at_once)

    searches = sum(
        node["Index Searches"]
        for plan in plans
        for node in nodes(plan)
        if "exposures" in node.get("Index Name", "")
    )
    # PostgreSQL would find few pages cheaper in which the unit is looked for in each experiment.
    assert units <= searches <= 2 * units
