"""The minute's increment: the text over the new rows of the log, in the publishing transaction."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from sqlalchemy import Connection, text

from domain.millionths import LARGEST_AMOUNT
from storage.pipeline.cursors import outcome_cursors, read_cursors, set_cursors
from storage.pipeline.derived import (
    AMOUNTS,
    BLOCK_NAMES,
    BLOCK_UNITS,
    CONVERSIONS,
    EXPOSURES,
    SIGHTINGS,
    STRATA,
    Derived,
)
from storage.pipeline.engines.postgres_engine import AT_ONCE, PostgresEngine
from storage.pipeline.experiments import (
    PipelineExperiment,
    ReadExperiment,
    asks_for_properties,
    blocks_to_expose,
    open_experiments,
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
from storage.pipeline.moments import block_of, microseconds, moment_of
from storage.pipeline.steps import (
    AHEAD,
    CLOCKS,
    COUNTED,
    EXPOSED_COUNTS,
    EXPOSURE_STEPS,
    IDENTITY,
    NAMED_USERS,
    NAMELESS_SESSIONS,
    NEW_CELLS,
    NEW_EXPOSURES,
    NO_SESSION_USERS,
    OUTCOME_SESSIONS,
    OUTCOME_STEPS,
    PAID,
    RETURNED,
    SESSION_USERS,
    TURNOVER,
    USER_EXPOSURES,
    requests_from,
    session_times,
)
from storage.pipeline.sums import CELLS, COMPUTED_CELLS, stored_cell
from storage.postgres.samples import sample_grown
from storage.schema.encoding import SIGHTINGS as KINDS
from storage.schema.encoding import epoch_microseconds

# --- What both halves read ---------------------------------------------------------------------

_OCCURRED, _RECEIVED = epoch_microseconds("e.occurred_at"), epoch_microseconds("e.received_at")


def _buried(table: Derived, on: str) -> str:
    """Returns the tombstones of a derived table that hold a condition on the scope `s`."""
    return (
        f"SELECT s.number, p.* FROM scope AS s JOIN tombstone_{table.name} AS p"
        f" ON p.experiment_id = s.experiment AND {on}"
    )


def _sharing(read: Sequence[ReadExperiment] | Sequence[ReadOutcomes]) -> int:
    """Returns how many of them read the same environment, at most."""
    return max(Counter(part.experiment.environment_key for part in read).values())


# --- Exposures ---------------------------------------------------------------------------------

# The log's events that any experiment of the batch may read; `log` adds what else it asks.
_LOG_ROWS = f"""
SELECT e.project_id, e.environment, e.event, e.session_id, {_OCCURRED} AS stamped,
    {_RECEIVED} AS received, e.sent_at AS sent, e.commit_sha, e.route, e.pseudonym,
    encode(e.pseudonym, 'hex') AS user_unit, e.trusted, e.signed, e.flags{{segments}}
FROM runtime_events AS e
WHERE e.received_at BETWEEN timestamptz '{{begins}}' AND timestamptz '{{ends}}'
  AND EXISTS (
      SELECT FROM scope AS s WHERE s.project_id = e.project_id AND s.environment = e.environment
  )
"""

# Each time is made a number once.
_ONCE = "OFFSET 0"

_REQUESTS = f"""
SELECT e.project_id, e.environment, e.session_id, {_RECEIVED} AS received,
    {epoch_microseconds("e.received_at - e.sent_at")} AS delay
FROM runtime_events AS e
WHERE e.received_at BETWEEN timestamptz '{{begins}}' AND timestamptz '{{ends}}'
  AND e.sent_at IS NOT NULL AND EXISTS (
      SELECT FROM scope AS s WHERE s.project_id = e.project_id AND s.environment = e.environment
  )
