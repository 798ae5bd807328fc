"""Exposures: each unit's first qualifying event, its arm and stratum; final once a block closes."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import psycopg
from sqlalchemy import Connection, Row, text

from storage.graphs import graph_patterns
from storage.histories import read_facts, read_flags
from storage.intake import IN_SCOPE, by_hash, drop_intakes, lay_out, sample_grown
from storage.placement import Flag, Histories, Question
from storage.route import RouteTable, canonical_route
from storage.sample import BOUND_OF_POLICY, IN_SAMPLE
from storage.tombstones import lay_exposures

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BLOCK = timedelta(minutes=5)

# Units seen so long before the start are in mid-flight: control would have them, treatment none.
_IN_FLIGHT = "30 minutes"
# A client's clock may run ahead by 2 minutes; and a minute for the servers' own.
_AHEAD = "3 minutes"

_SCOPE = text(f"""
CREATE TEMP TABLE scope ON COMMIT DROP AS
SELECT *,
    -- What is cheap to group and to compare, event by event.
    row_number() OVER ()::integer AS number, routes <> 'null' AS by_route, flags <> '[]' AS flagged,
    from_block - interval '{_AHEAD}' AS received_from,
    to_block + grace AS received_to
FROM (
    SELECT x.experiment_id, x.project_id, x.environment, x.starts_at, x.bound_at, x.change,
        x.policy ->> 'graph_id' AS graph_id,
        x.policy -> 'routes' AS routes,
        (x.policy ->> 'trusted_identity')::boolean AS trusted,
        -- A policy that was frozen before there were signatures asks for none.
        coalesce((x.policy ->> 'signed_assignments')::boolean, false) AS signed_only,
        x.policy ->> 'unit' = 'user' AS by_user,
        {BOUND_OF_POLICY} AS sample_bound,
        x.policy -> 'flag' AS flag,
        p.wait,
        -- The flags that the environment's experiments test: values that a context may hold.
        (
            SELECT coalesce(jsonb_agg(DISTINCT o.policy -> 'flag' ->> 'name'), '[]')
            FROM experiments AS o
            WHERE o.project_id = x.project_id AND o.environment = x.environment
              AND o.policy -> 'flag' ->> 'name' IS NOT NULL
        ) AS flags,
        p.grace,
        x.starts_at - interval '{_IN_FLIGHT}' AS in_flight_from,
        x.starts_at + p.horizon AS horizon,
        coalesce(
            c.at, date_bin('5 minutes', x.starts_at - interval '{_IN_FLIGHT}', 'epoch')
        ) AS from_block,
        -- Nothing is read past the closing of the last outcome within the horizon.
        least(
            date_bin('5 minutes', CAST(:as_of AS timestamptz) - p.grace, 'epoch'),
            date_bin('5 minutes', x.starts_at + p.horizon + p.wait, 'epoch')
        ) AS to_block
    -- First those asked for: a policy that cannot be read fails its own experiment alone.
    FROM (
        SELECT * FROM experiments
        WHERE bound_at IS NOT NULL
          AND (CAST(:only AS text[]) IS NULL OR experiment_id = ANY(CAST(:only AS text[])))
        OFFSET 0
    ) AS x
    CROSS JOIN LATERAL (
        SELECT make_interval(secs => (x.policy ->> 'grace_seconds')::float) AS grace,
            make_interval(secs => (x.policy ->> 'horizon_seconds')::float) AS horizon,
            make_interval(secs => (x.policy ->> 'window_seconds')::float) AS wait
    ) AS p
    LEFT JOIN cursors AS c ON c.stage = 'exposures' AND c.experiment_id = x.experiment_id
    LEFT JOIN verdicts AS v ON v.experiment_id = x.experiment_id
    WHERE NOT coalesce(v.decided, false)
) AS reading
WHERE to_block > from_block
""")

# The events that the step reads.
_RECEIVED = """
SELECT e.project_id, e.environment, e.session_id, e.occurred_at, e.received_at, e.commit_sha,
    e.route, e.pseudonym, e.trusted, e.signed, e.flags
