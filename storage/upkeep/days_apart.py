"""Days apart: some days of exposure begun as they once began, and compared with what is served."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from storage.postgres.engine import SCHEMA
from storage.schema.tables import DERIVED
from storage.upkeep.gone_events import LOOK_BACK
from storage.upkeep.invariants import UNIT

# As far as the steps look back: a client's clock may run ahead by 2 minutes, a server's by one.
_AHEAD = "3 minutes"

# What is older was looked at while it was fresh, and the database refuses to rewrite it. A day is
# checked within hours of the one before: this leaves room for one that was missed.
_FRESH = "2 days"

# --- The beginning -------------------------------------------------------------------------------

_APART = text(f"""
-- The experiments that read some of these days. Of one that starts on them there is nothing before.
CREATE TEMP TABLE apart ON COMMIT DROP AS
SELECT x.experiment_id, x.project_id, x.environment, p.by_user, p.trusted, p.grace, p.wait,
    CASE WHEN x.starts_at < d.begins THEN d.begins END AS from_block,
    least(d.ends, c.at) AS to_block,
    -- What went before it was bound it never read.
    EXISTS (
        SELECT FROM dropped_days AS gone
        WHERE gone.dropped_at >= x.bound_at AND gone.day < d.ends + p.wait + p.grace
          AND gone.day + 1 > greatest(d.begins, x.starts_at) - interval '{LOOK_BACK}'
    ) AS is_gone
FROM (
    -- Whoever is set aside cannot be computed here either.
    SELECT * FROM {SCHEMA}.experiments AS x
    WHERE x.bound_at IS NOT NULL
      AND NOT EXISTS (SELECT FROM set_aside AS s WHERE s.experiment_id = x.experiment_id)
    OFFSET 0
) AS x
JOIN {SCHEMA}.cursors AS c ON c.stage = 'exposures' AND c.experiment_id = x.experiment_id
CROSS JOIN LATERAL (
    SELECT CAST(:first AS date)::timestamptz AS begins,
        CAST(:last AS date)::timestamptz + interval '1 day' AS ends
) AS d
CROSS JOIN LATERAL (
    SELECT x.policy ->> 'unit' = 'user' AS by_user,
        (x.policy ->> 'trusted_identity')::boolean AS trusted,
        make_interval(secs => (x.policy ->> 'grace_seconds')::float) AS grace,
        (
            SELECT make_interval(secs => max((m ->> 'window_seconds')::float))
            FROM jsonb_array_elements(
                jsonb_build_array(x.policy -> 'target') || (x.policy -> 'guardrails')
            ) AS m
        ) AS wait
) AS p
WHERE x.starts_at < d.ends AND c.at > d.begins
""")

_OTHERS = text(f"""
INSERT INTO verdicts (
    experiment_id, project_id, contract, verdict, abstain_reason, decided, published_at
)
SELECT experiment_id, project_id, '{{}}', 'abstain', 'power', true, clock_timestamp()
FROM {SCHEMA}.experiments WHERE experiment_id NOT IN (SELECT experiment_id FROM apart)
""")

_CURSORS = text(f"""
INSERT INTO cursors (stage, experiment_id, at)
SELECT stages.stage, a.experiment_id, a.from_block
FROM apart AS a
JOIN {SCHEMA}.experiments AS x USING (experiment_id)
CROSS JOIN LATERAL (
    VALUES ('exposures'), ('conversions')
    UNION ALL
    SELECT 'cells/' || (m ->> 'name')
    FROM jsonb_array_elements(
        jsonb_build_array(x.policy -> 'target') || (x.policy -> 'guardrails')
    ) AS m
) AS stages (stage)
WHERE a.from_block IS NOT NULL
""")

_GONE = text("DELETE FROM apart WHERE is_gone RETURNING experiment_id")

_SPAN = text("""
SELECT count(*) AS experiments,
    CAST(:last AS date)::timestamptz + interval '1 day' + max(grace) AS ends
