"""Observations: what the store says of itself, asked by schedules, checks and whoever watches."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, DateTime, Row, TextClause, bindparam, text

from storage.exposures import UNIT
from storage.graphs import graph_patterns
from storage.route import RouteTable, canonical_route

# What is older was looked at while it was fresh, and the database refuses to rewrite it.
_FRESH = "(NOT v.decided OR v.published_at > clock_timestamp() - interval '1 day')"

# --- The log ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SourceReading:
    """The state of one table of the log.

    Attributes:
        rows: How many there are; of events as PostgreSQL's own statistics count them, because
            to count a log costs as much as to read it.
        last_hour: How many came in the last hour.
        newest: When the last of these came.
        lag_seconds: From occurring to receipt, the 99th percentile of these.
    """

    rows: int
    last_hour: int
    newest: datetime | None
    lag_seconds: float | None


_EVENT_ROWS = """
    SELECT coalesce(sum(n_live_tup), 0)::bigint FROM pg_stat_user_tables
    WHERE relid = to_regclass('{table}')
       OR relid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass('{table}'))
"""
_READING = """
SELECT ({rows}) AS rows, count(*) AS last_hour, max({received}) AS newest,
    percentile_cont(0.99) WITHIN GROUP (
        ORDER BY extract(epoch FROM {received} - {occurred})
    )::float AS lag_seconds
FROM {table}
-- Not by clock_timestamp(), which may be another at each row: all days would be looked into.
WHERE {received} > statement_timestamp() - interval '1 hour'
  AND {received} <= statement_timestamp()
"""
_SOURCES = {
    "runtime_events": ("received_at", "occurred_at"),
    "revenue_events": ("received_at", "occurred_at"),
    "deploys": ("recorded_at", "deployed_at"),
    "graphs": ("uploaded_at", "uploaded_at"),
}


def read_sources(connection: Connection) -> dict[str, SourceReading]:
    """Returns the state of each table of the log, by its name."""
    readings: dict[str, SourceReading] = {}
    for table, (received, occurred) in _SOURCES.items():
        counted = _EVENT_ROWS if table.endswith("_events") else "SELECT count(*) FROM {table}"
        query = _READING.format(
            rows=counted.format(table=table), table=table, received=received, occurred=occurred
        )
        row = connection.execute(text(query)).one()
        readings[table] = SourceReading(
            rows=row.rows,
            last_hour=row.last_hour,
            newest=row.newest,
            lag_seconds=row.lag_seconds,
        )
    return readings


_LAGS = text("""
-- Of the projects that measure something now: their events against the shortest grace in force.
WITH grace AS (
    SELECT x.project_id, x.environment, min((x.policy ->> 'grace_seconds')::float) AS seconds
    FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
    WHERE x.bound_at IS NOT NULL AND NOT v.decided
    GROUP BY x.project_id, x.environment
)
SELECT p.name AS project, g.environment, g.seconds AS grace_seconds, count(*) AS events,
    percentile_cont(0.99) WITHIN GROUP (
        ORDER BY extract(epoch FROM e.received_at - e.occurred_at)
    )::float AS lag_seconds
FROM grace AS g
JOIN projects AS p USING (project_id)
JOIN runtime_events AS e
  ON e.project_id = g.project_id AND e.environment = g.environment
 AND e.received_at > statement_timestamp() - interval '1 hour'
 AND e.received_at <= statement_timestamp()
