"""Cells: units and conversions of a block, stratum and arm, final once their outcomes close."""

from datetime import datetime

from sqlalchemy import Connection, text

from storage.exposures import UNIT
from storage.intake import drop_intakes, lay_out, sample_grown
from storage.tombstones import lay_outcomes

_AHEAD = "3 minutes"

_SCOPE = text("""
CREATE TEMP TABLE scope ON COMMIT DROP AS
SELECT x.experiment_id, x.project_id, x.environment, x.starts_at,
    m ->> 'name' AS metric,
    make_interval(secs => (m ->> 'window_seconds')::float) AS wait,
    make_interval(secs => (x.policy ->> 'grace_seconds')::float) AS grace,
    m -> 'sources' AS sources,
    m ->> 'kind' = 'mean' AS is_mean,
    (m ->> 'cap')::float AS cap,
    m ->> 'currency' AS currency,
    x.policy ->> 'unit' = 'user' AS by_user,
    (x.policy ->> 'trusted_identity')::boolean AS trusted,
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

# What makes another delivery of the same event the same: its own id, else when it occurred and
# what it said.
EVENT_KEY = "coalesce(e.event_id, concat_ws(' ', e.event, e.occurred_at, e.value))"

# The events that may be an outcome: some name them as the source of a metric.
_TOLD = f"""
SELECT e.project_id, e.environment, e.event, e.session_id, e.occurred_at, e.received_at,
    e.pseudonym, e.trusted, e.event_id, e.value
FROM (
    SELECT project_id, environment, min(from_block) AS from_block, max(to_block + grace) AS ends,
        (
            SELECT array_agg(DISTINCT source)
            FROM scope AS o CROSS JOIN jsonb_array_elements_text(o.sources) AS source
            WHERE (o.project_id, o.environment) = (s.project_id, s.environment)
        ) AS events
    FROM scope AS s
    WHERE to_block > from_block
    GROUP BY project_id, environment
) AS s
JOIN runtime_events AS e
  ON e.project_id = s.project_id AND e.environment = s.environment
 AND e.event = ANY(s.events)
 AND e.received_at > s.from_block - interval '{_AHEAD}' AND e.received_at <= s.ends
WHERE e.received_at BETWEEN timestamptz '{{begins}}' AND timestamptz '{{ends}}'
"""

_PAID = f"""
SELECT r.project_id, r.environment, r.event, r.session_id, r.occurred_at, r.received_at,
    r.pseudonym, r.idempotency_key, r.amount_value, r.amount_currency
FROM (
    SELECT project_id, min(from_block) AS from_block, max(to_block + grace) AS ends
    FROM scope
    WHERE to_block > from_block
    GROUP BY project_id
) AS s
JOIN revenue_events AS r
  ON r.project_id = s.project_id
 AND r.received_at > s.from_block - interval '{_AHEAD}' AND r.received_at <= s.ends
WHERE r.received_at BETWEEN timestamptz '{{begins}}' AND timestamptz '{{ends}}'
"""

# Events that count for an exposed unit, each with its key.
_OCCURRED = text(f"""
CREATE TEMP TABLE occurred ON COMMIT DROP AS
SELECT s.experiment_id, s.metric, s.is_mean, s.cap, p.unit, e.received_at,
    {EVENT_KEY} AS key, e.value,
    p.block + interval '5 minutes' + s.wait + s.grace AS closes_at
FROM scope AS s
JOIN told AS e
  ON e.project_id = s.project_id AND e.environment = s.environment
 AND e.event IN (SELECT jsonb_array_elements_text(s.sources))
 AND e.received_at > s.from_block - interval '{_AHEAD}'
 AND e.received_at <= s.to_block + s.grace
JOIN exposures AS p
  ON p.experiment_id = s.experiment_id AND p.unit = {UNIT}
 AND e.occurred_at BETWEEN p.exposed_at AND p.exposed_at + s.wait
 AND p.arm IN ('treatment', 'control')
WHERE s.to_block > s.from_block
""")

_EARNED = text(f"""
-- By its session where the event names one, else by pseudonym: then it counts once, for the
-- earliest exposure of that pseudonym whose window holds it. Earlier blocks close first, so no
-- later exposure is ever preferred, and nothing is taken back.
INSERT INTO occurred
    (experiment_id, metric, is_mean, cap, unit, received_at, key, value, closes_at)
WITH revenue AS (
    SELECT s.experiment_id, s.metric, s.wait, s.grace, s.is_mean, s.cap, s.by_user, r.*
    FROM scope AS s
    JOIN paid AS r
      ON r.project_id = s.project_id
     AND r.event IN (SELECT jsonb_array_elements_text(s.sources))
     AND coalesce(r.environment, s.environment) = s.environment
     AND (NOT s.is_mean OR r.amount_currency = s.currency)
     AND r.received_at > s.from_block - interval '{_AHEAD}'
     AND r.received_at <= s.to_block + s.grace
    WHERE s.to_block > s.from_block
), credited AS (
    SELECT r.*, p.unit, p.arm, p.block
    FROM revenue AS r
    JOIN exposures AS p
      ON p.experiment_id = r.experiment_id
     AND p.unit = CASE WHEN r.by_user THEN encode(r.pseudonym, 'hex') ELSE r.session_id END
     AND r.occurred_at BETWEEN p.exposed_at AND p.exposed_at + r.wait
    UNION ALL
    (SELECT DISTINCT ON (r.experiment_id, r.metric, r.idempotency_key)
        r.*, p.unit, p.arm, p.block
    FROM revenue AS r
    JOIN exposures AS p
      ON p.experiment_id = r.experiment_id AND p.pseudonym = r.pseudonym
     AND r.occurred_at BETWEEN p.exposed_at AND p.exposed_at + r.wait
    WHERE r.session_id IS NULL AND NOT r.by_user AND p.arm IN ('treatment', 'control')
    ORDER BY r.experiment_id, r.metric, r.idempotency_key, p.exposed_at, p.unit COLLATE "C")
)
SELECT experiment_id, metric, is_mean, cap, unit, received_at, idempotency_key, amount_value,
    block + interval '5 minutes' + wait + grace
FROM credited
WHERE arm IN ('treatment', 'control')
""")

_CONVERSIONS = text("""
INSERT INTO conversions (experiment_id, metric, unit, received_at, late)
SELECT experiment_id, metric, unit, min(received_at), min(received_at) > min(closes_at)
FROM occurred
GROUP BY experiment_id, metric, unit
ON CONFLICT (experiment_id, metric, unit) DO UPDATE
SET received_at = least(conversions.received_at, excluded.received_at),
    late = conversions.late AND excluded.late
""")

_AMOUNTS = text("""
-- The first delivery of an event speaks for it, in whatever order the deliveries are read.
INSERT INTO amounts (experiment_id, metric, unit, key, received_at, value)
SELECT DISTINCT ON (experiment_id, metric, unit, key)
    experiment_id, metric, unit, key, received_at, least(value, cap)
FROM occurred
WHERE is_mean AND value IS NOT NULL
ORDER BY experiment_id, metric, unit, key, received_at, value
ON CONFLICT (experiment_id, metric, unit, key) DO UPDATE
SET received_at = excluded.received_at, value = excluded.value
WHERE (excluded.received_at, excluded.value) < (amounts.received_at, amounts.value)
""")

# The units whose outcomes close now.
_CLOSING = """
SELECT s.experiment_id, s.metric, s.is_mean, p.unit, p.block, p.stratum,
    p.arm = 'treatment' AS treated
FROM scope AS s
LEFT JOIN cursors AS done
  ON done.stage = 'cells/' || s.metric AND done.experiment_id = s.experiment_id
JOIN exposures AS p
  ON p.experiment_id = s.experiment_id AND p.arm IN ('treatment', 'control')
 AND p.block >= coalesce(done.at, '-infinity') AND p.block < s.to_block - s.wait
"""

_CELLS = text("""
-- Sums of numbers with a fraction are taken exactly, as numeric: their order never matters.
WITH counted AS (
    SELECT o.experiment_id, o.metric, o.is_mean, o.block, o.stratum, o.treated,
        coalesce(NOT c.late, false) AS converted, a.amount
    FROM closing AS o
    LEFT JOIN conversions AS c
      ON c.experiment_id = o.experiment_id AND c.metric = o.metric AND c.unit = o.unit
    LEFT JOIN LATERAL (
        SELECT sum(v.value::numeric) AS amount
        FROM scope AS s
        JOIN amounts AS v
          ON v.experiment_id = s.experiment_id AND v.metric = s.metric AND v.unit = o.unit
         AND v.received_at <= o.block + interval '5 minutes' + s.wait + s.grace
        WHERE o.is_mean AND s.experiment_id = o.experiment_id AND s.metric = o.metric
    ) AS a ON o.is_mean
)
INSERT INTO cells (experiment_id, metric, block, stratum, n1, x1, n0, x0, y1, yy1, y0, yy0)
SELECT experiment_id, metric, block, stratum,
    count(*) FILTER (WHERE treated), count(*) FILTER (WHERE treated AND converted),
    count(*) FILTER (WHERE NOT treated), count(*) FILTER (WHERE NOT treated AND converted),
    CASE WHEN is_mean THEN coalesce(sum(amount) FILTER (WHERE treated), 0) END,
    CASE WHEN is_mean THEN coalesce(sum(amount * amount) FILTER (WHERE treated), 0) END,
    CASE WHEN is_mean THEN coalesce(sum(amount) FILTER (WHERE NOT treated), 0) END,
    CASE WHEN is_mean THEN coalesce(sum(amount * amount) FILTER (WHERE NOT treated), 0) END
FROM counted
GROUP BY experiment_id, metric, is_mean, block, stratum
ON CONFLICT DO NOTHING
""")

_SPAN = text(f"""
SELECT min(from_block) - interval '{_AHEAD}' AS begins, max(to_block + grace) AS ends
FROM scope WHERE to_block > from_block
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
    span = connection.execute(_SPAN).one()
    added = 0
    if span.begins is not None:
        _gather_outcomes(connection, begins=span.begins, ends=span.ends)
        lay_out(connection, "closing", _CLOSING, begins=span.begins, ends=span.ends)
        added = connection.execute(_CELLS).rowcount
    connection.execute(_CURSORS)
    drop_intakes(connection, "told", "paid", "closing", "occurred")
    return added


def _gather_outcomes(connection: Connection, *, begins: datetime, ends: datetime) -> None:
    for name, query in (("told", _TOLD), ("paid", _PAID)):
        asked = query.format(begins=begins.isoformat(), ends=ends.isoformat())
        lay_out(connection, name, asked, begins=begins, ends=ends)
    connection.execute(_OCCURRED)
    connection.execute(_EARNED)
    connection.execute(text("ANALYZE occurred"))
    sample_grown(connection, "conversions", connection.execute(_CONVERSIONS).rowcount)
    connection.execute(_AMOUNTS)
    lay_outcomes(connection)
