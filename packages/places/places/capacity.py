"""The capacity of an environment: the sessions of its newest day, and the rate measured last."""

from dataclasses import dataclass

from sqlalchemy import Connection, text

from domain.planning.boundary import Boundary
from domain.planning.design import LEAST, Design
from domain.planning.place import PlaceKind
from domain.planning.requirement import excluding_sessions
from storage.tenants.settings import Settings

# So much of the traffic stays with the build that users have: canaries are compared with it.
_STANDING = 0.5
# Shares of a canary, smallest first: many small canaries give more answers a day than few large.
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_USUAL_SHARE = 0.1

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


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The traffic of an environment, and the hours until it answers a change.

    Attributes:
        rate: The share of them that converts on the standing build; None where it is not known.
    """

    sessions_per_day: float
    rate: float | None
    boundary: Boundary

    def hours(self, kind: PlaceKind, share: float, accept_harm: float) -> float | None:
        """Returns the hours until a harmless change is answered; None for an unknown rate."""
        if self.rate is None or not LEAST <= self.rate <= 1 - LEAST or self.sessions_per_day <= 0:
            return None
        compared = 1.0 if kind == "flag" else share + _STANDING
        design = Design(
            sessions_per_day=self.sessions_per_day * compared,
            rate=self.rate,
            share=share / compared,
        )
        needed = excluding_sessions(design, accept_harm, self.boundary)
        return 24 * needed / design.sessions_per_day

    def canary_share(self, accept_harm: float, patience_hours: float) -> float:
        """Returns the smallest share that is answered in half of the patience."""
        for share in _SHARES:
            hours = self.hours("canary", share, accept_harm)
            if hours is None:
                return _USUAL_SHARE
            if hours <= patience_hours / 2:
                return share
        return _SHARES[-1]


def canary_room(taken: float) -> float:
    """Returns the share of units that further canaries may get, beside those that have some."""
    return 1 - _STANDING - taken


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