GROUP BY p.name, g.environment, g.seconds
ORDER BY p.name, g.environment
""")


def lags_of_measured_projects(connection: Connection) -> Sequence[Row[Any]]:
    """Returns how late the last hour's events came, where an experiment is open.

    Returns:
        Rows of project, environment, grace_seconds, events, lag_seconds (the 99th percentile).
    """
    return connection.execute(_LAGS).all()


# --- Is there work? --------------------------------------------------------------------------

_UNWALKED = text("""
-- By the mark of the walk's last step: one that broke off after any other has work left.
SELECT min(open.from_block) FROM (
    SELECT
        coalesce(
            c.at,
            -- From here on it is read: see exposures.
            date_bin('5 minutes', x.starts_at - interval '30 minutes', 'epoch')
        ) AS from_block,
        date_bin('5 minutes', least(
            clock_timestamp() - make_interval(secs => (x.policy ->> 'grace_seconds')::float),
            -- Past this nothing is read: see exposures.
            x.starts_at + make_interval(secs => (x.policy ->> 'horizon_seconds')::float)
                + make_interval(secs => (x.policy ->> 'window_seconds')::float)
        ), 'epoch') AS to_block
    FROM verdicts AS v
    JOIN experiments AS x USING (experiment_id)
    LEFT JOIN cursors AS c ON c.stage = 'published' AND c.experiment_id = x.experiment_id
    WHERE NOT v.decided AND x.bound_at IS NOT NULL
    UNION ALL
    SELECT least(x.closed_at, x.registered_at + interval '28 days'), clock_timestamp()
    FROM verdicts AS v
    JOIN experiments AS x USING (experiment_id)
    WHERE NOT v.decided AND x.bound_at IS NULL
) AS open
WHERE open.from_block < open.to_block
""")


def unwalked_from(connection: Connection) -> datetime | None:
    """Returns from when on the log waits to be walked to the end, for any open experiment.

    Returns:
        The start of the first block that closed since; where an experiment waits for a deploy, when
        its wait ended. None where nothing closed.
    """
    return connection.execute(_UNWALKED).scalar_one()


_EVENTS = text("""
SELECT count(*) FROM (
    SELECT FROM runtime_events
    WHERE received_at > :after AND received_at <= statement_timestamp() LIMIT :most
) AS events
""")


def count_events(connection: Connection, *, after: datetime, most: int) -> int:
    """Returns how many runtime events came after a time, counting no further than `most`."""
    return connection.execute(_EVENTS, {"after": after, "most": most}).scalar_one()


_SETTLED = text("""
WITH read AS (
    SELECT x.experiment_id, x.starts_at, v.decided,
        max(c.at) FILTER (WHERE c.stage = 'exposures') AS exposed_to,
        min(c.at) FILTER (WHERE c.stage LIKE 'cells/%') AS cells_to
    FROM experiments AS x
    JOIN verdicts AS v USING (experiment_id)
    JOIN cursors AS c USING (experiment_id)
    WHERE x.bound_at IS NOT NULL
    GROUP BY x.experiment_id, x.starts_at, v.decided
)
SELECT day::date
FROM generate_series(
    date_trunc('day', CAST(:as_of AS timestamptz)) - interval '30 days',
    CAST(:as_of AS timestamptz) - interval '1 day',
    interval '1 day'
) AS day
JOIN read AS r ON r.starts_at < day + interval '1 day' AND r.exposed_to > day
GROUP BY day
HAVING bool_and(r.decided OR r.cells_to >= day + interval '1 day')
ORDER BY day
""")


def settled_days(connection: Connection, *, as_of: datetime) -> list[date]:
    """Returns the days, in UTC, on which units were counted and whose last metric has closed.

    Those of the 30 days before `as_of`: the longest window and a margin. The oldest comes first.
    """
    return list(connection.execute(_SETTLED, {"as_of": as_of}).scalars())


# --- What the derived tables hold --------------------------------------------------------------

_UNITS = text("""
SELECT u.experiment_id, sum(u.treatment)::bigint AS treatment, sum(u.control)::bigint AS control,
    sum(u.partial + u.in_flight + u.excluded)::bigint AS others,
    (
        SELECT c.at FROM cursors AS c
        WHERE c.stage = 'exposures' AND c.experiment_id = u.experiment_id
    ) AS read_to
FROM block_units AS u
JOIN verdicts AS v USING (experiment_id)
WHERE NOT v.decided
GROUP BY u.experiment_id
ORDER BY sum(u.treatment + u.control + u.partial + u.in_flight + u.excluded) DESC, u.experiment_id
""")


def units_by_experiment(connection: Connection) -> Sequence[Row[Any]]:
    """Returns the exposed units of each open experiment that has any, the most first.

    Returns:
        Rows of experiment_id, treatment, control, others (units of neither arm) and read_to.
    """
    return connection.execute(_UNITS).all()


_DAYS = text("""
SELECT x.experiment_id, c.metric, count(*) AS cells, sum(c.n1) AS treatment_units,
    sum(c.x1) AS treatment_conversions, sum(c.n0) AS control_units, sum(c.x0) AS control_conversions
