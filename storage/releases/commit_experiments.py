"""The experiments of one deployed commit, with the verdict and evidence that each serves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from storage.schema.tables import experiments, verdicts

_NO_LOOK = "No look yet: nothing was measured."


@dataclass(frozen=True, kw_only=True)
class CommitExperiment:
    """An experiment whose treatment is the commit.

    Attributes:
        experiment_id: Of the experiment.
        metric: Its target.
        contract: The verdict contract that it serves.
        evidence: The evidence document behind it; empty before any look.
    """

    experiment_id: str
    metric: str
    contract: Mapping[str, Any]
    evidence: Mapping[str, Any]

    @property
    def sentence(self) -> str:
        """The evidence in a sentence."""
        return str(self.evidence.get("sentence", _NO_LOOK))


def experiments_of_commit(
    connection: Connection, project_id: int, environment: str, commit: str
) -> list[CommitExperiment]:
    """Returns the experiments of a commit in an environment, the newest first; no flag's.

    Contract and evidence come by one statement: a breach that came with the evidence stands in
    the contract.
    """
    x, v = experiments.c, verdicts.c
    rows = connection.execute(
        select(x.experiment_id, x.target_metric, v.contract, v.evidence)
        .join_from(experiments, verdicts)
        .where(
            x.project_id == project_id,
            x.environment == environment,
            x.treatment_commit == commit,
            x.request["treatment_flag"].is_(None),
        )
        .order_by(x.registered_at.desc(), x.experiment_id.desc())
    )
    return [
        CommitExperiment(
            experiment_id=row.experiment_id,
            metric=row.target_metric,
            contract=row.contract,
            evidence=row.evidence or {},
        )
        for row in rows
    ]
