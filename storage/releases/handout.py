"""The handout: the declared canaries and the flags under test, of which units get their arms."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from domain.lineage.flag import Flag
from storage.experiments.serving import standing_commit
from storage.releases.canary import Canary, canaries_by_first_deploy
from storage.schema.policy_columns import BY_USER

_FLAGS = text(f"""
-- From the registration on; nobody gets the treatment before the unit is known that draws.
SELECT DISTINCT ON (x.request -> 'treatment_flag' ->> 'name')
    x.experiment_id, x.request -> 'treatment_flag' AS flag,
    CASE WHEN x.frozen_at IS NOT NULL THEN CASE WHEN {BY_USER} THEN 'user' ELSE 'session' END END
        AS unit
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.project_id = :project_id AND x.environment = :environment AND NOT v.decided
  AND x.closed_at IS NULL
  -- Without `control` nobody knows what to hand out to it.
  AND x.request #>> '{{treatment_flag,control}}' IS NOT NULL
ORDER BY x.request -> 'treatment_flag' ->> 'name', x.registered_at, x.experiment_id
""")


@dataclass(frozen=True, kw_only=True)
class FlagExperiment:
    """A flag under comparison; `unit` is `session` or `user`, None until its policy is frozen."""

    experiment_id: str
    flag: Flag
    unit: str | None


@dataclass(frozen=True, kw_only=True)
class Handout:
    """The builds and flags that an environment gives its units now.

    Attributes:
        baseline: The commit of units that are in no canary; None where none is recorded.
    """

    baseline: str | None
    canaries: Sequence[Canary]
    flags: Sequence[FlagExperiment]


def read_handout(connection: Connection, project_id: int, environment: str) -> Handout:
    """Returns the handout of an environment as the store has it now."""
    where = {"project_id": project_id, "environment": environment}
    return Handout(
        baseline=standing_commit(connection, project_id, environment),
        # By their first deploy: a step of a ramp moves no unit of another canary.
        canaries=canaries_by_first_deploy(connection, project_id, environment),
        flags=[
            FlagExperiment(experiment_id=row.experiment_id, unit=row.unit, flag=Flag(**row.flag))
            for row in connection.execute(_FLAGS, where)
        ],
    )