"""

_KNOWN_IN_FLIGHT = f"{SIGHTINGS.stored} WHERE p.kind = {KINDS['in_flight']}"

_BURIED_EXPOSURES = _buried(EXPOSURES, "p.block >= s.from_block AND p.block < s.to_block")
_BURIED_SIGHTINGS = _buried(
    SIGHTINGS, "p.sighted_at >= s.from_block AND p.sighted_at <= s.received_to"
)

_IDENTITY = f"interval '{IDENTITY // 1_000_000} seconds'"
_IDENTITY_ROWS = f"""
SELECT e.project_id, e.environment, e.session_id, {_OCCURRED} AS occurred, {_RECEIVED} AS received,
    {_RECEIVED} AS last_received, e.pseudonym, encode(e.pseudonym, 'hex') AS user_unit, e.trusted,
    e.signed
FROM runtime_events AS e
WHERE e.pseudonym IS NOT NULL
  AND e.received_at > timestamptz '{{begins}}' - {_IDENTITY}
  AND e.received_at <= timestamptz '{{ends}}'
"""

# From so many units on, the log of four weeks is read once, rather than each of its days looked
# into for each unit. The planner cannot tell: it takes the few for 1, and reads all of the log.
_LOOKED_UP = 5_000
_IDENTITIES_LOOKED_UP = f"""
SELECT i.*
FROM (
    SELECT DISTINCT s.project_id, s.environment, c.{{session}} AS session_id
    FROM {{sessions}} AS c JOIN scope AS s ON s.number = c.number
    WHERE s.by_user = {{by_user}}
    OFFSET 0
) AS c
CROSS JOIN LATERAL (
    {_IDENTITY_ROWS}
      AND e.project_id = c.project_id AND e.session_id = c.session_id
      AND e.environment = c.environment
    OFFSET 0
) AS i
"""


def unread_exposures(
    connection: Connection, *, as_of: datetime, only: Sequence[str] | None = None
) -> list[ReadExperiment]:
    """Returns the open experiments whose exposures are to be read, each with its unread blocks."""
    experiments = open_experiments(connection, only=only)
    cursors = read_cursors(connection, [experiment.experiment_id for experiment in experiments])
    read_to = {
        experiment_id: at for (experiment_id, stage), at in cursors.items() if stage == "exposures"
    }
    return blocks_to_expose(experiments, read_to=read_to, as_of=microseconds(as_of))


def extend_exposures(
    connection: Connection,
    *,
    as_of: datetime,
    only: Sequence[str] | None = None,
    at_once: int = AT_ONCE,
) -> int:
    """Adds the exposures of the blocks that have closed since the last step; returns how many.

    Args:
        connection: In a transaction that is the only writer of derived tables.
        only: The experiments to read for; None for all.

    Raises:
        UnreadablePolicyError: A policy is of another version, or broken.
        TooManyAssignmentsError: An experiment has more assignments than can be numbered.
    """
    read = unread_exposures(connection, as_of=as_of, only=only)
    if not read:
        return 0
    added = _expose(connection, read, at_once=at_once)
    set_cursors(
        connection, [("exposures", part.experiment.experiment_id, part.to_block) for part in read]
    )
    return added


def _expose(connection: Connection, read: Sequence[ReadExperiment], *, at_once: int) -> int:
    begins = min(part.received_from for part in read)
    ends = max(part.received_to for part in read)
    span = {"begins": moment_of(begins).isoformat(), "ends": moment_of(ends).isoformat()}
    engine = PostgresEngine(connection, experiments=_sharing(read), at_once=at_once)
    experiments = [part.experiment for part in read]
    environments = read_environments(
        connection, {experiment.environment_key for experiment in experiments}
    )
    register_scope(engine, read, environments)
    segments = segments_column(engine, segments_of(read))
    _compare_clocks(engine, begins, ends)
    engine.view("log_rows", session_times(_LOG_ROWS.format(**span, segments=segments) + _ONCE))
    register_assignments(engine, connection, read, environments)
    register_routes(engine, connection, experiments)
    register_deploy_times(engine, connection, environments.histories)
    _find_session_users(engine, experiments, "log", ends=ends)
    for name, sql in (
        ("known_exposures", EXPOSURES.stored),
        ("known_in_flight", _KNOWN_IN_FLIGHT),
        ("buried_exposures", _BURIED_EXPOSURES),
        ("buried_sightings", _BURIED_SIGHTINGS),
    ):
        engine.view(name, sql)
    for step in (*EXPOSURE_STEPS, RETURNED, *EXPOSED_COUNTS):
        if step is NAMED_USERS:
            _find_identities(engine, "candidates", session="unit", by_user=0, **span)
        if step is RETURNED:
            engine.view("new_exposures", NEW_EXPOSURES)
            engine.view("user_exposures", USER_EXPOSURES)
        engine.run(step)
    added = engine.add(
        {
            table.name: table.insert
            for table in (EXPOSURES, STRATA, SIGHTINGS, BLOCK_UNITS, BLOCK_NAMES)
        }
    )
    engine.close()
    for table in ("exposures", "sightings"):
        sample_grown(connection, table, added[table])
    return added["exposures"]


def _find_identities(engine: PostgresEngine, sessions: str, **asked: object) -> None:
    few = engine.few or engine.count(sessions) < _LOOKED_UP
    rows = _IDENTITIES_LOOKED_UP if few else _IDENTITY_ROWS
    engine.view("identities", rows.format(sessions=sessions, **asked))


def _find_session_users(
    engine: PostgresEngine, experiments: Sequence[PipelineExperiment], events: str, *, ends: int
) -> None:
    """Finds the users of the sessions whose events name none, where users are units."""
    if not any(experiment.by_user for experiment in experiments):
        engine.view(SESSION_USERS.name, NO_SESSION_USERS)
        return
    register_forgotten_names(engine, engine.connection, experiments)
    engine.view("nameless_events", f"SELECT * FROM {events}")
    engine.run(NAMELESS_SESSIONS)
    ((earliest,),) = engine.rows(f"SELECT min(block) FROM {NAMELESS_SESSIONS.name}")
    span = {"begins": moment_of(earliest or ends), "ends": moment_of(ends)}
    _find_identities(engine, NAMELESS_SESSIONS.name, session="session_id", by_user=1, **span)
    engine.run(SESSION_USERS)


def _compare_clocks(engine: PostgresEngine, begins: int, ends: int) -> None:
    first, last = moment_of(requests_from(begins)).isoformat(), moment_of(ends).isoformat()
    engine.view("requests", _REQUESTS.format(begins=first, ends=last))
    engine.run(CLOCKS)


# --- Cells -------------------------------------------------------------------------------------

# The events that may be an outcome: some metric names them as its source.
_OUTCOME_EVENTS = f"""
SELECT e.project_id, e.environment, e.event, e.session_id, {_OCCURRED} AS stamped,
    {_RECEIVED} AS received, e.sent_at AS sent, encode(e.pseudonym, 'hex') AS user_unit,
    e.trusted, e.signed, e.event_id, e.value, {{properties}} AS properties