FROM runtime_events AS e
WHERE e.received_at BETWEEN timestamptz '{received_from}' AND timestamptz '{received_to}'
"""

# Whether an experiment reads an event now. Of a range between two columns the planner expects so
# few rows that it would hash the events rather than what they are joined to; of a CASE, half.
_READ = """
CASE WHEN e.received_at BETWEEN s.received_from AND s.received_to
      AND e.occurred_at >= s.in_flight_from AND e.occurred_at < s.to_block THEN true END
"""

# What the flags that are under test in an environment were for an event, as canonical JSON text:
# worked out once for each set of flags that events name, however many events and experiments.
_CONTEXTS = text("""
CREATE TEMP TABLE contexts ON COMMIT DROP AS
SELECT project_id, environment, flags, tested,
    dense_rank() OVER (ORDER BY project_id, environment, tested)::integer AS context
FROM (
    SELECT e.project_id, e.environment, e.flags, (
            SELECT jsonb_object_agg(name, e.flags ->> name)::text
            FROM jsonb_array_elements_text(s.flags) AS name
            WHERE jsonb_exists(e.flags, name)
        ) AS tested
    FROM (
        SELECT project_id, environment, flags
        FROM received
        WHERE flags IS NOT NULL AND commit_sha IS NOT NULL
        GROUP BY project_id, environment, flags
    ) AS e
    JOIN (SELECT DISTINCT project_id, environment, flags FROM scope WHERE flagged) AS s
      ON s.project_id = e.project_id AND s.environment = e.environment
) AS named
WHERE tested IS NOT NULL
""")

_EVENT_COLUMNS = """
e.project_id, e.environment, e.session_id, e.occurred_at, e.received_at, e.commit_sha,
e.route, e.pseudonym, e.trusted, e.signed
"""

# The received events with their context; 0 where an event names no flag under test. OFFSET 0 has
# the context be looked up once for each event, rather than once more for each experiment.
_EVENTS_IN_CONTEXT = f"""
SELECT {_EVENT_COLUMNS}, coalesce(k.context, 0) AS context
FROM received AS e
LEFT JOIN contexts AS k
  ON k.project_id = e.project_id AND k.environment = e.environment AND k.flags = e.flags
OFFSET 0
"""

_EVENTS_WITHOUT_CONTEXT = f"""
CREATE TEMP VIEW events_in_context AS SELECT {_EVENT_COLUMNS}, 0 AS context FROM received AS e
"""

# The unit that an event is of: its session, or the user that it names.
UNIT = """
CASE WHEN NOT s.by_user THEN e.session_id
     WHEN e.trusted OR NOT s.trusted THEN encode(e.pseudonym, 'hex')
