"""Invariants: facts that must hold of the store, and whatever contradicts them."""

from dataclasses import dataclass

from sqlalchemy import Connection, text

from domain.draw import DIGITS, POSITIONS
from domain.route import RouteTable, canonical_route
from storage.experiments.graphs import graph_patterns
from storage.pipeline.engines.postgres_engine import POSTGRESQL
from storage.pipeline.steps import IN_SAMPLE
from storage.postgres.rows import value_of
from storage.schema.encoding import SIGHTINGS, moment, on_our_clock, sightings
from storage.schema.policy_columns import (
    BY_USER,
    GRACE,
    GRAPH_ID,
    ROUTES,
    SAMPLE_RATE,
    TRUSTED_IDENTITY,
)
from storage.verdicts.evidence import UNKNOWN

# As `domain.draw.bound_of` has it.
_SAMPLE_BOUND = f"""
CASE WHEN {SAMPLE_RATE} < 1 THEN
    lpad(to_hex(round({SAMPLE_RATE} * {POSITIONS})::bigint), {DIGITS}, '0')
END
"""
# What is older was looked at while it was fresh, and the database refuses to rewrite it.
_FRESH = "(NOT v.decided OR v.published_at > clock_timestamp() - interval '1 day')"

_KEPT_WITH_BREACH = text("""
SELECT experiment_id FROM verdicts
WHERE verdict = 'keep' AND contract -> 'guardrail_breaches' ->> 0 IS NOT NULL
ORDER BY experiment_id
""")


def keeps_with_a_breach(connection: Connection) -> list[str]:
    """Returns the experiments that are to be kept although a guardrail is breached."""
    return list(connection.execute(_KEPT_WITH_BREACH).scalars())


_CHANGED = text(f"""
SELECT v.experiment_id FROM verdicts AS v
LEFT JOIN evidence AS e USING (experiment_id)
WHERE v.decided AND {_FRESH} AND (
    (v.contract::text, v.evidence::text) IS DISTINCT FROM (e.contract::text, e.document::text)
    OR v.contract ->> 'verdict' <> v.verdict
    OR (v.verdict <> 'abstain' AND (
        (v.contract ->> 'lift')::float
            IS DISTINCT FROM (v.evidence #>> '{{totals,lift}}')::float
        OR v.contract ->> 'ci' IS DISTINCT FROM v.evidence #>> '{{totals,ci}}'
        OR (v.contract ->> 'confidence')::float
            IS DISTINCT FROM 1 - (v.evidence #>> '{{totals,p_running_min}}')::float
    ))
)
ORDER BY v.experiment_id
""")


def decided_unlike_their_evidence(connection: Connection) -> list[str]:
    """Returns decided experiments whose contract is not what their evidence supports."""
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


# Kinds of sightings that account for a unit without an exposure.
_UNEXPOSED = sightings("late", "unsigned", *UNKNOWN)

_UNACCOUNTED = text(f"""
WITH published AS (
    SELECT v.experiment_id, v.as_of,
        {GRACE} AS grace,
        (v.evidence #>> '{{arms,control,units}}')::bigint
            + (v.evidence #>> '{{arms,treatment,units}}')::bigint AS in_arms,
        (v.evidence #>> '{{counts,in_cells}}')::bigint AS in_cells,
        (
            SELECT sum((v.evidence -> 'counts' ->> name)::bigint)
            FROM unnest(ARRAY['in_cells', 'compared_with_none', 'open', 'late', 'in_flight',
                'unknown_commit', 'ambiguous_commit', 'unknown_build', 'partial', 'excluded',
                'warming', 'unsigned']) AS name
        ) AS accounted
    FROM verdicts AS v JOIN experiments AS x USING (experiment_id)
    WHERE v.as_of IS NOT NULL AND {_FRESH}
), seen AS (
    SELECT experiment_id, count(DISTINCT unit) AS units
    FROM (
        SELECT t.experiment_id, p.unit FROM published AS t JOIN exposures AS p USING (experiment_id)
        WHERE {moment("p.block")} + interval '5 minutes' + t.grace <= t.as_of
        UNION ALL
        SELECT t.experiment_id, s.unit FROM published AS t JOIN sightings AS s USING (experiment_id)
        WHERE s.kind IN {_UNEXPOSED} AND {moment("s.sighted_at")} <= t.as_of
    ) AS units
    GROUP BY experiment_id
)
SELECT t.experiment_id, t.in_arms, t.in_cells, t.accounted, coalesce(s.units, 0) AS units
FROM published AS t LEFT JOIN seen AS s USING (experiment_id)
WHERE t.in_arms <> t.in_cells OR t.accounted <> coalesce(s.units, 0)
ORDER BY t.experiment_id
""")


