"""The capacity of an environment: the sessions of its newest day, and the rate measured last."""

from sqlalchemy import Connection, text

from domain.planning.boundary import Boundary
from domain.planning.place import Capacity
from storage.tenants.settings import Settings

_SESSIONS = text("""
SELECT coalesce(sum(sessions), 0) / greatest(
    extract(epoch FROM max(block) - min(block) + interval '5 minutes') / 86400, 1 / 24.0
)::float AS per_day
FROM seen_commits
WHERE project_id = :project_id AND environment = :environment
  AND block > (
      SELECT max(block) FROM seen_commits
      WHERE project_id = :project_id AND environment = :environment
  ) - interval '1 day'
""")
_RATE = text("""
SELECT (v.evidence #>> '{arms,control,rate}')::float AS rate
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.project_id = :project_id AND x.environment = :environment AND x.target_metric = :metric
  AND v.as_of IS NOT NULL
ORDER BY v.as_of DESC, x.experiment_id
LIMIT 1
""")


def read_capacity(
    connection: Connection, project_id: int, environment: str, *, metric: str, settings: Settings
) -> Capacity:
    """Returns the capacity of an environment for experiments on a metric."""
    bound = {"project_id": project_id, "environment": environment}
    return Capacity(
        sessions_per_day=float(connection.execute(_SESSIONS, bound).scalar_one() or 0),
        rate=connection.execute(_RATE, {**bound, "metric": metric}).scalar_one_or_none(),
        boundary=Boundary(alpha=settings.alpha, typical_lifts=tuple(settings.typical_lifts)),
    )