END
"""

# Whether an event may say which arm served its session: anybody can send one with the public key.
_VOUCHED_FOR = "(NOT s.signed_only OR e.trusted OR e.signed)"

_COMMITS = text(f"""
-- Of each environment what its events name at all, once for all its experiments.
SELECT s.number, e.commit_sha, e.context
FROM (
    SELECT project_id, environment, commit_sha, trusted, signed, context
    FROM events_in_context
    WHERE commit_sha IS NOT NULL
    GROUP BY 1, 2, 3, 4, 5, 6
) AS e
JOIN scope AS s ON s.project_id = e.project_id AND s.environment = e.environment
WHERE {_VOUCHED_FOR}
GROUP BY s.number, e.commit_sha, e.context
""")

_ROUTES = text(f"""
SELECT DISTINCT s.experiment_id, e.route
FROM scope AS s
JOIN received AS e ON e.project_id = s.project_id AND e.environment = s.environment AND {_READ}
WHERE s.by_route AND e.route IS NOT NULL
""")

# Where the events of a commit stand that occurred in a span of blocks.
_PLACES = text("""
CREATE TEMP TABLE places (
    place integer, number integer, commit_sha text, context integer, resolved text,
    occurred_from timestamptz, occurred_to timestamptz, arm text, stratum text
) ON COMMIT DROP
""")

_COPY_PLACES = """
COPY places (
    place, number, commit_sha, context, resolved, occurred_from, occurred_to, arm, stratum
) FROM STDIN
"""

# The place of an event, if its commit is known.
_PLACED = """
p.number = s.number AND p.commit_sha = e.commit_sha AND p.context = e.context
AND e.occurred_at >= p.occurred_from AND e.occurred_at < p.occurred_to
"""

_ROUTES_IN_SCOPE = text("""
CREATE TEMP TABLE routes_in_scope (
    experiment_id text, route text, exposing boolean, PRIMARY KEY (experiment_id, route)
) ON COMMIT DROP
""")

_CLOSED_AT = "date_bin('5 minutes', e.occurred_at, 'epoch') + interval '5 minutes' + s.grace"

_SEEN = text(f"""
-- One reading of the new events finds, of each unit, the first event of each kind in each place.
CREATE TEMP TABLE seen ON COMMIT DROP AS
SELECT number, unit, kind, place, route,
    min(CASE kind WHEN 'exposure' THEN occurred_at ELSE known_at END) AS at
FROM (
    SELECT s.number, {UNIT} AS unit, s.project_id, s.sample_bound, e.occurred_at, p.place,
        greatest(e.received_at, {_CLOSED_AT}) AS known_at,
        -- Events of one moment and commit stand in other places by their flags alone.
        CASE WHEN s.flagged THEN e.route END AS route,
        CASE
            WHEN e.occurred_at < s.starts_at THEN
                CASE WHEN e.received_at <= {_CLOSED_AT} THEN 'in_flight' END
            WHEN s.by_route AND r.route IS NULL THEN NULL
            WHEN s.by_route AND NOT r.exposing THEN 'unmatched_route'
            WHEN NOT {_VOUCHED_FOR} THEN 'unsigned'
            WHEN e.received_at > {_CLOSED_AT} THEN 'late'
            WHEN p.place IS NULL THEN 'unknown_commit'
            ELSE 'exposure'
        END AS kind
    FROM scope AS s
    JOIN events_in_context AS e
      ON e.project_id = s.project_id AND e.environment = s.environment AND {_READ}
    LEFT JOIN routes_in_scope AS r
      ON r.experiment_id = s.experiment_id AND r.route = e.route
    LEFT JOIN places AS p ON {_PLACED}
) AS told
WHERE unit IS NOT NULL AND {IN_SAMPLE}
GROUP BY number, unit, kind, place, route
""")

_CANDIDATES = text("""
-- The first exposure of each unit that has none yet. Who has one is left out last: of what is left
-- the planner knows nothing, and would take it for one row in every join that followed.
CREATE TEMP TABLE candidates ON COMMIT DROP AS
SELECT c.number, c.unit, c.place, c.at AS occurred_at,
    date_bin('5 minutes', c.at, 'epoch') AS block
