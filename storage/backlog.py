"""The backlog: what of the log waits to be walked, and the days that wait no more."""

from datetime import date, datetime

from sqlalchemy import Connection, text

from storage.policy_columns import span_of
from storage.set_aside import ANY_DUE

_UNWALKED = text(f"""
-- By the mark of the walk's last step: one that broke off after any other has work left.
SELECT min(open.from_block) FROM (
    SELECT
        coalesce(
            c.at,
            -- From here on it is read: see exposures.
            date_bin('5 minutes', x.starts_at - interval '30 minutes', 'epoch')
        ) AS from_block,
        date_bin('5 minutes', least(
            clock_timestamp() - {span_of("grace_seconds")},
            -- Past this nothing is read: see exposures.
            x.starts_at + {span_of("horizon_seconds")} + {span_of("window_seconds")}
        ), 'epoch') AS to_block
    FROM verdicts AS v
    JOIN experiments AS x USING (experiment_id)
    LEFT JOIN cursors AS c ON c.stage = 'published' AND c.experiment_id = x.experiment_id
    WHERE NOT v.decided AND x.bound_at IS NOT NULL
      -- Whoever is set aside has no end to come to; now and then it is tried again.
      AND NOT EXISTS (SELECT FROM set_aside AS s WHERE s.experiment_id = x.experiment_id)
    UNION ALL
    SELECT clock_timestamp() - interval '1 second', clock_timestamp() FROM ({ANY_DUE}) AS due
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
