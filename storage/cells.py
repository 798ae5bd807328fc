"""Cells: units and conversions of a block, stratum and arm, final once their outcomes close."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, text

from storage.exposures import UNIT
from storage.intake import IN_SCOPE, drop_intakes, lay_out, sample_grown
from storage.millionths import LARGEST_AMOUNT
from storage.tombstones import lay_outcomes

_AHEAD = "3 minutes"

_SCOPE = text("""
CREATE TEMP TABLE scope ON COMMIT DROP AS
SELECT row_number() OVER ()::integer AS number,
    x.experiment_id, x.project_id, x.environment, x.starts_at,
    m ->> 'name' AS metric,
    make_interval(secs => (m ->> 'window_seconds')::float) AS wait,
    make_interval(secs => (x.policy ->> 'grace_seconds')::float) AS grace,
    m -> 'sources' AS sources,
    m ->> 'kind' = 'mean' AS is_mean,
    floor((m ->> 'cap')::numeric * 1000000) AS cap, -- in whole millionths, as each value is
    m ->> 'currency' AS currency,
    x.policy ->> 'unit' = 'user' AS by_user,
    (x.policy ->> 'trusted_identity')::boolean AS trusted,
    coalesce(done.at, date_bin('5 minutes', x.starts_at, 'epoch')) AS from_block,
    exposed.at AS to_block
-- First those asked for: a policy that cannot be read fails its own experiment alone.
FROM (
    SELECT * FROM experiments
    WHERE CAST(:only AS text[]) IS NULL OR experiment_id = ANY(CAST(:only AS text[]))
    OFFSET 0
) AS x
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
_TOLD = """
SELECT e.project_id, e.environment, e.event, e.session_id, e.occurred_at, e.received_at,
    e.pseudonym, e.trusted, e.event_id, e.value
FROM runtime_events AS e
WHERE e.received_at BETWEEN timestamptz '{begins}' AND timestamptz '{ends}'
  AND e.event = ANY(ARRAY(
      SELECT DISTINCT source
      FROM scope CROSS JOIN jsonb_array_elements_text(sources) AS source
      WHERE to_block > from_block
  ))
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
CROSS JOIN jsonb_array_elements_text(s.sources) AS source
JOIN told AS e
  ON e.project_id = s.project_id AND e.environment = s.environment AND e.event = source
 AND CASE WHEN e.received_at > s.from_block - interval '{_AHEAD}'
           AND e.received_at <= s.to_block + s.grace THEN true END
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
SELECT experiment_id, metric, is_mean, cap, unit, received_at, idempotency_key,
    least(amount_value, {LARGEST_AMOUNT}) * 1000000,
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
    experiment_id, metric, unit, key, received_at, greatest(least(value, cap), -cap)
FROM occurred
WHERE is_mean AND value IS NOT NULL
ORDER BY experiment_id, metric, unit, key, received_at, value
ON CONFLICT (experiment_id, metric, unit, key) DO UPDATE
SET received_at = excluded.received_at, value = excluded.value
WHERE (excluded.received_at, excluded.value) < (amounts.received_at, amounts.value)
""")

# The units whose outcomes close now.
_CLOSING = """
SELECT s.number, p.unit, p.block, p.stratum, p.arm = 'treatment' AS treated
FROM scope AS s
LEFT JOIN cursors AS done
  ON done.stage = 'cells/' || s.metric AND done.experiment_id = s.experiment_id
JOIN exposures AS p
  ON p.experiment_id = s.experiment_id AND p.arm IN ('treatment', 'control')
 AND p.block >= coalesce(done.at, '-infinity') AND p.block < s.to_block - s.wait
"""

_CELLS = text("""
-- All units are counted, and beside them those few of whom anything came.
-- Sums of whole millionths are exact: their order never matters. Of them and of their squares the
-- doubles nearest to the sums in the metric's own unit are kept.
WITH earned AS (
    SELECT s.number, o.block, o.stratum, o.treated, sum(v.value) AS amount
    FROM scope AS s
    JOIN closing AS o USING (number)
    JOIN amounts AS v
      ON v.experiment_id = s.experiment_id AND v.metric = s.metric AND v.unit = o.unit
     AND v.received_at <= o.block + interval '5 minutes' + s.wait + s.grace
    WHERE s.is_mean
    GROUP BY s.number, o.unit, o.block, o.stratum, o.treated
), counted AS (
    SELECT number, block, stratum,
        count(*) FILTER (WHERE treated) AS n1, 0 AS x1,
        count(*) FILTER (WHERE NOT treated) AS n0, 0 AS x0,
        0 AS y1, 0 AS yy1, 0 AS y0, 0 AS yy0
    FROM closing
    GROUP BY number, block, stratum
    UNION ALL
    SELECT s.number, o.block, o.stratum,
        0, count(*) FILTER (WHERE treated), 0, count(*) FILTER (WHERE NOT treated), 0, 0, 0, 0
    FROM scope AS s
    JOIN closing AS o USING (number)
    JOIN conversions AS c
      ON c.experiment_id = s.experiment_id AND c.metric = s.metric AND c.unit = o.unit
    WHERE NOT c.late
    GROUP BY s.number, o.block, o.stratum
    UNION ALL
    SELECT number, block, stratum, 0, 0, 0, 0,
        sum(amount) FILTER (WHERE treated), sum(amount * amount) FILTER (WHERE treated),
        sum(amount) FILTER (WHERE NOT treated), sum(amount * amount) FILTER (WHERE NOT treated)
    FROM earned
    GROUP BY number, block, stratum
)
INSERT INTO cells (experiment_id, metric, block, stratum, n1, x1, n0, x0, y1, yy1, y0, yy0)
SELECT s.experiment_id, s.metric, c.block, c.stratum, sum(n1), sum(x1), sum(n0), sum(x0),
    CASE WHEN s.is_mean THEN sum(y1) * 0.000001 END,
    CASE WHEN s.is_mean THEN sum(yy1) * 0.000000000001 END,
    CASE WHEN s.is_mean THEN sum(y0) * 0.000001 END,
    CASE WHEN s.is_mean THEN sum(yy0) * 0.000000000001 END
FROM counted AS c JOIN scope AS s USING (number)
GROUP BY s.experiment_id, s.metric, s.is_mean, c.block, c.stratum
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


def extend_cells(connection: Connection, *, only: Sequence[str] | None = None) -> int:
    """Adds the cells whose outcomes have closed, as far as the exposures were read.

    Args:
        connection: In a transaction that is the only writer of derived tables.
        only: The experiments to add to; None for all.

    Returns:
        The number of new cells.
    """
    connection.execute(_SCOPE, {"only": None if only is None else list(only)})
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
    for name, query, of in (("told", _TOLD, IN_SCOPE), ("paid", _PAID, "")):
        asked = query.format(begins=begins.isoformat(), ends=ends.isoformat())
        lay_out(connection, name, asked, of=of, begins=begins, ends=ends)
    connection.execute(_OCCURRED)
    connection.execute(_EARNED)
    connection.execute(text("ANALYZE occurred"))
    sample_grown(connection, "conversions", connection.execute(_CONVERSIONS).rowcount)
    connection.execute(_AMOUNTS)
    lay_outcomes(connection)
