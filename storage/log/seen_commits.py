"""Seen commits: the builds that users were served in each closed block, of every environment.

An environment is asked for its builds without an experiment too, and before an experiment is bound;
so a tick keeps this relation whether or not there is anything to compute.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from storage.schema.encoding import on_our_clock

# A tick that comes after a longer pause reads so much of the log: nobody asks what was served
# before the last hour.
_LONGEST = timedelta(hours=1)
# Anybody who has a public key can invent commits and environments: so many of a block are kept, the
# vouched ones first, and of a project in 28 days so many that nobody vouches for and no deploy
# names, and those of a block more.
_MOST_COMMITS = 20
_MOST_ENVIRONMENTS = 50
_MOST_INVENTED = 1000

_READ_TO = text("SELECT read_to FROM seen_marks")
_NOTE = text("""
INSERT INTO seen_marks (read_to) VALUES (:read_to)
ON CONFLICT (place) DO UPDATE SET read_to = excluded.read_to
""")
_AT = on_our_clock("e")
_KEEP = text(f"""
WITH closed AS (
    SELECT project_id, block, block + interval '5 minutes' + grace AS closed_at,
        coalesce((settings ->> 'signed_assignments')::bool, false) AS signed_only
    FROM projects
    CROSS JOIN LATERAL (
        SELECT make_interval(secs => coalesce((settings ->> 'grace_seconds')::float, 120)) AS grace
    ) AS g
    CROSS JOIN LATERAL generate_series(
        date_bin('5 minutes', CAST(:read_to AS timestamptz) - grace, 'epoch'),
        CAST(:as_of AS timestamptz) - grace - interval '5 minutes',
        interval '5 minutes'
    ) AS block
    WHERE block + interval '5 minutes' + grace > :read_to
), sessions AS (
    SELECT DISTINCT ON (c.project_id, e.environment, c.block, e.session_id)
        c.project_id, e.environment, c.block, c.closed_at, e.commit_sha,
        e.trusted OR e.signed AS vouched
    FROM closed AS c
    JOIN runtime_events AS e
      ON e.project_id = c.project_id AND {_AT} >= c.block
        AND {_AT} < c.block + interval '5 minutes' AND e.received_at <= c.closed_at
    -- A sender's clock may run ahead by two minutes.
    WHERE e.received_at >= (SELECT min(block) FROM closed) - interval '2 minutes'
      AND e.received_at <= :as_of AND e.commit_sha IS NOT NULL
      AND (e.trusted OR e.signed OR NOT c.signed_only)
    ORDER BY c.project_id, e.environment, c.block, e.session_id, {_AT}, e.commit_sha
), counted AS (
    SELECT project_id, environment, block, closed_at, commit_sha, count(*) AS sessions,
        count(*) FILTER (WHERE vouched) AS vouched
    FROM sessions
    GROUP BY project_id, environment, block, closed_at, commit_sha
), sized AS (
    SELECT *,
        row_number() OVER (
            PARTITION BY project_id, environment, block
            ORDER BY vouched DESC, sessions DESC, commit_sha
        ) AS place,
        sum(vouched) OVER (PARTITION BY project_id, environment, block) AS vouched_of_environment,
        sum(sessions) OVER (PARTITION BY project_id, environment, block) AS of_environment
    FROM counted
), ranked AS (
    SELECT *, dense_rank() OVER (
        PARTITION BY project_id, block
        ORDER BY vouched_of_environment DESC, of_environment DESC, environment
    ) AS environments,
    vouched = 0 AND NOT EXISTS (
        SELECT FROM commit_ids AS k
        WHERE k.project_id = sized.project_id AND left(k.id, 7) = left(sized.commit_sha, 7)
    ) AS is_invented
    FROM sized
), invented AS MATERIALIZED (
    SELECT project_id, array_agg(DISTINCT commit_sha) AS commits
    FROM seen_commits
    WHERE project_id IN (SELECT project_id FROM ranked WHERE is_invented)
      AND block > CAST(:as_of AS timestamptz) - interval '28 days'
    GROUP BY project_id
)
INSERT INTO seen_commits (project_id, environment, block, commit_sha, sessions, closed_at)
SELECT project_id, environment, block, commit_sha, sessions, closed_at
FROM ranked
LEFT JOIN invented USING (project_id)
WHERE place <= {_MOST_COMMITS} AND environments <= {_MOST_ENVIRONMENTS}
  AND NOT (is_invented AND coalesce(cardinality(commits), 0) >= {_MOST_INVENTED}
           AND commit_sha <> ALL (commits))
ON CONFLICT (project_id, environment, block, commit_sha) DO NOTHING
RETURNING project_id, environment
""")


def note_seen_commits(connection: Connection, *, as_of: datetime) -> Collection[tuple[int, str]]:
    """Keeps which commits the sessions of the blocks that have closed since were served.

    Args:
        connection: In a transaction that is the only writer of derived tables.

    Returns:
        The (project, environment) of which something was seen.
    """
    read_to = connection.execute(_READ_TO).scalar_one_or_none()
    oldest = as_of - _LONGEST
    begins = oldest if read_to is None else min(max(read_to, oldest), as_of)
    seen = connection.execute(_KEEP, {"read_to": begins, "as_of": as_of}).all()
    # Under a clock that was set back the mark goes back too, or nothing would be kept for as long.
    connection.execute(_NOTE, {"read_to": as_of})
    return {(row.project_id, row.environment) for row in seen}
