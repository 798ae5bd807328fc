"""The builds beside the treatments of open experiments, by deploys and by the sessions seen."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, text

from domain.lineage.control_state import ControlState, control_state
from storage.experiments.histories import read_history
from storage.experiments.serving import read_serving
from storage.schema.clock import store_time
from storage.schema.policy_columns import IS_PORTFOLIO

_OPEN = text(f"""
SELECT x.experiment_id, x.treatment_commit, x.control_commit, x.change,
    coalesce(x.starts_at, x.bound_at) AS starts_at,
    coalesce((v.evidence #>> '{{totals,W}}')::float, 0) > 0 AS compared
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.project_id = :project_id AND x.environment = :environment AND x.bound_at IS NOT NULL
  AND NOT v.decided AND x.closed_at IS NULL AND NOT {IS_PORTFOLIO}
  -- Both values of a flag are served by the one build.
  AND x.control_commit IS DISTINCT FROM x.treatment_commit
  AND (CAST(:only AS text[]) IS NULL OR x.experiment_id = ANY(CAST(:only AS text[])))
ORDER BY x.experiment_id
""")


def control_states(
    connection: Connection,
    project_id: int,
    environment: str,
    *,
    known_at: datetime | None = None,
    only: Collection[str] | None = None,
) -> dict[str, ControlState]:
    """Returns the state of the builds beside the treatment of each open experiment.

    Args:
        known_at: The end of the transaction that records a deploy; None for now.
        only: The experiments to ask for; None for all of the environment.
    """
    bound = {"project_id": project_id, "environment": environment}
    listed = connection.execute(_OPEN, {**bound, "only": None if only is None else list(only)})
    experiments = listed.all()
    if not experiments:
        return {}
    known_at = known_at or store_time(connection)
    history = read_history(connection, project_id, environment, known_at=known_at)
    serving = read_serving(connection, project_id, environment, at=known_at, history=history)
    return {
        experiment.experiment_id: control_state(
            serving,
            history,
            treatment=experiment.treatment_commit,
            control=experiment.control_commit,
            change=frozenset(experiment.change),
            compared=experiment.compared,
            starts_at=experiment.starts_at,
        )
        for experiment in experiments
    }
