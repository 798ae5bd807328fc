"""Whole lives: the text over all that experiments ever read of the log."""

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, RowMapping, text

from domain.millionths import LARGEST_AMOUNT
from storage.lake.reader import Extent, SealedLog
from storage.pipeline.derived import AMOUNTS, CONVERSIONS, EXPOSURES, SIGHTINGS, Derived
from storage.pipeline.engines.day_engine import DayEngine
from storage.pipeline.experiments import (
    PipelineExperiment,
    ReadExperiment,
    asks_for_properties,
    blocks_to_expose,
    segments_of,
)
from storage.pipeline.inputs import (
    ReadOutcomes,
    read_environments,
    register_assignments,
    register_deploy_times,
    register_forgotten_names,
    register_metrics,
    register_routes,
    register_scope,
    segments_column,
)
from storage.pipeline.log_relations import attach_log
from storage.pipeline.moments import block_of
from storage.pipeline.steps import (
    CLOCKS,
    COUNTED,
    EXPOSED_COUNTS,
    EXPOSURE_STEPS,
    IDENTITY,
    NAMED,
    NAMED_USERS,
    NAMELESS_SESSIONS,
    NEW_CELLS,
    NEW_EXPOSURES,
    NO_SESSION_USERS,
    OUTCOME_SESSIONS,
    OUTCOME_STEPS,
    OUTCOME_USERS,
    PAID,
    RETURNED,
    SESSION_USERS,
    TURNOVER,
    USER_EXPOSURES,
    Step,
    requests_from,
    session_times,
)
from storage.schema.encoding import BLOCK

# --- What no event stands behind any more ---------------------------------------------------------


# Tombstones that are read: those of the blocks that are read, or received by the moment.
_IS_READ: Mapping[Derived, Callable[[ReadExperiment, RowMapping], bool]] = {
    EXPOSURES: lambda part, row: part.from_block <= row["block"] < part.to_block,
    SIGHTINGS: lambda part, row: part.from_block <= row["sighted_at"] <= part.received_to,
    CONVERSIONS: lambda part, row: row["received_at"] <= part.received_to,
    AMOUNTS: lambda part, row: row["received_at"] <= part.received_to,
}
# Exposures do not depend on these members of an experiment: on `bound_at` by its assignments alone.
_OF_ONE_EXPERIMENT = ("number", "bound_at", "target_window", "target_open_for")


def _register_buried(
    engine: DayEngine, connection: Connection, read: Sequence[ReadExperiment]
) -> set[int]:
    """Registers the tombstones that are read; returns the numbers of experiments that have some."""
    by_id = {part.experiment.experiment_id: part for part in read}
    buried: set[int] = set()
    for table, is_read in _IS_READ.items():
        name = f"tombstone_{table.name}"
        stored = connection.execute(
            text(f"SELECT * FROM {name} WHERE experiment_id = ANY(:ids)"), {"ids": list(by_id)}
        ).mappings()
        rows = [
            (part.experiment.number, *(_encoded(row[column]) for column in table.inputs))
            for row in stored
            if is_read(part := by_id[row["experiment_id"]], row)
        ]
        buried |= {row[0] for row in rows}
        engine.register(name, {"number": "int", **table.inputs}, rows)
        engine.distribute(f"buried_{table.name}", f"SELECT * FROM {name}", ("unit",))
    return buried


def _encoded(value: object) -> object:
    # Engines of whole days hold bytes as their hex.
    return value.hex() if isinstance(value, bytes) else value


# --- The computation ------------------------------------------------------------------------------

# A whole life begins where nothing was derived before.
_NOTHING_KNOWN = {
    "known_exposures": """
SELECT 0 AS experiment, '' AS unit, 0 AS exposed_at, 0 AS block, 0 AS arm, '' AS stratum,
    '' AS pseudonym
WHERE 1 = 0
""",
    "known_in_flight": "SELECT 0 AS experiment, '' AS unit WHERE 1 = 0",
}

