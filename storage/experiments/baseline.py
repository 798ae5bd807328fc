"""The baseline commit: the newest deploy before a time that no experiment tests."""

from datetime import datetime

from sqlalchemy import Connection, text

from storage.schema.policy_columns import IS_PORTFOLIO

_BASELINE = text(f"""
-- The newest earlier deploy of another commit that is neither a canary, nor withdrawn, by its
-- latest declared allocation, nor the treatment of an open experiment. Taking another canary for
-- the base makes a harmless parallel canary look harmful, and no later check sees it.
WITH latest AS (
    SELECT DISTINCT ON (commit_sha) commit_sha, deployed_at, recorded_at, allocation
    FROM deploys
    WHERE project_id = :project_id AND environment = :environment AND deployed_at < :before
      AND withdrawn_at IS NULL
    ORDER BY commit_sha, deployed_at DESC, recorded_at DESC
)
SELECT commit_sha
FROM latest
WHERE commit_sha <> :besides
  AND NOT coalesce(allocation < 1, false)
  AND (CAST(:promoted AS bool) AND coalesce(allocation = 1, false) OR NOT EXISTS (
      SELECT FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
      WHERE x.project_id = :project_id AND x.environment = :environment
        AND x.treatment_commit = latest.commit_sha AND x.bound_at IS NOT NULL AND NOT v.decided
        -- Both values of a flag are tested inside the one build that users have.
        AND x.control_commit IS DISTINCT FROM x.treatment_commit
        AND NOT {IS_PORTFOLIO}
  ))
ORDER BY deployed_at DESC, recorded_at DESC
LIMIT 1
""")


def baseline_commit(
    connection: Connection,
    project_id: int,
    environment: str,
    *,
    before: datetime,
    besides: str,
    promoted: bool = False,
) -> str | None:
    """Returns the commit that users had before a time, `besides` and canaries left out.

    Args:
        connection: To the store.
        project_id: Whose.
        environment: Where.
        before: The time.
        besides: A commit that is left out.
        promoted: Whether a treatment counts that was promoted while its experiment goes on.
    """
    return connection.execute(
        _BASELINE,
        {
            "project_id": project_id,
            "environment": environment,
            "before": before,
            "besides": besides,
            "promoted": promoted,
        },
    ).scalar_one_or_none()
