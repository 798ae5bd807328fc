"""The backlog: what of the log waits for a run of the pipeline, and the days that wait no more."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import Connection, text

from storage.schema.encoding import epoch_microseconds, on_our_clock
from storage.schema.policy_columns import COMPANIONS, GRACE, HORIZON, SEEN_FROM, TARGET_OPEN_FOR
from storage.verdicts.set_aside import DUE

# An event is in the block of its own clock, which may run ahead by this much.
_AHEAD = "3 minutes"


@dataclass(frozen=True, kw_only=True)
class DueWork:
    """Work that a run of the pipeline would find, once its block closes; None means now."""

    reasons: dict[str, int]
    closes_at: datetime | None

    @property
    def sentence(self) -> str:
        """Why a run is due, for a person."""
        return ", ".join(f"{reason}: {count}" for reason, count in self.reasons.items())


_ANY_DUE = f"""
SELECT x.experiment_id FROM set_aside AS s
JOIN experiments AS x USING (experiment_id)
JOIN verdicts AS v USING (experiment_id)
WHERE NOT v.decided AND {DUE}
"""
_DUE = text(f"""
-- By the mark of the last step: a run that broke off after any other step has work left.
WITH open AS MATERIALIZED (
    SELECT x.experiment_id, x.project_id, x.environment, x.closed_at, p.grace,
        f.ends_at + p.target_open_for AS followed_to,
        done.published_to, read.at AS read_to, look.forced_at,
        done.published_to IS NOT NULL
            AND exposed.at IS DISTINCT FROM done.published_to AS is_unfinished,
        -- From here on the log is read: see exposures.
        coalesce(
            done.published_to, date_bin('5 minutes', {SEEN_FROM}, 'epoch')
        ) AS from_block,
        date_bin('5 minutes', least(
            CAST(:as_of AS timestamptz) - p.grace, p.ends_at
        ), 'epoch') AS closed_to,
        date_bin('5 minutes', least(
            CAST(:as_of AS timestamptz) + CAST(:ahead AS interval) - p.grace, p.ends_at
        ), 'epoch') AS closing_to
    FROM verdicts AS v
    JOIN experiments AS x USING (experiment_id)
    CROSS JOIN LATERAL (
        SELECT {GRACE} AS grace,
            {TARGET_OPEN_FOR} AS target_open_for,
            -- Past this nothing is read: see exposures.
            x.starts_at + {HORIZON} + {TARGET_OPEN_FOR} AS ends_at
    ) AS p
    LEFT JOIN cursors AS exposed
      ON exposed.stage = 'exposures' AND exposed.experiment_id = x.experiment_id
    LEFT JOIN cursors AS read
      ON read.stage = 'conversions' AND read.experiment_id = x.experiment_id
    LEFT JOIN publication_progress AS done ON done.experiment_id = x.experiment_id
    LEFT JOIN next_looks AS look ON look.experiment_id = x.experiment_id
    LEFT JOIN follow_ups AS f
      ON f.experiment_id = x.experiment_id AND f.state = 'running'
    WHERE (NOT v.decided OR f.experiment_id IS NOT NULL) AND x.frozen_at IS NOT NULL
      -- An experiment that is set aside reaches no end; it is tried again by a time of its own.
      AND NOT EXISTS (SELECT FROM set_aside AS s WHERE s.experiment_id = x.experiment_id)
), moved AS MATERIALIZED (
    SELECT o.*, r.to_block, r.closes_at,
        -- What an earlier tick found to hold no unit is not looked at again.
        greatest(o.from_block, date_bin(
            '5 minutes', CAST(:looked_to AS timestamptz) - o.grace, 'epoch'
        )) AS new_from
    FROM open AS o
    CROSS JOIN LATERAL (
        VALUES (o.closed_to, CAST(NULL AS timestamptz)), (o.closing_to, o.closing_to + o.grace)
    ) AS r (to_block, closes_at)
    WHERE o.from_block < r.to_block
), recent AS MATERIALIZED (
    SELECT DISTINCT e.project_id, e.environment,
        date_bin('5 minutes', {on_our_clock("e")}, 'epoch') AS block
    FROM runtime_events AS e
    WHERE e.received_at > (
        SELECT min(new_from) - interval '{_AHEAD}' FROM moved WHERE new_from < to_block
    ) AND e.received_at <= :as_of AND e.commit_sha IS NOT NULL
), closings AS MATERIALIZED (
    -- Every metric's cells move on by as much as the reading does.
    SELECT m.experiment_id, m.to_block, c.at AS from_block,
        c.at + (m.to_block - m.read_to) AS until_block
    FROM moved AS m
    JOIN cursors AS c ON c.stage LIKE 'cells/%' AND c.experiment_id = m.experiment_id
), due (experiment_id, reason, closes_at) AS (
    SELECT experiment_id, 'first evaluation', closes_at FROM moved WHERE published_to IS NULL
    UNION ALL
    SELECT experiment_id, 'unfinished', NULL FROM open WHERE is_unfinished
    UNION ALL
    SELECT experiment_id, 'closed by hand', NULL FROM open
    WHERE closed_at IS NOT NULL AND followed_to IS NULL
    UNION ALL
    SELECT experiment_id, 'new units', closes_at FROM moved AS m
    WHERE EXISTS (
        SELECT FROM recent AS r
        WHERE r.project_id = m.project_id AND r.environment = m.environment
          AND r.block >= m.new_from AND r.block < m.to_block
    )
    UNION ALL
    SELECT m.experiment_id, 'outcomes', m.closes_at FROM moved AS m
    WHERE EXISTS (
        SELECT FROM closings AS c
        JOIN block_units AS b
          ON b.experiment_id = c.experiment_id
         AND b.block >= {epoch_microseconds("c.from_block")}
         AND b.block < {epoch_microseconds("c.until_block")}
        WHERE c.experiment_id = m.experiment_id AND c.to_block = m.to_block
          AND b.treatment + b.control > 0
    )
    UNION ALL
    SELECT experiment_id, 'look', closes_at FROM moved
    WHERE followed_to IS NULL AND (forced_at IS NULL OR to_block >= forced_at)
    UNION ALL
    SELECT experiment_id, 'end of a follow-up', closes_at FROM moved
    WHERE to_block >= followed_to
    UNION ALL
    -- A deploy ends an analysis block; one that was posted late, once it is known.
    SELECT m.experiment_id, 'deploy', m.closes_at FROM moved AS m
    WHERE EXISTS (
        SELECT FROM (
            SELECT max(c.from_block) AS from_block, max(c.until_block) AS until_block
            FROM closings AS c
            WHERE c.experiment_id = m.experiment_id AND c.to_block = m.to_block
        ) AS c
        JOIN deploys AS d
          ON d.project_id = m.project_id AND d.environment = m.environment
         AND d.deployed_at < c.until_block + interval '5 minutes'
         AND (d.deployed_at >= c.from_block + interval '5 minutes'
              OR d.recorded_at > m.read_to + m.grace)
    )
    UNION ALL
    SELECT experiment_id, 'set aside, tried again', NULL FROM ({_ANY_DUE}) AS retried
    UNION ALL
    SELECT x.experiment_id, 'registered', NULL
    FROM verdicts AS v
    JOIN experiments AS x USING (experiment_id)
    WHERE NOT v.decided AND x.bound_at <= :as_of AND x.frozen_at IS NULL
      AND NOT EXISTS (SELECT FROM set_aside AS s WHERE s.experiment_id = x.experiment_id)
    UNION ALL
    SELECT x.experiment_id, 'no deploy came', NULL
    FROM verdicts AS v
    JOIN experiments AS x USING (experiment_id)
    WHERE NOT v.decided AND x.bound_at IS NULL
      AND least(x.closed_at, x.registered_at + interval '28 days') < :as_of
)
SELECT reason, closes_at, count(DISTINCT experiment_id) AS experiments
FROM due AS d
-- What is due now is computed now; the next tick asks for what closes after it.
WHERE closes_at IS NULL OR NOT EXISTS (
    SELECT FROM due AS now WHERE now.experiment_id = d.experiment_id AND now.closes_at IS NULL
)
GROUP BY closes_at, reason
ORDER BY closes_at NULLS FIRST, reason
""")

_LOOKED_TO = text("SELECT looked_to FROM ticks WHERE looked_to <= :as_of")


def due_work(
    connection: Connection, *, as_of: datetime, ahead: timedelta = timedelta()
) -> list[DueWork]:
    """Returns what runs of the pipeline would find to do, the earliest first.

    An open experiment is due where a block closed that holds an event which may make a unit, or
    whose outcomes closed; where a look comes without traffic, as at the end of an hour, after
    a deploy or at the horizon; before its policy is frozen and before its first evaluation; after
    it was closed by hand; and where a run broke off or a stage is tried again. So is a decided
    experiment that is followed up.

    Args:
        ahead: Count also what closes so soon after: experiments of different graces close at
            different times.
    """
    looked_to = connection.execute(_LOOKED_TO, {"as_of": as_of}).scalar_one_or_none()
    bound = {"as_of": as_of, "ahead": ahead, "looked_to": looked_to}
    reasons: dict[datetime | None, dict[str, int]] = {}
    for row in connection.execute(_DUE, bound):
        reasons.setdefault(row.closes_at, {})[row.reason] = row.experiments
    return [
        DueWork(reasons=reasons_then, closes_at=closes_at)
        for closes_at, reasons_then in reasons.items()
    ]


_NOTE_NOTHING_DUE = text("""
INSERT INTO ticks (succeeded_at, looked_to) VALUES (clock_timestamp(), :as_of)
ON CONFLICT (place) DO UPDATE
SET succeeded_at = excluded.succeeded_at, looked_to = excluded.looked_to
""")

_NEXT_CLOSINGS = f"""
SELECT x.experiment_id,
    date_bin('5 minutes', CAST(:as_of AS timestamptz) - {GRACE}, 'epoch')
        + {GRACE} + interval '5 minutes' AS at
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.frozen_at IS NOT NULL AND NOT v.decided
"""
_PUT_OFF = [
    text(f"""
    UPDATE {table} AS t SET next_look_at = n.at FROM ({_NEXT_CLOSINGS}) AS n
    WHERE t.experiment_id = n.experiment_id AND t.next_look_at < n.at
    """)
    for table in ("evidence", "verdicts")
]


def note_nothing_due(connection: Connection, *, as_of: datetime) -> None:
    """Keeps that nothing was due, and puts the next look of each open experiment past that time.

    Args:
        connection: In a transaction that is the only writer of derived tables.
        as_of: The time that `due_work` was asked of.
    """
    connection.execute(_NOTE_NOTHING_DUE, {"as_of": as_of})
    for statement in _PUT_OFF:
        connection.execute(statement, {"as_of": as_of})


_SETTLED = text(f"""
WITH read AS (
    SELECT x.experiment_id, x.starts_at,
        v.decided AND f.state IS DISTINCT FROM 'running' AS decided,
        max(c.at) FILTER (WHERE c.stage = 'exposures') AS exposed_to,
        min(c.at) FILTER (WHERE c.stage LIKE 'cells/%') AS cells_to
    FROM experiments AS x
    JOIN verdicts AS v USING (experiment_id)
    JOIN cursors AS c USING (experiment_id)
    LEFT JOIN follow_ups AS f USING (experiment_id)
    WHERE x.frozen_at IS NOT NULL
      -- A companion of four windows would settle a day of a metric of two weeks in two months.
      AND NOT EXISTS (
          SELECT FROM ({COMPANIONS}) AS m WHERE c.stage = 'cells/' || m.name
      )
    GROUP BY x.experiment_id, x.starts_at, v.decided, f.state
)
SELECT day::date
FROM generate_series(
    date_trunc('day', CAST(:as_of AS timestamptz)) - interval '30 days',
    CAST(:as_of AS timestamptz) - interval '1 day',
    interval '1 day'
) AS day
CROSS JOIN LATERAL (SELECT day + interval '2 days' > CAST(:as_of AS timestamptz) AS is_last) AS d
LEFT JOIN read AS r ON r.starts_at < day + interval '1 day'
 AND (r.exposed_to > day OR d.is_last AND NOT r.decided)
GROUP BY day, d.is_last
-- Yesterday has settled too where no experiment reads it: so every day has a run.
HAVING coalesce(bool_and(r.decided OR r.cells_to >= day + interval '1 day'), d.is_last)
ORDER BY day
""")


def settled_days(connection: Connection, *, as_of: datetime) -> list[date]:
    """Returns the days, in UTC, on which units were counted, and whose last metric has closed.

    So has yesterday where no experiment reads it. A target's companions are not waited for. Those
    of the 30 days before `as_of` are returned: the longest window and a margin. The oldest comes
    first.
    """
    return list(connection.execute(_SETTLED, {"as_of": as_of}).scalars())