_EXPOSURES = "SELECT number AS experiment, * FROM shared_exposures"
_DERIVED = {
    "closing_exposures": _EXPOSURES,
    "known_conversions": "SELECT number AS experiment, * FROM new_conversions",
    "known_amounts": "SELECT number AS experiment, * FROM new_amounts",
}
_USER_SESSIONS = """
SELECT u.*, CASE WHEN b.unit IS NULL THEN 0 ELSE 1 END AS buried
FROM user_exposures AS u
LEFT JOIN tombstone_exposures AS b ON b.number = u.number AND b.unit = u.unit
"""
# Whom a session names, in a row if all of its events name the same user alike. Whether some were
# received within a span is then told by the first and the last, which are closer than that.
SESSION_NAMES = Step(
    name="session_names",
    temporary=True,
    sql=f"""
SELECT n.*, CASE WHEN pseudonym = other AND trusted = any_trusted AND signed = any_signed
    AND last_received - received < {IDENTITY} THEN 1 ELSE 0 END AS alike
FROM (
    SELECT project_id, environment, session_id, min(occurred) AS occurred,
        min(received) AS received, max(received) AS last_received, min(pseudonym) AS pseudonym,
        max(pseudonym) AS other, min(trusted) AS trusted, max(trusted) AS any_trusted,
        min(signed) AS signed, max(signed) AS any_signed
    FROM user_events
    GROUP BY project_id, environment, session_id
) AS n
""",
)
_NAMES = """
SELECT project_id, environment, session_id, occurred, received, last_received, pseudonym, trusted,
    signed
FROM session_names WHERE alike = 1
UNION ALL
SELECT e.project_id, e.environment, e.session_id, e.occurred, e.received, e.last_received,
    e.pseudonym, e.trusted, e.signed
FROM user_events AS e
JOIN session_names AS n ON n.session_id = e.session_id AND n.project_id = e.project_id
    AND n.environment = e.environment AND n.alike = 0
"""
_EXPOSED_USERS = Step(
    name="exposed_users",
    sql=f"""
SELECT x.number AS experiment, x.*
FROM shared_exposures AS x
JOIN ({OUTCOME_USERS}) AS u ON u.leader = x.number AND u.pseudonym = x.pseudonym
""",
)


@dataclass(frozen=True, kw_only=True)
class WholeLives:
    """The materialized relations of a computation's steps, by their names."""

    engine: DayEngine
    read: Sequence[ReadExperiment]


def compute_whole_lives(
    engine: DayEngine,
    log: SealedLog,
    experiments: Iterable[PipelineExperiment],
    *,
    as_of: int,
    units: frozenset[str] | None = None,
) -> WholeLives:
    """Computes all that is derived of experiments, from the log alone.

    Args:
        as_of: A time up to which the log is final, in microseconds since the epoch.
        units: The sessions, and the users by their pseudonyms in hex, whose part of the log is
            read; None for all. Rows are whole of those units alone whose events are all theirs.
    """
    read = blocks_to_expose(experiments, read_to={}, as_of=as_of)
    if not read:
        return WholeLives(engine=engine, read=())
    extent = replace(_extent_of(read), units=units)
    _attach_extent(engine, log, extent, read)
    engine.split(_bounds_of_readings(engine, [part.experiment for part in read]))
    leaders = _expose(engine, log.connection, read)
    _close(engine, read, leaders)
    return WholeLives(engine=engine, read=read)


def _extent_of(read: Sequence[ReadExperiment]) -> Extent:
    """Returns the part of the log that the exposures of these blocks, and their outcomes, need."""
    return Extent(
        named_from=min(part.from_block for part in read) - IDENTITY,
        received_from=requests_from(min(part.received_from for part in read)),
        received_to=max(part.received_to for part in read),
        environments=frozenset(part.experiment.environment_key for part in read),
        with_properties=bool(segments_of(read))
        or asks_for_properties(part.experiment for part in read),
        with_history=_reads_history(read),
    )


def _reads_history(read: Iterable[ReadExperiment]) -> bool:
    return any(metric.history_to for part in read for metric in part.experiment.metrics)


# This relation holds the log's events, of all units or of the part that is computed.
_UNIT_EVENTS = "unit_events"
# And this relation those of all units.
_TIMED_EVENTS = "timed_events"
_STAMPED = {"occurred": "e.occurred AS stamped"}
_NOTHING = "CAST(NULL AS STRING)"