FROM apart
""")

_EXPOSED_BEFORE = text(f"""
-- Nobody is exposed twice; and whoever was exposed to one arm may be found in the other.
INSERT INTO exposures
SELECT p.*
FROM {SCHEMA}.exposures AS p
JOIN apart AS a ON a.experiment_id = p.experiment_id AND p.block < a.from_block
WHERE (p.experiment_id, p.unit) IN (
    SELECT s.experiment_id, {UNIT}
    FROM apart AS s
    JOIN runtime_events AS e
      ON e.project_id = s.project_id AND e.environment = s.environment
    WHERE s.from_block IS NOT NULL
      AND e.received_at > CAST(:first AS date)::timestamptz - interval '{_AHEAD}'
      AND e.received_at <= :ends
)
""")

_USERS_BEFORE = text(f"""
-- A user may come back, and what they pay is for the first session whose window holds it.
INSERT INTO exposures
SELECT p.*
FROM (
    SELECT DISTINCT a.experiment_id, a.from_block, q.pseudonym
    FROM apart AS a
    JOIN {SCHEMA}.exposures AS q
      ON q.experiment_id = a.experiment_id AND q.pseudonym IS NOT NULL
     AND q.block >= a.from_block AND q.block < a.to_block
) AS u
JOIN {SCHEMA}.exposures AS p
  ON p.experiment_id = u.experiment_id AND p.pseudonym = u.pseudonym AND p.block < u.from_block
ON CONFLICT DO NOTHING
""")

_IN_FLIGHT_BEFORE = text(f"""
INSERT INTO sightings
SELECT s.*
FROM apart AS a
JOIN {SCHEMA}.sightings AS s
  ON s.experiment_id = a.experiment_id AND s.kind = 'in_flight' AND s.at <= a.from_block + a.grace
""")


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """Some days, as they are about to be walked apart.

    Attributes:
        experiments: How many read these days.
        gone: Those of them that are left out, because events that they read were dropped.
        closed_at: When the last of the days' blocks closes; None without experiments.
    """

    experiments: int
    gone: Sequence[str]
    closed_at: datetime | None


def begin_days(separate: Connection, first: date, last: date) -> Beginning:
    """Puts a separate reading where the served one stood when some days began.

    Only what these days can ask of earlier ones is there: the exposures of the units and users who
    were seen on them, the units in flight, and how far each step had read.

    Args:
        separate: A separate reading; nothing was walked in it.
        first: The first day of exposure, in UTC.
        last: The last day, itself included.
    """
    days = {"first": first, "last": last}
    separate.execute(_APART, days)
    gone = sorted(separate.execute(_GONE).scalars())
    separate.execute(text("ANALYZE apart"))
    separate.execute(_OTHERS)
    separate.execute(_CURSORS)
    span = separate.execute(_SPAN, days).one()
    if span.experiments:
        separate.execute(_EXPOSED_BEFORE, {"first": first, "ends": span.ends})
        separate.execute(_USERS_BEFORE)
        separate.execute(_IN_FLIGHT_BEFORE)
    return Beginning(experiments=span.experiments, gone=gone, closed_at=span.ends)


def leave_out(separate: Connection, ids: Iterable[str]) -> None:
    """Leaves experiments out of what is compared: their data cannot be computed."""
    separate.execute(text("DELETE FROM apart WHERE experiment_id = ANY(:ids)"), {"ids": list(ids)})


# --- The outcomes --------------------------------------------------------------------------------

_EXPOSED_TO = text("""
UPDATE apart AS a SET to_block = least(a.to_block, c.at)
FROM cursors AS c WHERE c.stage = 'exposures' AND c.experiment_id = a.experiment_id
""")

_OUTCOMES_TO = text(f"""
-- Later blocks than the days' have no exposures here; what the days' own units did is all there is.
UPDATE cursors AS c
SET at = greatest(c.at, least(
    a.to_block + a.wait, served.at, date_bin('5 minutes', CAST(:as_of AS timestamptz) - a.grace,
        'epoch')
))
FROM apart AS a
JOIN {SCHEMA}.cursors AS served
  ON served.stage = 'conversions' AND served.experiment_id = a.experiment_id