FROM (
    SELECT DISTINCT ON (n.unit, n.number) n.number, n.unit, n.place, n.at
    FROM seen AS n
    JOIN places AS p USING (place)
    WHERE n.kind = 'exposure'
    ORDER BY n.unit, n.number, n.at, p.commit_sha COLLATE "C", n.route COLLATE "C", p.arm,
        p.stratum COLLATE "C"
) AS c
JOIN scope AS s USING (number)
WHERE NOT EXISTS (
    SELECT FROM exposures AS x WHERE x.experiment_id = s.experiment_id AND x.unit = c.unit
)
""")

_SIGHTINGS = text("""
INSERT INTO sightings (experiment_id, kind, unit, at)
SELECT s.experiment_id, n.kind, n.unit, min(n.at)
FROM seen AS n JOIN scope AS s USING (number)
WHERE n.kind <> 'exposure'
GROUP BY s.experiment_id, n.kind, n.unit
ON CONFLICT (experiment_id, kind, unit) DO UPDATE SET at = least(sightings.at, excluded.at)
""")

_STRATA = text("""
INSERT INTO strata (experiment_id, stratum, commit_sha)
SELECT s.experiment_id, p.stratum, min(p.resolved)
FROM (SELECT DISTINCT place FROM candidates) AS c
JOIN places AS p USING (place)
JOIN scope AS s USING (number)
GROUP BY s.experiment_id, p.stratum
ON CONFLICT DO NOTHING
""")

# From so many units on, the log of four weeks is read once, rather than each of its days looked
# into for each unit. The planner cannot tell: it takes the few for one, and reads all of the log.
_LOOKED_UP = 5_000

_NAMED = """
-- The session's user: the first reference among its events received by the block's close.
CREATE TEMP TABLE named ON COMMIT DROP AS
SELECT DISTINCT ON (c.unit, c.number) c.number, c.unit, i.pseudonym
FROM (
    SELECT c.number, c.unit, s.project_id, s.environment, s.trusted,
        c.block + interval '5 minutes' + s.grace AS closed_at
    FROM candidates AS c
    JOIN scope AS s USING (number)
    OFFSET 0
) AS c
CROSS JOIN LATERAL (
    SELECT e.occurred_at, e.pseudonym
    FROM runtime_events AS e
    WHERE e.project_id = c.project_id AND e.session_id = c.unit AND e.pseudonym IS NOT NULL
      AND e.environment = c.environment AND (e.trusted OR NOT c.trusted)
      AND e.received_at > c.closed_at - interval '28 days' AND e.received_at <= c.closed_at
      AND e.received_at > timestamptz '{received_from}' - interval '28 days'
      AND e.received_at <= timestamptz '{received_to}'
    {each}
) AS i
ORDER BY c.unit, c.number, i.occurred_at, i.pseudonym
"""

_EXPOSURES = text("""
INSERT INTO exposures
    (experiment_id, unit, exposed_at, block, arm, stratum, commit_sha, pseudonym)
SELECT s.experiment_id, c.unit, c.occurred_at, c.block,
    CASE
        WHEN f.unit IS NOT NULL THEN 'in_flight'
        WHEN c.block + interval '5 minutes' > s.horizon THEN 'excluded'
        ELSE p.arm
    END,
    p.stratum,
    p.resolved,
    n.pseudonym
FROM candidates AS c
JOIN scope AS s USING (number)
JOIN places AS p USING (place)
LEFT JOIN named AS n ON n.unit = c.unit AND n.number = c.number
LEFT JOIN sightings AS f
  ON f.experiment_id = s.experiment_id AND f.unit = c.unit AND f.kind = 'in_flight'
""")

_MOVED = text("""
-- Units of one arm that were seen in the other as well: few, if any.
CREATE TEMP TABLE moved ON COMMIT DROP AS
SELECT DISTINCT s.number, x.unit, x.exposed_at, x.arm
FROM seen AS n
JOIN places AS p USING (place)
JOIN scope AS s ON s.number = n.number
JOIN exposures AS x ON x.experiment_id = s.experiment_id AND x.unit = n.unit
WHERE (p.arm = 'treatment' AND x.arm = 'control') OR (p.arm = 'control' AND x.arm = 'treatment')
""")

_CROSSOVERS = text(f"""
-- A unit in both arms within its window, with no deploy between the sightings: the router is not
-- sticky. A deploy may rightly move units, so one in between explains it.
INSERT INTO sightings (experiment_id, kind, unit, at)
SELECT s.experiment_id, 'crossover', x.unit, min(greatest(e.received_at, b.closed_at))
FROM scope AS s
JOIN events_in_context AS e
  ON e.project_id = s.project_id AND e.environment = s.environment AND {_READ}