FROM runtime_events AS e
WHERE e.received_at BETWEEN timestamptz '{{begins}}' AND timestamptz '{{ends}}'
  AND e.event = ANY(ARRAY(SELECT DISTINCT event FROM sources))
  AND EXISTS (
      SELECT FROM scope AS s WHERE s.project_id = e.project_id AND s.environment = e.environment
  )
"""

_REVENUE = f"""
SELECT e.project_id, e.environment, e.event, e.session_id, {_OCCURRED} AS occurred,
    {_RECEIVED} AS received, e.pseudonym, encode(e.pseudonym, 'hex') AS user_unit,
    e.idempotency_key,
    CASE WHEN e.amount_value > {LARGEST_AMOUNT} THEN {LARGEST_AMOUNT} ELSE e.amount_value END
        * 1000000 AS value,
    e.amount_currency AS currency, e.attributes AS properties
FROM revenue_events AS e
WHERE e.received_at BETWEEN timestamptz '{{begins}}' AND timestamptz '{{ends}}'
  AND e.project_id IN (SELECT project_id FROM scope)
"""

# All sessions of the users that are read now, as far back as the target's window goes. An index
# finds each user: the planner expects so many that it would read all that there ever were.
_USER_SESSIONS = """
SELECT u.number, k.pseudonym, k.unit, k.exposed_at, k.block, 0 AS buried
FROM (
    SELECT DISTINCT s.number, s.experiment, m.attribution_window, s.from_block, s.to_block,
        x.pseudonym
    FROM scope AS s
    JOIN metrics AS m ON m.number = s.number AND m.turnover = 1
    JOIN exposures AS x ON x.experiment_id = s.experiment
        AND x.block >= s.from_block AND x.block < s.to_block
    WHERE x.pseudonym IS NOT NULL AND x.arm <= 1
) AS u
CROSS JOIN LATERAL (
    SELECT x.* FROM exposures AS x
    WHERE x.experiment_id = u.experiment AND x.pseudonym = u.pseudonym AND x.arm <= 1
      AND x.block >= u.from_block - u.attribution_window AND x.block < u.to_block
    OFFSET 0
) AS k
"""

_CLOSING_BLOCKS = {"experiment": "experiment", "from_block": "bigint", "to_block": "bigint"}
_CLOSING_EXPOSURES = f"""
{EXPOSURES.stored} JOIN closing_blocks AS c
  ON p.experiment_id = c.experiment
 AND p.block >= c.from_block AND p.block < c.to_block