WHERE c.stage = 'exposures' AND c.experiment_id = a.experiment_id
""")


def await_outcomes(separate: Connection, *, as_of: datetime) -> None:
    """Lets the outcomes of the days' units be read until their windows close, and no new units.

    Args:
        separate: The reading, in which the days' units are exposed.
        as_of: How far the log may be read.
    """
    separate.execute(_EXPOSED_TO)
    separate.execute(_OUTCOMES_TO, {"as_of": as_of})


# --- The comparison ------------------------------------------------------------------------------

_OF_THE_DAYS = "r.block >= coalesce(a.from_block, '-infinity') AND r.block < a.to_block"
# What was received later is read by neither or by one of the two; it counts for neither's cells.
_OUTCOME = f"""
EXISTS (
    SELECT FROM {{schema}}.exposures AS p
    WHERE p.experiment_id = r.experiment_id AND p.unit = r.unit
      AND {_OF_THE_DAYS.replace("r.", "p.")}
)
AND r.received_at <= a.grace + (
    SELECT min(at) FROM (
        SELECT at FROM pg_temp.cursors
        WHERE stage = 'conversions' AND experiment_id = a.experiment_id
        UNION ALL
        SELECT at FROM {SCHEMA}.cursors
        WHERE stage = 'conversions' AND experiment_id = a.experiment_id
    ) AS read
)
"""
# Each table's rows that belong to a day, so that every row belongs to some day.
_BELONGING = {
    "exposures": _OF_THE_DAYS,
    "block_units": _OF_THE_DAYS,
    "sightings": """
r.at > coalesce(a.from_block + a.grace, '-infinity') AND r.at <= a.to_block + a.grace
""",
    "conversions": _OUTCOME,
    "amounts": _OUTCOME,
}
# A unit that was sighted before is sighted again here, where nothing before was seeded.
_KNOWN_BEFORE = f"""
AND NOT EXISTS (
    SELECT FROM {SCHEMA}.sightings AS b JOIN apart AS a USING (experiment_id)
    WHERE (b.experiment_id, b.kind, b.unit)
        = (rebuilt.experiment_id, rebuilt.kind, rebuilt.unit) AND b.at <= a.from_block + a.grace
)
"""


def _different_rows(table: str) -> str:
    (keys,) = [
        ", ".join(column.name for column in one.primary_key) for one in DERIVED if one.name == table
    ]
    served, rebuilt = (
        f"SELECT r.* FROM {schema}.{table} AS r JOIN apart AS a USING (experiment_id)"
        f" WHERE {_BELONGING[table].format(schema=schema)}"
        for schema in (SCHEMA, "pg_temp")
    )
    return f"""
SELECT '{table}' AS name, experiment_id,
    count(*) FILTER (WHERE served.experiment_id IS NULL) AS missing,
    count(*) FILTER (WHERE rebuilt.experiment_id IS NULL) AS surplus,
    count(served.experiment_id) FILTER (WHERE rebuilt.experiment_id IS NOT NULL) AS other