JOIN moved AS x
  ON x.number = s.number AND x.unit = {UNIT}
 AND e.occurred_at > x.exposed_at AND e.occurred_at <= x.exposed_at + s.wait
JOIN places AS p ON {_PLACED} AND p.arm IN ('treatment', 'control') AND p.arm <> x.arm
CROSS JOIN LATERAL (SELECT {_CLOSED_AT} AS closed_at) AS b
WHERE {_VOUCHED_FOR} AND NOT EXISTS (
    SELECT FROM deploys AS d
    WHERE d.project_id = s.project_id AND d.environment = s.environment
      AND d.deployed_at > x.exposed_at AND d.deployed_at <= e.occurred_at
      AND d.recorded_at <= greatest(b.closed_at, s.bound_at)
      AND (d.withdrawn_at IS NULL OR d.withdrawn_at > s.bound_at)
)
GROUP BY s.experiment_id, x.unit
ON CONFLICT (experiment_id, kind, unit) DO UPDATE SET at = least(sightings.at, excluded.at)
""")

# What the step has exposed: a block is exposed whole, in one step.
_EXPOSED = """
SELECT p.experiment_id, p.block, p.arm, p.pseudonym, p.commit_sha = x.treatment_commit AS own
FROM scope AS s
JOIN experiments AS x USING (experiment_id)
JOIN exposures AS p
  ON p.experiment_id = s.experiment_id AND p.block >= s.from_block AND p.block < s.to_block
"""

_BLOCK_UNITS = text("""
WITH met AS (
    SELECT p.experiment_id, p.pseudonym, p.block, p.arm,
        row_number() OVER (PARTITION BY p.experiment_id, p.pseudonym ORDER BY p.block) AS number
    FROM (
        SELECT DISTINCT experiment_id, pseudonym
        FROM exposed
        WHERE pseudonym IS NOT NULL AND arm IN ('treatment', 'control')
    ) AS known
    JOIN exposures AS p USING (experiment_id, pseudonym)
    WHERE p.arm IN ('treatment', 'control')
), users AS (
    -- The block that brought each of these users back, and that from which on both arms had them.
    SELECT experiment_id, min(block) FILTER (WHERE number = 2) AS returned,
        CASE WHEN count(DISTINCT arm) = 2 THEN greatest(
            min(block) FILTER (WHERE arm = 'treatment'), min(block) FILTER (WHERE arm = 'control')
        ) END AS strayed
    FROM met
    GROUP BY experiment_id, pseudonym
    HAVING count(*) >= 2
), counted AS (
    SELECT experiment_id, block,
        count(*) FILTER (WHERE arm = 'treatment') AS treatment,
        count(*) FILTER (WHERE arm = 'control') AS control,
        count(*) FILTER (WHERE arm = 'partial') AS partial,
        count(*) FILTER (WHERE arm = 'in_flight') AS in_flight,
        count(*) FILTER (WHERE arm = 'excluded') AS excluded,
        count(*) FILTER (WHERE own AND arm IN ('treatment', 'control', 'partial')) AS own,
        0 AS returned, 0 AS strayed
    FROM exposed
    GROUP BY experiment_id, block
    UNION ALL
    SELECT u.experiment_id, u.returned, 0, 0, 0, 0, 0, 0, 1, 0
    FROM users AS u JOIN scope AS s USING (experiment_id) WHERE u.returned >= s.from_block
    UNION ALL
    SELECT u.experiment_id, u.strayed, 0, 0, 0, 0, 0, 0, 0, 1
    FROM users AS u JOIN scope AS s USING (experiment_id) WHERE u.strayed >= s.from_block
)
INSERT INTO block_units (
    experiment_id, block, treatment, control, partial, in_flight, excluded, own, returned, strayed
)
SELECT experiment_id, block, sum(treatment), sum(control), sum(partial), sum(in_flight),
    sum(excluded), sum(own), sum(returned), sum(strayed)