FROM cells AS c JOIN experiments AS x USING (experiment_id)
WHERE c.block >= CAST(:first AS date)::timestamptz
  AND c.block < CAST(:last AS date)::timestamptz + interval '1 day'
GROUP BY x.experiment_id, c.metric
ORDER BY x.experiment_id, c.metric
""")


def cells_of_days(connection: Connection, first: date, last: date) -> Sequence[Row[Any]]:
    """Returns the sums of some days' cells, a row for each experiment and metric.

    Returns:
        Rows of experiment_id, metric, cells, treatment_units, treatment_conversions, control_units,
        control_conversions.
    """
    return connection.execute(_DAYS, {"first": first, "last": last}).all()


# --- What the answers are ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Standing:
    """An experiment's evidence document and the contract that stands on it."""

    experiment_id: str
    document: dict[str, Any]
    contract: dict[str, Any]


_NEAREST = text("""
SELECT e.experiment_id, e.document, e.contract
FROM evidence AS e JOIN verdicts AS v USING (experiment_id)
WHERE NOT v.decided AND e.as_of IS NOT NULL
ORDER BY (e.document #>> '{totals,e_value}')::float
    * (e.document #>> '{policy,level}')::float DESC, e.experiment_id
LIMIT :most
""")
_DECIDED_LATELY = text("""
SELECT experiment_id, evidence AS document, contract FROM verdicts
WHERE decided AND as_of IS NOT NULL
ORDER BY published_at DESC, experiment_id
LIMIT :most
""")


def nearest_to_an_answer(connection: Connection, *, most: int) -> list[Standing]:
    """Returns the open experiments whose evidence came nearest to firing, the nearest first."""
    return _standings(connection, _NEAREST, most)


def decided_lately(connection: Connection, *, most: int) -> list[Standing]:
    """Returns the experiments that were decided last, the last first."""
    return _standings(connection, _DECIDED_LATELY, most)


def _standings(connection: Connection, query: TextClause, most: int) -> list[Standing]:
    return [
        Standing(experiment_id=row.experiment_id, document=row.document, contract=row.contract)
        for row in connection.execute(query, {"most": most})
    ]


_CHANGED_SINCE = text("""
SELECT experiment_id, contract, evidence ->> 'sentence' AS sentence, published_at,
    count(*) OVER () AS found
FROM verdicts
WHERE published_at > coalesce(:since, clock_timestamp() - interval '1 day')
ORDER BY published_at DESC, experiment_id
LIMIT :most
""").bindparams(bindparam("since", type_=DateTime(timezone=True)))


def verdicts_changed_since(
    connection: Connection, since: datetime | None, *, most: int
) -> Sequence[Row[Any]]:
    """Returns the verdicts whose answer changed, whoever walked, the last first.

    Args:
        connection: To the store.
        since: By the database's clock; None for the last 24 hours.
        most: How many rows at most.

    Returns:
        Rows of experiment_id, contract, sentence (None before the first look), published_at and
        found: how many there are in all.
    """
    return connection.execute(_CHANGED_SINCE, {"since": since, "most": most}).all()


_ANSWERS = text("""
SELECT count(*) FILTER (WHERE NOT decided) AS open,
    count(*) FILTER (WHERE decided) AS decided,
    count(*) FILTER (WHERE verdict = 'keep') AS keep,
    count(*) FILTER (WHERE verdict = 'rollback') AS rollback,
    count(*) FILTER (WHERE verdict = 'iterate') AS iterate,
    count(*) FILTER (WHERE decided AND verdict = 'abstain') AS no_answer,
    clock_timestamp() AS counted_at
FROM verdicts
""")