"""

_RECEIVED_NOW = """
p.metric IN (
    SELECT m.metric FROM metrics AS m WHERE m.number = s.number
    UNION ALL SELECT m.picked_as FROM metrics AS m WHERE m.number = s.number
)
 AND p.received_at > s.from_block AND p.received_at <= s.to_block + s.grace
"""

_ADD_CELLS = """
INSERT INTO cells (experiment_id, metric, block, stratum, n1, x1, n0, x0)
SELECT s.experiment, n.metric, n.block, n.stratum, n.n1, n.x1, n.n0, n.x0
FROM new_cells AS n JOIN scope AS s ON s.number = n.number
WHERE n.kind = 0
ON CONFLICT DO NOTHING
"""

_MEAN_CELLS = f"""
SELECT s.experiment, {COMPUTED_CELLS}
FROM new_cells AS r JOIN scope AS s ON s.number = r.number
WHERE r.kind > 0
"""

_ADD_MEAN_CELLS = text(f"""
INSERT INTO cells ({", ".join(CELLS)}) VALUES ({", ".join(f":{name}" for name in CELLS)})
ON CONFLICT DO NOTHING
""")


def extend_cells(
    connection: Connection, *, only: Sequence[str] | None = None, at_once: int = AT_ONCE
) -> int:
    """Adds the cells whose outcomes have closed, as far as exposures were read; returns how many.

    Args:
        connection: In a transaction that is the only writer of derived tables.
        only: The experiments to add to; None for all.

    Raises:
        UnreadablePolicyError: A policy is of another version, or broken.
    """
    exposed = unread_outcomes(connection, only=only)
    read = [part for part in exposed if part.to_block > part.from_block]
    added = _close(connection, read, at_once=at_once) if read else 0
    note_outcomes(connection, exposed)
    return added


def unread_outcomes(connection: Connection, *, only: Sequence[str] | None) -> list[ReadOutcomes]:
    """Returns the outcomes of experiments that were not read yet, as far as they were exposed.

    Args:
        connection: In a transaction that is the only writer of derived tables.
    """
    experiments = open_experiments(connection, only=only)
    cursors = read_cursors(connection, [experiment.experiment_id for experiment in experiments])
    return [
        _unread_outcomes(experiment, cursors)
        for experiment in experiments
        if (experiment.experiment_id, "exposures") in cursors
    ]


def note_outcomes(connection: Connection, read: Sequence[ReadOutcomes]) -> None:
    """Keeps how far outcomes were read, and cells have closed."""
    set_cursors(
        connection,
        [
            cursor
            for part in read
            for cursor in outcome_cursors(part.experiment, to_block=part.to_block)
        ],
    )


def _unread_outcomes(
    experiment: PipelineExperiment, cursors: dict[tuple[str, str], int]
) -> ReadOutcomes:
    first, own = block_of(experiment.starts_at), experiment.experiment_id
    return ReadOutcomes(
        experiment=experiment,
        from_block=cursors.get((own, "conversions"), first),
        to_block=cursors[own, "exposures"],
        closed_from={
            metric.name: cursors.get((own, f"cells/{metric.name}"), first)
            for metric in experiment.metrics
        },
    )


def _close(connection: Connection, read: Sequence[ReadOutcomes], *, at_once: int) -> int:
    first = [
        part.from_block - max(0, *(metric.attribution_before for metric in part.experiment.metrics))
        for part in read
    ]
    begins = min(part.history_from or at for part, at in zip(read, first, strict=True))
    ends = max(part.to_block + part.experiment.grace for part in read)
    span = {"begins": moment_of(begins - AHEAD).isoformat(), "ends": moment_of(ends).isoformat()}
    engine = PostgresEngine(connection, experiments=_sharing(read), at_once=at_once)
    register_metrics(engine, read)
    closing = [span for part in read for span in _closing_blocks(part)]
    engine.register("closing_blocks", _CLOSING_BLOCKS, closing)
    asks = asks_for_properties(part.experiment for part in read)
    properties = "e.properties" if asks else "CAST(NULL AS jsonb)"
    # A history is summed whatever its times are.
    _compare_clocks(engine, min(first) - AHEAD, ends)
    outcomes = _OUTCOME_EVENTS.format(**span, properties=properties)
    engine.define("outcome_events", session_times(outcomes + _ONCE))
    engine.define("revenue", _REVENUE.format(**span))
    _find_session_users(engine, [part.experiment for part in read], OUTCOME_SESSIONS, ends=ends)
    for name, sql in (
        ("exposed_units", EXPOSURES.stored),
        ("exposed_users", EXPOSURES.stored),
        ("closing_exposures", _CLOSING_EXPOSURES),
        ("buried_conversions", _buried(CONVERSIONS, _RECEIVED_NOW)),
        ("buried_amounts", _buried(AMOUNTS, _RECEIVED_NOW)),
        ("known_conversions", CONVERSIONS.stored),
        ("known_amounts", AMOUNTS.stored),
        ("earlier_amounts", AMOUNTS.stored),
        ("user_sessions", _USER_SESSIONS),
    ):
        engine.view(name, sql)
    for step in (PAID, TURNOVER):
        engine.run(step)
    engine.view("turned_over", "SELECT * FROM turnover")
    for step in OUTCOME_STEPS:
        engine.run(step)
    added = engine.add({table.name: table.insert for table in (CONVERSIONS, AMOUNTS)})
    for table, rows in added.items():
        sample_grown(connection, table, rows)
    # The planner is to see it as a part of the cells' own statement.
    engine.view(COUNTED.name, COUNTED.sql)
    engine.run(NEW_CELLS)
    cells = engine.add({"cells": _ADD_CELLS})["cells"]
    if any(metric.kind for part in read for metric in part.experiment.metrics):
        cells += _add_mean_cells(engine)
    engine.close()
    return cells


def _closing_blocks(read: ReadOutcomes) -> Iterator[tuple[str, int, int]]:
    """Yields the spans of blocks that close for any of an experiment's metrics, none twice.

    Windows of half an hour and of a day close blocks that are a day apart.
    """
    spans = sorted(
        (read.closed_from[metric.name], read.to_block - metric.open_for)
        for metric in read.experiment.metrics
    )
    begins, ends = spans[0]
    for from_block, to_block in spans:
        if from_block > ends:
            yield read.experiment.experiment_id, begins, ends
            begins = from_block
        ends = max(ends, to_block)
    yield read.experiment.experiment_id, begins, ends


def _add_mean_cells(engine: PostgresEngine) -> int:
    rows = [dict(zip(CELLS, stored_cell(row), strict=True)) for row in engine.rows(_MEAN_CELLS)]
    return engine.connection.execute(_ADD_MEAN_CELLS, rows).rowcount if rows else 0