def _attach_extent(
    engine: DayEngine, log: SealedLog, extent: Extent, read: Sequence[ReadExperiment]
) -> None:
    """Defines the log's relations, with what experiments read of events alone."""
    by_user = any(part.experiment.by_user for part in read)
    with log.rows(extent) as rows:
        attach_log(engine, rows)
    engine.define(
        "requests",
        "SELECT e.project_id, e.environment, e.session_id, e.received, e.received - e.sent AS delay"
        f" FROM events AS e WHERE e.received >= {extent.received_from} AND e.sent IS NOT NULL",
    )
    # All units are read at once: a part may hold some of a session's events alone.
    engine.run(CLOCKS)
    stamped = ", ".join(_STAMPED.get(name, f"e.{name}") for name in extent.columns.names)
    moved = any(engine.rows(f"SELECT 1 FROM {CLOCKS.name} LIMIT 1"))
    timed = session_times(f"SELECT {stamped} FROM events AS e", moved=moved)
    engine.define(_TIMED_EVENTS, timed)
    engine.define(_UNIT_EVENTS, f"SELECT * FROM {_TIMED_EVENTS}")
    unread = "" if extent.with_properties else f", {_NOTHING} AS properties"
    unit = "e.pseudonym" if by_user else _NOTHING
    rows = (
        f"SELECT e.*, {unit} AS user_unit{unread}{segments_column(engine, segments_of(read))}"
        f" FROM {_UNIT_EVENTS} AS e"
    )
    # A history is of events that name a user, and these are read from long before.
    engine.define("rows_and_history", rows)
    engine.define("log_rows", f"{rows} WHERE e.received >= {extent.received_from}")
    engine.define(
        "user_events",
        "SELECT e.project_id, e.environment, e.session_id, e.stamped AS occurred, e.received,"
        " e.received AS last_received, e.pseudonym, e.pseudonym AS user_unit, e.trusted, e.signed"
        f" FROM {_UNIT_EVENTS} AS e WHERE e.pseudonym IS NOT NULL",
    )
    engine.define("identities", "SELECT * FROM user_events")
    engine.define(
        "revenue",
        "SELECT r.*, r.attributes AS properties, r.pseudonym AS user_unit,"
        f" CASE WHEN r.amount > {LARGEST_AMOUNT} THEN {LARGEST_AMOUNT} ELSE r.amount END"
        " * 1000000 AS value"
        " FROM revenue_events AS r",
    )


def _bounds_of_readings(
    engine: DayEngine, experiments: Sequence[PipelineExperiment]
) -> Iterator[int]:
    """Yields how many events are read at most, each counted for every experiment that reads it.

    The first bound comes from the row counts of the files, and reads no row. The second counts the
    events of each environment.
    """
    ((stored,),) = engine.rows("SELECT count(*) FROM stored_events")
    yield stored * len(experiments)
    events = {
        (project_id, environment): count
        for project_id, environment, count in engine.rows(
            "SELECT project_id, environment, count(*) FROM log_rows GROUP BY 1, 2"
        )
    }
    yield sum(events.get(experiment.environment_key, 0) for experiment in experiments)


# Each with the user whom its session names, if it names none that every experiment takes.
_EVENTS_OF_USERS = f"""
SELECT e.*, n.user_unit AS session_user
FROM {_TIMED_EVENTS} AS e
LEFT JOIN (
    SELECT DISTINCT s.project_id, s.environment, n.session_id, n.block, n.user_unit
    FROM session_users AS n JOIN scope AS s ON s.number = n.number
) AS n ON n.project_id = e.project_id AND n.environment = e.environment
    AND n.session_id = e.session_id AND n.block = e.occurred - e.occurred % {BLOCK}
    AND (e.pseudonym IS NULL OR NOT e.trusted)
"""


def distribute_events(
    engine: DayEngine, connection: Connection, experiments: Sequence[PipelineExperiment]
) -> None:
    """Deals the log's events to the parts of their sessions, and of the users that are units."""
    if not any(experiment.by_user for experiment in experiments):
        engine.define(SESSION_USERS.name, NO_SESSION_USERS)
        engine.distribute(_UNIT_EVENTS, f"SELECT * FROM {_TIMED_EVENTS}", ("session_id",))
        return
    register_forgotten_names(engine, connection, experiments)
    engine.define("outcome_events", "SELECT * FROM log_rows")
    engine.define("nameless_events", f"SELECT * FROM {OUTCOME_SESSIONS}")
    engine.run(NAMELESS_SESSIONS)
    engine.run(SESSION_USERS)
    engine.distribute(_UNIT_EVENTS, _EVENTS_OF_USERS, ("session_id", "pseudonym", "session_user"))


