"""Base moves of open experiments, from the recorded deploys."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, text

from domain.lineage.base_move import BaseMove, ReleaseStep, base_move, standing_step
from storage.experiments.histories import read_history
from storage.schema.policy_columns import IS_PORTFOLIO

_OPEN = text(f"""
SELECT x.experiment_id, x.treatment_commit, x.control_commit, x.change
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.project_id = :project_id AND x.environment = :environment AND x.bound_at IS NOT NULL
  AND NOT v.decided AND x.closed_at IS NULL AND NOT {IS_PORTFOLIO}
  -- Both values of a flag are served by the one build.
  AND x.control_commit IS DISTINCT FROM x.treatment_commit
  AND (CAST(:only AS text[]) IS NULL OR x.experiment_id = ANY(CAST(:only AS text[])))
ORDER BY x.experiment_id
""")
_TESTED = text(f"""
SELECT x.project_id, x.environment, x.treatment_commit, min(x.bound_at) AS since
FROM experiments AS x
JOIN unnest(CAST(:projects AS bigint[]), CAST(:environments AS text[]))
    AS asked (project_id, environment) USING (project_id, environment)
WHERE x.bound_at IS NOT NULL AND x.control_commit IS DISTINCT FROM x.treatment_commit
  AND NOT {IS_PORTFOLIO}
GROUP BY x.project_id, x.environment, x.treatment_commit
""")
_STEPS = text("""
SELECT commit_sha AS commit, deployed_at, allocation FROM deploys
WHERE project_id = :project_id AND environment = :environment AND withdrawn_at IS NULL
ORDER BY deployed_at, recorded_at, deploy_id
""")


def tested_commits(
    connection: Connection, environments: Collection[tuple[int, str]]
) -> dict[tuple[int, str], dict[str, datetime]]:
    """Returns the commits that experiments of each (project, environment) test, and since when."""
    asked = sorted(set(environments))
    bound = {
        "projects": [project_id for project_id, _ in asked],
        "environments": [environment for _, environment in asked],
    }
    tested: dict[tuple[int, str], dict[str, datetime]] = {each: {} for each in asked}
    for row in connection.execute(_TESTED, bound):
        tested[row.project_id, row.environment][row.treatment_commit] = row.since
    return tested


def base_moves(
    connection: Connection,
    project_id: int,
    environment: str,
    *,
    known_at: datetime,
    only: Collection[str] | None = None,
) -> dict[str, BaseMove]:
    """Returns the base moves of the open experiments that lost their control.

    Args:
        known_at: Now, or the end of the transaction that records a deploy.
        only: The experiments to ask for; None for all of the environment.
    """
    bound = {"project_id": project_id, "environment": environment}
    listed = connection.execute(_OPEN, {**bound, "only": None if only is None else list(only)})
    experiments = listed.all()
    if not experiments:
        return {}
    steps = [ReleaseStep(**row) for row in connection.execute(_STEPS, bound).mappings()]
    place = (project_id, environment)
    tested = frozenset(tested_commits(connection, [place])[place])
    moved = [
        experiment
        for experiment in experiments
        if (standing := standing_step(steps, tested=tested, besides=experiment.treatment_commit))
        and standing.commit != experiment.control_commit
    ]
    # Most experiments stand on what users have, and then no lineage need be read.
    if not moved:
        return {}
    history = read_history(connection, project_id, environment, known_at=known_at)
    moves = {
        experiment.experiment_id: base_move(
            steps,
            history,
            treatment=experiment.treatment_commit,
            change=frozenset(experiment.change),
            tested=tested,
        )
        for experiment in moved
    }
    return {experiment_id: move for experiment_id, move in moves.items() if move is not None}