@dataclass(frozen=True, kw_only=True)
class UnitDifference:
    """An experiment whose evidence counts other units than were seen.

    Attributes:
        accounted: The sum of all of its counts.
        units: The units that were seen.
    """

    experiment_id: str
    in_arms: int
    in_cells: int
    accounted: int
    units: int


def units_that_do_not_add_up(connection: Connection) -> list[UnitDifference]:
    """Returns the experiments whose evidence counts other units than were seen."""
    return [value_of(UnitDifference, row) for row in connection.execute(_UNACCOUNTED)]


# The unit that an event is of: its session, or the user that it names.
UNIT = """
CASE WHEN NOT s.by_user THEN e.session_id
     WHEN e.trusted OR NOT s.trusted THEN encode(e.pseudonym, 'hex')
END
"""

_LOG = f"""
-- The events of the last hour that was read, of the experiments that are open.
FROM (
    SELECT x.experiment_id, x.project_id, x.environment, x.starts_at, c.at,
        {GRAPH_ID} AS graph_id, {ROUTES} AS routes, {BY_USER} AS by_user,
        {TRUSTED_IDENTITY} AS trusted, {_SAMPLE_BOUND} AS sample_bound
    FROM experiments AS x
    JOIN verdicts AS v USING (experiment_id)
    JOIN cursors AS c ON c.stage = 'exposures' AND c.experiment_id = x.experiment_id
    WHERE NOT v.decided
) AS s
JOIN runtime_events AS e
  ON e.project_id = s.project_id AND e.environment = s.environment
 AND e.received_at > s.at - interval '1 hour' AND e.received_at <= s.at
 AND {on_our_clock("e")} >= s.starts_at
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
    SELECT DISTINCT s.experiment_id, s.project_id, s.sample_bound, {UNIT} AS unit
    {_LOG} WHERE date_bin('5 minutes', {on_our_clock("e")}, 'epoch') < s.at AND (
        s.routes = 'null' OR (s.experiment_id, e.route) IN (TABLE exposing)
    )
)
SELECT s.experiment_id, count(*) AS units
FROM seen AS s
WHERE s.unit IS NOT NULL AND {POSTGRESQL.written(IN_SAMPLE)}
  AND NOT EXISTS (
      SELECT FROM exposures AS p
      WHERE p.experiment_id = s.experiment_id AND p.unit = s.unit
  )
  AND NOT EXISTS (
      SELECT FROM sightings AS g
      WHERE g.experiment_id = s.experiment_id AND g.unit = s.unit
        AND (g.kind IN {_UNEXPOSED} OR g.kind = {SIGHTINGS["in_flight"]})
  )
GROUP BY s.experiment_id
ORDER BY s.experiment_id
""")


def lost_sessions(connection: Connection) -> dict[str, int]:
    """Returns, by open experiment, the units of the last hour that no count holds."""
    exposing = _exposing_routes(connection)
    bound = {
        "ids": [experiment_id for experiment_id, _ in exposing],
        "routes": [route for _, route in exposing],
    }
    return {row.experiment_id: row.units for row in connection.execute(_LOST, bound)}


def _exposing_routes(connection: Connection) -> list[tuple[str, str]]:
    """Returns which routes of the log expose to which experiment, by the patterns of its graph."""
    tables: dict[str | None, RouteTable] = {}
    violations: list[tuple[str, str]] = []
    for row in connection.execute(_ROUTES):
        if row.graph_id not in tables:
            known = row.graph_id and graph_patterns(connection, row.project_id, row.graph_id)
            tables[row.graph_id] = RouteTable(known or ())
        exposing = {canonical_route(pattern) for pattern in row.routes}
        if exposing & {canonical_route(row.route), tables[row.graph_id].match(row.route)}:
            violations.append((row.experiment_id, row.route))
    return violations