def count_answers(connection: Connection) -> Row[Any]:
    """Returns how many experiments stand where.

    Returns:
        A row of open, decided, keep, rollback, iterate, no_answer (decided without one) and
        counted_at, by the database's clock.
    """
    return connection.execute(_ANSWERS).one()


# --- Facts that must hold ----------------------------------------------------------------------

_KEPT_WITH_BREACH = text("""
SELECT experiment_id FROM verdicts
WHERE verdict = 'keep' AND contract -> 'guardrail_breaches' ->> 0 IS NOT NULL
ORDER BY experiment_id
""")


def keeps_with_a_breach(connection: Connection) -> list[str]:
    """Returns the experiments that are told to be kept although a guardrail is breached."""
    return list(connection.execute(_KEPT_WITH_BREACH).scalars())


_CHANGED = text(f"""
SELECT v.experiment_id FROM verdicts AS v
LEFT JOIN evidence AS e USING (experiment_id)
-- A candidate's numbers freeze when it fires, not when its guardrails let it be kept.
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN v.verdict IN ('keep', 'iterate') AND v.evidence ->> 'candidate' IS NOT NULL
        THEN v.evidence -> 'candidate' ELSE v.evidence -> 'totals'
    END AS at
) AS frozen
WHERE v.decided AND {_FRESH} AND (
    (v.contract::text, v.evidence::text) IS DISTINCT FROM (e.contract::text, e.document::text)
    OR v.contract ->> 'verdict' <> v.verdict
    OR (v.verdict <> 'abstain' AND (
        (v.contract ->> 'lift')::float IS DISTINCT FROM (frozen.at ->> 'lift')::float
        OR v.contract ->> 'ci' IS DISTINCT FROM frozen.at ->> 'ci'
        OR (v.contract ->> 'confidence')::float IS DISTINCT FROM coalesce(
            (frozen.at ->> 'confidence')::float, 1 - (frozen.at ->> 'p_running_min')::float
        )
    ))
)
ORDER BY v.experiment_id
""")


def decided_unlike_their_evidence(connection: Connection) -> list[str]:
    """Returns decided experiments whose contract is not the one that their evidence supports."""
    return list(connection.execute(_CHANGED).scalars())


_RISES = text(f"""
SELECT DISTINCT v.experiment_id
FROM verdicts AS v
CROSS JOIN LATERAL (
    SELECT (look ->> 'p_running_min')::float AS p,
        lag((look ->> 'p_running_min')::float) OVER (ORDER BY number) AS earlier
    FROM json_array_elements(v.evidence -> 'looks') WITH ORDINALITY AS l (look, number)
) AS looks
WHERE {_FRESH} AND looks.p > looks.earlier
ORDER BY v.experiment_id
""")


def risen_running_p(connection: Connection) -> list[str]:
    """Returns the experiments in whose looks the running minimum of p rises."""
    return list(connection.execute(_RISES).scalars())


_UNACCOUNTED = text(f"""
WITH told AS (
    SELECT v.experiment_id, v.as_of,
        make_interval(secs => (x.policy ->> 'grace_seconds')::float) AS grace,
        (v.evidence #>> '{{arms,control,units}}')::bigint
            + (v.evidence #>> '{{arms,treatment,units}}')::bigint AS in_arms,
        (v.evidence #>> '{{counts,in_cells}}')::bigint AS in_cells,
        (
            SELECT sum((v.evidence -> 'counts' ->> name)::bigint)
            FROM unnest(ARRAY['in_cells', 'open', 'late', 'in_flight', 'unknown_commit', 'partial',
                'excluded', 'unsigned']) AS name
        ) AS accounted
    FROM verdicts AS v JOIN experiments AS x USING (experiment_id)
    WHERE v.as_of IS NOT NULL AND {_FRESH}
), seen AS (
    SELECT experiment_id, count(DISTINCT unit) AS units
    FROM (
        SELECT t.experiment_id, p.unit FROM told AS t JOIN exposures AS p USING (experiment_id)
        WHERE p.block + interval '5 minutes' + t.grace <= t.as_of
        UNION ALL
        SELECT t.experiment_id, s.unit FROM told AS t JOIN sightings AS s USING (experiment_id)
        WHERE s.kind IN ('late', 'unknown_commit', 'unsigned') AND s.at <= t.as_of
    ) AS units
    GROUP BY experiment_id
)
SELECT t.experiment_id, t.in_arms, t.in_cells, t.accounted, coalesce(s.units, 0) AS units
FROM told AS t LEFT JOIN seen AS s USING (experiment_id)
WHERE t.in_arms <> t.in_cells OR t.accounted <> coalesce(s.units, 0)
ORDER BY t.experiment_id
""")