def _expose(
    engine: DayEngine, connection: Connection, read: Sequence[ReadExperiment]
) -> Mapping[int, int]:
    experiments = [part.experiment for part in read]
    environments = read_environments(
        connection, {experiment.environment_key for experiment in experiments}
    )
    register_scope(engine, read, environments)
    distribute_events(engine, connection, experiments)
    assignments = register_assignments(engine, connection, read, environments)
    buried = _register_buried(engine, connection, read)
    leaders = find_leaders(read, assignments, buried=buried)
    register_scope(engine, read, environments, leaders=leaders)
    register_routes(engine, connection, experiments)
    register_deploy_times(engine, connection, environments.histories)
    for name, sql in _NOTHING_KNOWN.items():
        engine.define(name, sql)
    for _ in engine.each_part():
        engine.run(SESSION_NAMES)
        engine.define("identities", _NAMES)
        for step in EXPOSURE_STEPS:
            engine.run(step)
            if step is NAMED:
                engine.drop((SESSION_NAMES, NAMED_USERS))
        engine.drop(step for step in EXPOSURE_STEPS if step is not NAMED_USERS)
    engine.define("new_exposures", NEW_EXPOSURES)
    engine.distribute("user_exposures", USER_EXPOSURES, ("pseudonym",))
    for _ in engine.each_part():
        engine.run(RETURNED)
    for step in EXPOSED_COUNTS:
        engine.run(step)
    return leaders


def _close(engine: DayEngine, read: Sequence[ReadExperiment], leaders: Mapping[int, int]) -> None:
    register_metrics(engine, [_outcomes(part) for part in read], leaders=leaders)
    rows = "rows_and_history" if _reads_history(read) else "log_rows"
    engine.define(
        "outcome_events",
        f"SELECT e.* FROM {rows} AS e WHERE e.event IN (SELECT event FROM sources)",
    )
    engine.run(PAID)
    engine.run(_EXPOSED_USERS)
    for _ in engine.each_part():
        engine.define("user_sessions", _USER_SESSIONS)
        engine.run(TURNOVER)
    engine.distribute("turned_over", "SELECT * FROM turnover", ("unit",))
    for _ in engine.each_part():
        engine.define("exposed_units", _EXPOSURES)
        engine.define("earlier_amounts", "SELECT number AS experiment, * FROM buried_amounts")
        for step in OUTCOME_STEPS:
            engine.run(step)
        for name, sql in _DERIVED.items():
            engine.define(name, sql)
        engine.run(COUNTED)
        engine.drop(OUTCOME_STEPS)
    engine.run(NEW_CELLS)


def _outcomes(read: ReadExperiment) -> ReadOutcomes:
    first = block_of(read.experiment.starts_at)
    return ReadOutcomes(
        experiment=read.experiment,
        from_block=first,
        to_block=read.to_block,
        closed_from={metric.name: first for metric in read.experiment.metrics},
    )


def find_leaders(
    read: Iterable[ReadExperiment], assignments: Mapping[int, Hashable], *, buried: Container[int]
) -> dict[int, int]:
    """Returns, by number, the first experiment whose exposures are the same.

    Experiments of the same canary most often differ in their metrics alone.

    Args:
        assignments: Of each experiment, what `register_assignments` returned.
        buried: The experiments that have tombstones, each of which has exposures of its own.
    """
    leaders: dict[int, int] = {}
    readings: dict[Hashable, int] = {}
    for part in read:
        number = part.experiment.number
        alike = replace(
            part.experiment, **dict.fromkeys(_OF_ONE_EXPERIMENT, 0), metrics=(), experiment_id=""
        )
        own = number if number in buried else None
        key = replace(part, experiment=alike), assignments[number], own
        leaders[number] = readings.setdefault(key, number)
    return leaders
