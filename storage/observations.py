"""Observations: what the store says of itself, asked by schedules, checks and whoever watches."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from storage.tables import SCHEMA

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
WHERE {received} > clock_timestamp() - interval '1 hour' AND {received} <= clock_timestamp()
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
 AND e.received_at > clock_timestamp() - interval '1 hour' AND e.received_at <= clock_timestamp()
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

_CLOSED = text("""
SELECT EXISTS (
    SELECT FROM verdicts AS v
    JOIN experiments AS x USING (experiment_id)
    LEFT JOIN cursors AS c ON c.stage = 'exposures' AND c.experiment_id = x.experiment_id
    CROSS JOIN LATERAL (
        SELECT least(
            clock_timestamp() - make_interval(secs => (x.policy ->> 'grace_seconds')::float),
            -- Past this nothing is read: see exposures.
            x.starts_at + make_interval(secs => (x.policy ->> 'horizon_seconds')::float)
                + make_interval(secs => (x.policy ->> 'window_seconds')::float)
        ) AS to_block
    ) AS r
    WHERE NOT v.decided AND (
        c.at < date_bin('5 minutes', r.to_block, 'epoch')
        OR (c.at IS NULL AND x.bound_at IS NOT NULL)
        OR (x.bound_at IS NULL AND (
            x.closed_at IS NOT NULL
            OR x.registered_at <= clock_timestamp() - interval '28 days'
        ))
    )
)
""")


def something_closed(connection: Connection) -> bool:
    """Returns whether any experiment has a block, or a wait, that closed since it was last read."""
    return connection.execute(_CLOSED).scalar_one()


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

_ARMS = text("""
SELECT arm, count(*) AS units FROM exposures AS p
JOIN verdicts AS v USING (experiment_id)
WHERE NOT v.decided
GROUP BY arm ORDER BY arm
""")


def units_by_arm(connection: Connection) -> dict[str, int]:
    """Returns the exposed units of all open experiments, by arm."""
    return {row.arm: row.units for row in connection.execute(_ARMS)}


SUMS = (
    "experiment_id",
    "metric",
    "cells",
    "treatment_units",
    "treatment_conversions",
    "control_units",
    "control_conversions",
)
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
        Rows of the members of SUMS.
    """
    return connection.execute(_DAYS, {"first": first, "last": last}).all()


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


_LOST = text("""
-- Received in the last hour that was read, in a block that closed, on a route that exposes: each
-- of these sessions must have been placed, or be known as late, unsigned or of an unknown commit.
SELECT x.experiment_id, count(DISTINCT e.session_id) AS sessions
FROM experiments AS x
JOIN verdicts AS v USING (experiment_id)
JOIN cursors AS c ON c.stage = 'exposures' AND c.experiment_id = x.experiment_id
JOIN runtime_events AS e
  ON e.project_id = x.project_id AND e.environment = x.environment
 AND e.received_at > c.at - interval '1 hour' AND e.received_at <= c.at
 AND e.occurred_at >= x.starts_at
WHERE NOT v.decided
  AND (x.policy -> 'routes' = 'null' OR x.policy -> 'routes' ? e.route)
  AND NOT EXISTS (
      SELECT FROM exposures AS p
      WHERE p.experiment_id = x.experiment_id AND p.unit = e.session_id
  )
  AND NOT EXISTS (
      SELECT FROM sightings AS s
      WHERE s.experiment_id = x.experiment_id AND s.unit = e.session_id
        AND s.kind IN ('late', 'unknown_commit', 'unsigned')
  )
  AND date_bin('5 minutes', e.occurred_at, 'epoch') < c.at
GROUP BY x.experiment_id
ORDER BY x.experiment_id
""")


def lost_sessions(connection: Connection) -> dict[str, int]:
    """Returns, by open experiment, the sessions of the last hour that no count holds."""
    return {row.experiment_id: row.sessions for row in connection.execute(_LOST)}


# --- What is served, against a separate reading ------------------------------------------------

_SET_ASIDE = text(f"""
INSERT INTO verdicts (
    experiment_id, project_id, contract, verdict, abstain_reason, decided, published_at
)
SELECT experiment_id, project_id, '{{}}', 'abstain', 'power', true, clock_timestamp()
FROM {SCHEMA}.experiments AS x
WHERE NOT EXISTS (
    SELECT FROM {SCHEMA}.cells AS c
    WHERE c.experiment_id = x.experiment_id
      AND c.block >= CAST(:first AS date)::timestamptz
      AND c.block < CAST(:last AS date)::timestamptz + interval '1 day'
)
""")


def keep_to_days(separate: Connection, first: date, last: date) -> None:
    """Keeps a separate reading to the experiments that have cells on some days."""
    separate.execute(_SET_ASIDE, {"first": first, "last": last})


_DIFFERENT_CELLS = text(f"""
WITH bounds AS (
    SELECT experiment_id, stage, least(served.at, rebuilt.at) AS at
    FROM {SCHEMA}.cursors AS served JOIN pg_temp.cursors AS rebuilt USING (experiment_id, stage)
), served AS (
    SELECT c.* FROM {SCHEMA}.cells AS c
    JOIN bounds AS b ON b.experiment_id = c.experiment_id AND b.stage = 'cells/' || c.metric
    WHERE c.block < b.at
), rebuilt AS (
    SELECT c.* FROM pg_temp.cells AS c
    JOIN bounds AS b ON b.experiment_id = c.experiment_id AND b.stage = 'cells/' || c.metric
    WHERE c.block < b.at
)
SELECT experiment_id, metric, block, stratum, 'served' AS side, n1, x1, n0, x0
FROM (TABLE served EXCEPT TABLE rebuilt) AS s
WHERE block >= CAST(:first AS date)::timestamptz
  AND block < CAST(:last AS date)::timestamptz + interval '1 day'
UNION ALL
SELECT experiment_id, metric, block, stratum, 'rebuilt', n1, x1, n0, x0
FROM (TABLE rebuilt EXCEPT TABLE served) AS r
WHERE block >= CAST(:first AS date)::timestamptz
  AND block < CAST(:last AS date)::timestamptz + interval '1 day'
ORDER BY experiment_id, metric, block, stratum, side
""")


def cells_unlike_served(separate: Connection, first: date, last: date) -> Sequence[Row[Any]]:
    """Returns the cells of some days that a separate reading and the served tables tell otherwise.

    As far as both have read; rows of the cell's members, and `side`: which of the two holds it.
    """
    return separate.execute(_DIFFERENT_CELLS, {"first": first, "last": last}).all()


_DIFFERENT_VERDICTS = text(f"""
-- At the same look the bytes must be the same; a decided one stands at its own look for good.
SELECT rebuilt.experiment_id
FROM pg_temp.evidence AS rebuilt
JOIN {SCHEMA}.verdicts AS served USING (experiment_id)
WHERE (served.decided OR served.as_of = rebuilt.as_of)
  AND (served.contract::text, served.evidence::text)
      IS DISTINCT FROM (rebuilt.contract::text, rebuilt.document::text)
ORDER BY rebuilt.experiment_id
""")


def verdicts_unlike_served(separate: Connection) -> list[str]:
    """Returns the experiments whose served verdict is not what a separate reading staged."""
    return list(separate.execute(_DIFFERENT_VERDICTS).scalars())