def units_that_do_not_add_up(connection: Connection) -> Sequence[Row[Any]]:
    """Returns the experiments whose evidence counts other units than were seen.

    Returns:
        Rows of experiment_id, in_arms, in_cells, accounted (their sum) and units (seen).
    """
    return connection.execute(_UNACCOUNTED).all()


_LOG = """
-- The events of the last hour that was read, of the experiments that are open.
FROM (
    SELECT x.experiment_id, x.project_id, x.environment, x.starts_at, c.at,
        x.policy ->> 'graph_id' AS graph_id, x.policy -> 'routes' AS routes,
        x.policy ->> 'unit' = 'user' AS by_user,
        (x.policy ->> 'trusted_identity')::boolean AS trusted
    FROM experiments AS x
    JOIN verdicts AS v USING (experiment_id)
    JOIN cursors AS c ON c.stage = 'exposures' AND c.experiment_id = x.experiment_id
    WHERE NOT v.decided
) AS s
JOIN runtime_events AS e
  ON e.project_id = s.project_id AND e.environment = s.environment
 AND e.received_at > s.at - interval '1 hour' AND e.received_at <= s.at
 AND e.occurred_at >= s.starts_at
"""
_ROUTES = text(f"""
SELECT DISTINCT s.experiment_id, s.project_id, s.graph_id, s.routes, e.route
{_LOG} WHERE s.routes <> 'null' AND e.route IS NOT NULL
""")
_LOST = text(f"""
-- In a block that closed, on a route that exposes: each of these units must have been placed, or
-- be known as late, unsigned or of an unknown commit.
WITH exposing AS (
    SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:routes AS text[])) AS _ (experiment_id, route)
), seen AS (
    SELECT DISTINCT s.experiment_id, {UNIT} AS unit
    {_LOG} WHERE date_bin('5 minutes', e.occurred_at, 'epoch') < s.at AND (
        s.routes = 'null' OR (s.experiment_id, e.route) IN (TABLE exposing)
    )
)
SELECT s.experiment_id, count(*) AS units
FROM seen AS s
WHERE s.unit IS NOT NULL
  AND NOT EXISTS (
      SELECT FROM exposures AS p
      WHERE p.experiment_id = s.experiment_id AND p.unit = s.unit
  )
  AND NOT EXISTS (
      SELECT FROM sightings AS g
      WHERE g.experiment_id = s.experiment_id AND g.unit = s.unit
        AND g.kind IN ('late', 'unknown_commit', 'unsigned')
  )
GROUP BY s.experiment_id
ORDER BY s.experiment_id
""")


def lost_sessions(connection: Connection) -> dict[str, int]:
    """Returns, by open experiment, the units of the last hour that no count holds."""
    exposing = _exposing_routes(connection)
    bound = {"ids": [one for one, _ in exposing], "routes": [route for _, route in exposing]}
    return {row.experiment_id: row.units for row in connection.execute(_LOST, bound)}


def _exposing_routes(connection: Connection) -> list[tuple[str, str]]:
    """Returns which routes of the log expose to which experiment, by the patterns of its graph."""
    tables: dict[str | None, RouteTable] = {}
    found: list[tuple[str, str]] = []
    for row in connection.execute(_ROUTES):
        if row.graph_id not in tables:
            known = row.graph_id and graph_patterns(connection, row.project_id, row.graph_id)
            tables[row.graph_id] = RouteTable(known or ())
        exposing = {canonical_route(pattern) for pattern in row.routes}
        if exposing & {canonical_route(row.route), tables[row.graph_id].match(row.route)}:
            found.append((row.experiment_id, row.route))
    return found
