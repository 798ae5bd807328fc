"""A portfolio: the standing build against a hold-back, as an experiment that hides nothing."""

from datetime import datetime

from sqlalchemy import Connection, text

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
