"""Hold-backs: builds that a share of the units keeps, though users have all their changes."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, text

from storage.experiments.histories import read_history
from storage.experiments.serving import standing_commit

_EVER = datetime.max.replace(tzinfo=UTC)
_SHORT = 12
_HELD_BACK_SINCE = text("""
-- The steps of the hold-back since it last was nobody's or everybody's.
WITH steps AS (
    SELECT allocation, deployed_at,
        row_number() OVER (ORDER BY deployed_at DESC, recorded_at DESC, deploy_id DESC) AS back
    FROM deploys
    WHERE project_id = :project_id AND environment = :environment AND commit_sha = :commit
      AND withdrawn_at IS NULL AND recorded_at <= :known_at
)
SELECT min(deployed_at) FROM steps
WHERE allocation > 0 AND allocation < 1
  AND back < coalesce(
      (SELECT min(back) FROM steps WHERE allocation IS NULL OR allocation IN (0, 1)), 9e9
  )
""")


def held_back_since(
    connection: Connection,
    project_id: int,
    environment: str,
    commit: str | None,
    *,
    known_at: datetime,
) -> datetime | None:
    """Returns since when a share of units is declared for a build; None while none is."""
    return connection.execute(
        _HELD_BACK_SINCE,
        {
            "project_id": project_id,
            "environment": environment,
            "commit": commit,
            "known_at": known_at,
        },
    ).scalar_one()


def later_build(
    connection: Connection,
    project_id: int,
    environment: str,
    commit: str,
    *,
    deployed_at: datetime = _EVER,
) -> str | None:
    """Returns the build that users have instead of a hold-back; None where a commit is none.

    A declared share of a commit is a hold-back where another build, which users have, carries all
    its changes, and users had them already when the share was declared. A canary that a hotfix was
    built on has its changes in what users have, too, but only since.
    """
    since = held_back_since(connection, project_id, environment, commit, known_at=_EVER)
    if since is None or deployed_at < since:
        return None
    history = read_history(connection, project_id, environment, known_at=_EVER)
    own = history.lineage(commit)
    now = standing_commit(connection, project_id, environment, besides=commit)
    if now is None or not own <= history.lineage(now):
        return None
    before = since - timedelta(microseconds=1)
    then = standing_commit(connection, project_id, environment, until=before)
    return None if then is None or not own <= history.lineage(then) else now


def nothing_to_judge(commit: str, later: str) -> str:
    """Returns why a hold-back has no verdict of its own, for a person."""
    return (
        f"{commit[:_SHORT]} is a hold-back: users have {later[:_SHORT]}, which carries all its"
        " changes, so there is nothing to judge"
    )