FROM counted
GROUP BY experiment_id, block
ON CONFLICT DO NOTHING
""")

_CURSORS = text("""
INSERT INTO cursors (stage, experiment_id, at)
SELECT 'exposures', experiment_id, to_block FROM scope
ON CONFLICT (stage, experiment_id) DO UPDATE SET at = greatest(cursors.at, excluded.at)
""")


_INTAKES = (
    "events_in_context",
    "contexts",
    "received",
    "places",
    "routes_in_scope",
    "seen",
    "candidates",
    "named",
    "exposed",
    "moved",
)


_UNREADABLE = text("""
SELECT count(*) FROM experiments AS x
WHERE x.bound_at IS NOT NULL
  AND (CAST(:only AS text[]) IS NULL OR x.experiment_id = ANY(CAST(:only AS text[])))
  AND NOT jsonb_exists_all(x.policy, ARRAY['grace_seconds', 'horizon_seconds', 'window_seconds',
      'unit', 'routes', 'trusted_identity', 'flag', 'target', 'guardrails'])
""")


class UnreadablePolicyError(ValueError):
    """A frozen policy lacks what the pipeline reads of it: it is of another version, or broken."""


def extend_exposures(
    connection: Connection, *, as_of: datetime, only: Sequence[str] | None = None
) -> int:
    """Adds the exposures of the blocks that have closed since the last step.

    Args:
        connection: In a transaction that is the only writer of derived tables.
        as_of: A time up to which the log is final.
        only: The experiments to read for; None for all.

    Returns:
        The number of new exposures.

    Raises:
        UnreadablePolicyError: The policy of one of them is of another version, or broken.
    """
    asked = {"only": None if only is None else list(only)}
    if connection.execute(_UNREADABLE, asked).scalar_one():
        raise UnreadablePolicyError("a policy lacks what the pipeline reads of it")
    connection.execute(_SCOPE, {"as_of": as_of, **asked})
    connection.execute(text("ANALYZE scope"))
    scope = connection.execute(text("SELECT * FROM scope ORDER BY experiment_id")).all()
    added = 0
    if scope:
        begins = min(row.received_from for row in scope)
        ends = max(row.received_to for row in scope)
        span = {"received_from": begins.isoformat(), "received_to": ends.isoformat()}
        received = _RECEIVED.format(**span)
        lay_out(connection, "received", received, of=IN_SCOPE, begins=begins, ends=ends)
        _name_contexts(connection, scope, begins=begins, ends=ends)
        _place_commits(connection, scope)
        _match_routes(connection, scope)
        lay_exposures(connection)
        with by_hash(connection):
            connection.execute(_SEEN)
        connection.execute(text("ANALYZE seen"))
        each = "OFFSET 0" if connection.execute(_CANDIDATES).rowcount < _LOOKED_UP else ""
        connection.execute(text("ANALYZE candidates"))
        sighted = connection.execute(_SIGHTINGS).rowcount
        connection.execute(_STRATA)
        sample_grown(connection, "sightings", sighted)
        connection.execute(text(_NAMED.format(each=each, **span)))
        connection.execute(text("ANALYZE named"))
        added = connection.execute(_EXPOSURES).rowcount
        sample_grown(connection, "exposures", added)
        lay_out(connection, "exposed", _EXPOSED, begins=begins, ends=ends)
        connection.execute(_BLOCK_UNITS)
        if connection.execute(_MOVED).rowcount:
            connection.execute(text("ANALYZE moved"))
            connection.execute(_CROSSOVERS)
    connection.execute(_CURSORS)
    drop_intakes(connection, *_INTAKES)
    return added


def _name_contexts(
    connection: Connection, scope: Sequence[Row[Any]], *, begins: datetime, ends: datetime
) -> None:
    """Numbers what events name of flags under test, and lays out the events with that number."""
    if not any(row.flagged for row in scope):
        connection.execute(text(_EVENTS_WITHOUT_CONTEXT))
        return
    connection.execute(_CONTEXTS)
    connection.execute(text("ANALYZE contexts"))
    lay_out(connection, "events_in_context", _EVENTS_IN_CONTEXT, begins=begins, ends=ends)


def _tested_flags(connection: Connection, scope: Sequence[Row[Any]]) -> dict[int, str]:
    """Returns the flags under test of each context."""
    if not any(row.flagged for row in scope):
        return {0: "{}"}
    rows = connection.execute(text("SELECT DISTINCT context, tested FROM contexts"))
    return {0: "{}", **{row.context: row.tested for row in rows}}


def _place_commits(connection: Connection, scope: Sequence[Row[Any]]) -> None:
    connection.execute(_PLACES)
    tested = _tested_flags(connection, scope)
    named: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for number, commit, context in connection.execute(_COMMITS):
        named[number].append((commit, context))
    environments = [(row.project_id, row.environment) for row in scope]
    facts = read_facts(connection, environments)
    flags = read_flags(connection, environments)
    histories = {
        place: Histories(facts[place], flags=flags.get(place, {})) for place in set(environments)
    }
    placed = (
        (experiment, context, placement)
        for experiment, question in ((row, _question(row)) for row in scope)
        for commit, context in named[experiment.number]
        for placement in histories[experiment.project_id, experiment.environment].placements(
            question,
            commit,
            served=tested[context],
            until=experiment.to_block + experiment.grace,
        )
    )
    # The proxy knows its cursor also where the connection has left its pool, as for a rebuild.
    cursor = cast("psycopg.Cursor[Any]", connection.connection.cursor())
    with cursor.copy(_COPY_PLACES) as copying:
        for place, (experiment, context, placement) in enumerate(placed):
            copying.write_row(
                (
                    place,
                    experiment.number,
                    placement.commit,
                    context,
                    placement.resolved,
                    _first_to_know(experiment, placement.known_from) or "-infinity",
                    _first_to_know(experiment, placement.known_to) or "infinity",
                    placement.arm,
                    placement.stratum,
                )
            )
    connection.execute(text("ANALYZE places"))


def _first_to_know(experiment: Row[Any], known: datetime | None) -> datetime | None:
    """Returns the first block that closes at a time or later; None where that is no bound."""
    if known is None or known <= experiment.bound_at:
        return None
    before = known - experiment.grace - timedelta(microseconds=1)
    return before - (before - _EPOCH) % _BLOCK


def _question(experiment: Row[Any]) -> Question:
    return Question(
        change=frozenset(experiment.change),
        bound_at=experiment.bound_at,
        flag=None if experiment.flag is None else Flag(**experiment.flag),
    )


def _match_routes(connection: Connection, scope: Sequence[Row[Any]]) -> None:
    connection.execute(_ROUTES_IN_SCOPE)
    experiments = {row.experiment_id: row for row in scope}
    tables: dict[str | None, RouteTable] = {}
    rows: list[dict[str, object]] = []
    for experiment_id, route in connection.execute(_ROUTES):
        experiment = experiments[experiment_id]
        graph_id = experiment.graph_id
        if graph_id not in tables:
            patterns = (
                []
                if graph_id is None
                else graph_patterns(connection, experiment.project_id, graph_id)
            )
            tables[graph_id] = RouteTable(patterns)
        exposing = {canonical_route(pattern) for pattern in experiment.routes}
        path = canonical_route(route)
        pattern = path if path in exposing else tables[graph_id].match(route)
        # A route of the graph that does not expose is simply another page: no row at all.
        if pattern is None or pattern in exposing:
            rows.append(
                {
                    "experiment_id": experiment_id,
                    "route": route,
                    "exposing": pattern is not None,
                }
            )
    if rows:
        connection.execute(
            text("INSERT INTO routes_in_scope VALUES (:experiment_id, :route, :exposing)"), rows
        )
    connection.execute(text("ANALYZE routes_in_scope"))