FROM ({served}) AS served FULL JOIN ({rebuilt}) AS rebuilt USING ({keys})
WHERE served IS DISTINCT FROM rebuilt {_KNOWN_BEFORE if table == "sightings" else ""}
GROUP BY experiment_id
"""


_STRATA = f"""
-- Any commit may stand for a stratum: which one does is a matter of steps.
SELECT 'strata', experiment_id, count(*), 0, 0
FROM pg_temp.strata AS r
WHERE NOT EXISTS (
    SELECT FROM {SCHEMA}.strata AS s
    WHERE (s.experiment_id, s.stratum) = (r.experiment_id, r.stratum)
)
GROUP BY experiment_id
"""
_DIFFERENT_ROWS = text(
    " UNION ALL ".join([*(_different_rows(table) for table in _BELONGING), _STRATA])
    + " ORDER BY name, experiment_id"
)


def rows_unlike_served(separate: Connection) -> Sequence[Row[Any]]:
    """Returns how many rows behind the days' cells a reading and the served tables tell otherwise.

    Returns:
        Rows of name (of the table), experiment_id, missing (served does not hold them), surplus
        (only served does) and other (they differ).
    """
    return separate.execute(_DIFFERENT_ROWS).all()


_DIFFERENT_CELLS = text(f"""
WITH read AS (
    SELECT a.experiment_id, substr(served.stage, 7) AS metric,
        coalesce(a.from_block, '-infinity') AS from_block,
        least(a.to_block, served.at, rebuilt.at) AS to_block
    FROM apart AS a
    JOIN {SCHEMA}.cursors AS served USING (experiment_id)
    JOIN pg_temp.cursors AS rebuilt USING (experiment_id, stage)
    WHERE served.stage LIKE 'cells/%'
), served AS (
    SELECT c.* FROM {SCHEMA}.cells AS c JOIN read AS r USING (experiment_id, metric)
    WHERE c.block >= r.from_block AND c.block < r.to_block
), rebuilt AS (
    SELECT c.* FROM pg_temp.cells AS c JOIN read AS r USING (experiment_id, metric)
    WHERE c.block >= r.from_block AND c.block < r.to_block
)
SELECT experiment_id, metric, block, stratum, 'served' AS side, n1, x1, n0, x0
FROM (TABLE served EXCEPT TABLE rebuilt) AS s
UNION ALL
SELECT experiment_id, metric, block, stratum, 'rebuilt', n1, x1, n0, x0
FROM (TABLE rebuilt EXCEPT TABLE served) AS r
ORDER BY experiment_id, metric, block, stratum, side
""")


def cells_unlike_served(separate: Connection) -> Sequence[Row[Any]]:
    """Returns the days' cells that a separate reading and the served tables tell otherwise.

    As far as both have read; rows of the cell's members, and `side`: which of the two holds it.
    """
    return separate.execute(_DIFFERENT_CELLS).all()


# --- The verdicts --------------------------------------------------------------------------------

_OLD = text(f"""
INSERT INTO verdicts (
    experiment_id, project_id, contract, verdict, abstain_reason, decided, published_at
)
SELECT experiment_id, project_id, '{{}}', 'abstain', 'power', true, clock_timestamp()
FROM {SCHEMA}.verdicts
WHERE decided AND published_at < clock_timestamp() - interval '{_FRESH}'
  AND experiment_id NOT IN (SELECT experiment_id FROM apart)
""")


def read_what_is_served(separate: Connection) -> None:
    """Lets a separate reading read the served tables, and keep verdicts and evidence of its own.

    It holds nothing for decided but what was decided long ago by experiments of other days.
    """
    for table in DERIVED:
        if table.name not in ("evidence", "verdicts"):
            separate.execute(text(f"DROP TABLE pg_temp.{table.name}"))
    separate.execute(text("DELETE FROM pg_temp.verdicts"))
    separate.execute(_OLD)


_DIFFERENT_VERDICTS = text(f"""
-- At the same look the bytes must be the same; a decided one stands at its own look for good.
SELECT rebuilt.experiment_id
FROM pg_temp.evidence AS rebuilt
JOIN {SCHEMA}.verdicts AS served USING (experiment_id)
WHERE (served.decided OR served.as_of = rebuilt.as_of)
  -- What was decided while it was set aside was not computed.
  AND NOT coalesce(jsonb_exists(served.evidence::jsonb -> 'warnings', 'set_aside'), false)
  AND (served.contract::text, served.evidence::text)
      IS DISTINCT FROM (rebuilt.contract::text, rebuilt.document::text)
ORDER BY rebuilt.experiment_id
""")


def verdicts_unlike_served(separate: Connection) -> list[str]:
    """Returns the experiments whose served verdict is not what a separate reading staged."""
    return list(separate.execute(_DIFFERENT_VERDICTS).scalars())
