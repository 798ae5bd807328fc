"""The router, as received sessions show it: whether it keeps visitors or draws each session."""

from datetime import timedelta
from itertools import pairwise

from sqlalchemy import text

from domain.checklist.setup import ReturningVisitors
from domain.comparison import MANY_RETURNING
from storage.postgres.rows import value_of
from storage.schema.past_log import PastLog
from storage.tenants.settings import Settings, Unit

# How far back sessions are read, until enough visitors have come back. A longer span that would
# have more sessions than these is not read, so that nobody who asks waits for long.
_SPANS = (timedelta(hours=1), timedelta(days=1), timedelta(days=7), timedelta(days=28))
_MOST_SESSIONS = 200_000

# Of the users whose first session after a deploy was of the second largest build, those who began
# a second before the next deploy, and how many of those kept the build. Where no share is declared
# a second build is what browsers kept of an earlier release, and nobody draws.
_RETURNED = text("""
WITH sessions AS (
    SELECT session_id, min(occurred_at) AS began,
        (array_agg(commit_sha ORDER BY occurred_at, commit_sha))[1] AS build,
        (array_agg(pseudonym ORDER BY occurred_at, pseudonym) FILTER (
            WHERE pseudonym IS NOT NULL AND (trusted OR NOT :trusted_only)
        ))[1] AS pseudonym
    FROM runtime_events
    WHERE project_id = :project_id AND environment = :environment AND commit_sha IS NOT NULL
      AND received_at >= :since AND received_at < :before
    GROUP BY session_id
), steps AS (
    SELECT commit_sha, allocation, deployed_at AS epoch,
        lead(deployed_at, 1, 'infinity') OVER (ORDER BY deployed_at, recorded_at) AS ends,
        lead(deployed_at, 1, 'infinity') OVER (
            PARTITION BY commit_sha ORDER BY deployed_at, recorded_at
        ) AS changed
    FROM deploys
    WHERE project_id = :project_id AND environment = :environment AND withdrawn_at IS NULL
), drawn AS (
    SELECT s.epoch, v.build, v.pseudonym,
        lead(v.build) OVER visits AS next_build, row_number() OVER visits AS visit
    FROM sessions AS v JOIN steps AS s ON v.began >= s.epoch AND v.began < s.ends
    WHERE EXISTS (
        SELECT FROM steps AS c
        WHERE c.epoch <= s.epoch AND c.changed > s.epoch AND c.allocation > 0 AND c.allocation < 1
    )
    WINDOW visits AS (PARTITION BY s.epoch, v.pseudonym ORDER BY v.began, v.session_id)
), builds AS (
    SELECT epoch, build, count(*) / sum(count(*)) OVER (PARTITION BY epoch) AS share,
        row_number() OVER (PARTITION BY epoch ORDER BY count(*) DESC, build) AS place
    FROM drawn GROUP BY epoch, build
)
SELECT (SELECT count(*) FROM sessions) AS sessions, count(*) AS users,
    count(*) FILTER (WHERE d.next_build = d.build) AS kept,
    coalesce(sum(b.share), 0)::float AS expected
FROM drawn AS d JOIN builds AS b USING (epoch, build)
WHERE b.place = 2 AND d.visit = 1 AND d.pseudonym IS NOT NULL AND d.next_build IS NOT NULL
""")


def read_returning(
    past: PastLog, project_id: int, environment: str, settings: Settings
) -> ReturningVisitors:
    """Returns the visitors who came back in the last 28 days, or in fewer if many did."""
    bound = {
        "project_id": project_id,
        "environment": environment,
        "before": past.until,
        "trusted_only": settings.trusted_identity,
    }
    returning = ReturningVisitors(users=0, kept=0, expected=0.0)
    for span, longer in pairwise([*_SPANS, timedelta.max]):
        (row,) = past.rows(_RETURNED, {**bound, "since": past.until - span})
        returning = value_of(ReturningVisitors, row)
        if row.users >= MANY_RETURNING or row.sessions * (longer / span) > _MOST_SESSIONS:
            break
    return returning


def fitting_unit(
    past: PastLog, project_id: int, environment: str, settings: Settings, *, is_history: bool
) -> Unit:
    """Returns the unit that an experiment counts: the project's, or by `auto` the router's.

    Args:
        is_history: Whether history is bound, whose sessions are units: an import counts them
            before any router can be read of it.
    """
    if settings.unit != "auto":
        return settings.unit
    # A token vouches for a session, and a sample takes whole sessions.
    if settings.signed_assignments or settings.sample_rate < 1 or is_history:
        return "session"
    return read_returning(past, project_id, environment, settings).unit or "session"
