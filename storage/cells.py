"""Cells: units and conversions of a block, stratum and arm, final once their outcomes close."""

from sqlalchemy import Connection, text

from storage.exposures import ANALYZE_FROM

_AHEAD = "3 minutes"

_SCOPE = text("""
CREATE TEMP TABLE scope ON COMMIT DROP AS
SELECT x.experiment_id, x.project_id, x.environment, x.starts_at,
    m ->> 'name' AS metric,
    make_interval(secs => (m ->> 'window_seconds')::float) AS wait,
    make_interval(secs => (x.policy ->> 'grace_seconds')::float) AS grace,
    m -> 'sources' AS sources,
    coalesce(done.at, date_bin('5 minutes', x.starts_at, 'epoch')) AS from_block,
    exposed.at AS to_block
FROM experiments AS x
CROSS JOIN LATERAL jsonb_array_elements(
    jsonb_build_array(x.policy -> 'target') || (x.policy -> 'guardrails')
) AS m
JOIN cursors AS exposed ON exposed.stage = 'exposures' AND exposed.experiment_id = x.experiment_id
LEFT JOIN cursors AS done ON done.stage = 'conversions' AND done.experiment_id = x.experiment_id
LEFT JOIN verdicts AS v ON v.experiment_id = x.experiment_id
WHERE NOT coalesce(v.decided, false)
""")

_RUNTIME_OUTCOMES = text(f"""
INSERT INTO conversions (experiment_id, metric, unit, received_at)
SELECT s.experiment_id, s.metric, p.unit, min(e.received_at)
FROM scope AS s
JOIN runtime_events AS e
  ON e.project_id = s.project_id AND e.environment = s.environment
 AND e.event IN (SELECT jsonb_array_elements_text(s.sources))
 AND e.received_at > s.from_block - interval '{_AHEAD}'
 AND e.received_at <= s.to_block + s.grace
 AND e.received_at > (SELECT min(from_block) FROM scope) - interval '{_AHEAD}'
JOIN exposures AS p
  ON p.experiment_id = s.experiment_id AND p.unit = e.session_id
 AND e.occurred_at BETWEEN p.exposed_at AND p.exposed_at + s.wait
 AND p.arm IN ('treatment', 'control')
WHERE s.to_block > s.from_block
GROUP BY s.experiment_id, s.metric, p.unit
ON CONFLICT (experiment_id, metric, unit) DO UPDATE
SET received_at = least(conversions.received_at, excluded.received_at)
""")

_REVENUE_OUTCOMES = text(f"""
-- By its session where the event names one, else by pseudonym: then it counts once, for the
-- earliest exposure of that pseudonym whose window holds it. Earlier blocks close first, so no
-- later exposure is ever preferred, and nothing is taken back.
WITH revenue AS (
    SELECT s.experiment_id, s.metric, s.wait, r.*
    FROM scope AS s
    JOIN revenue_events AS r
      ON r.project_id = s.project_id
     AND r.event IN (SELECT jsonb_array_elements_text(s.sources))
     AND coalesce(r.environment, s.environment) = s.environment
     AND r.received_at > s.from_block - interval '{_AHEAD}'
     AND r.received_at <= s.to_block + s.grace
    WHERE s.to_block > s.from_block
), credited AS (
    SELECT r.experiment_id, r.metric, r.received_at, p.unit, p.arm
    FROM revenue AS r
    JOIN exposures AS p
      ON p.experiment_id = r.experiment_id AND p.unit = r.session_id
     AND r.occurred_at BETWEEN p.exposed_at AND p.exposed_at + r.wait
    UNION ALL
    (SELECT DISTINCT ON (r.experiment_id, r.metric, r.idempotency_key)
        r.experiment_id, r.metric, r.received_at, p.unit, p.arm
    FROM revenue AS r
    JOIN exposures AS p
      ON p.experiment_id = r.experiment_id AND p.pseudonym = r.pseudonym
     AND r.occurred_at BETWEEN p.exposed_at AND p.exposed_at + r.wait
    WHERE r.session_id IS NULL AND p.arm IN ('treatment', 'control')
    ORDER BY r.experiment_id, r.metric, r.idempotency_key, p.exposed_at, p.unit COLLATE "C")
)
INSERT INTO conversions (experiment_id, metric, unit, received_at)
SELECT experiment_id, metric, unit, min(received_at) FROM credited
WHERE arm IN ('treatment', 'control')
GROUP BY experiment_id, metric, unit
ON CONFLICT (experiment_id, metric, unit) DO UPDATE
SET received_at = least(conversions.received_at, excluded.received_at)
""")

_CELLS = text("""
INSERT INTO cells (experiment_id, metric, block, stratum, n1, x1, n0, x0)
SELECT s.experiment_id, s.metric, p.block, p.stratum,
    count(*) FILTER (WHERE p.arm = 'treatment'),
    count(*) FILTER (WHERE p.arm = 'treatment' AND on_time),
    count(*) FILTER (WHERE p.arm = 'control'),
    count(*) FILTER (WHERE p.arm = 'control' AND on_time)
FROM scope AS s
LEFT JOIN cursors AS done
  ON done.stage = 'cells/' || s.metric AND done.experiment_id = s.experiment_id
JOIN exposures AS p
  ON p.experiment_id = s.experiment_id AND p.arm IN ('treatment', 'control')
 AND p.block >= coalesce(done.at, '-infinity') AND p.block < s.to_block - s.wait
LEFT JOIN conversions AS c
  ON c.experiment_id = s.experiment_id AND c.metric = s.metric AND c.unit = p.unit
CROSS JOIN LATERAL (
    SELECT c.received_at <= p.block + interval '5 minutes' + s.wait + s.grace AS on_time
) AS o
GROUP BY s.experiment_id, s.metric, p.block, p.stratum
ON CONFLICT DO NOTHING
""")

_CURSORS = text("""
INSERT INTO cursors (stage, experiment_id, at)
SELECT DISTINCT 'conversions', experiment_id, to_block FROM scope
UNION ALL
SELECT 'cells/' || metric, experiment_id, to_block - wait FROM scope
ON CONFLICT (stage, experiment_id) DO UPDATE SET at = greatest(cursors.at, excluded.at)
""")


def extend_cells(connection: Connection) -> int:
    """Adds the cells whose outcomes have closed, as far as the exposures were read.

    Args:
        connection: In a transaction that is the only writer of derived tables.

    Returns:
        The number of new cells.
    """
    connection.execute(_SCOPE)
    connection.execute(text("ANALYZE scope"))
    outcomes = connection.execute(_RUNTIME_OUTCOMES).rowcount
    outcomes += connection.execute(_REVENUE_OUTCOMES).rowcount
    if outcomes >= ANALYZE_FROM:
        connection.execute(text("ANALYZE conversions"))
    added = connection.execute(_CELLS).rowcount
    connection.execute(_CURSORS)
    connection.execute(text("DROP TABLE pg_temp.scope"))
    return added
