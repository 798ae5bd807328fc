"""The experiments of a deployed commit, with the verdict and evidence that each serves."""

from dataclasses import dataclass

from sqlalchemy import Boolean, Connection, Text, and_, cast, literal_column, or_, select, text

from domain.contract import Contract, contract_of
from domain.evidence.document import AnyEvidence, Evidence, evidence_of
from storage.postgres.rows import value_of
from storage.schema.policy_columns import IS_PAST, IS_PORTFOLIO
from storage.schema.tables import commits, experiments, verdicts


@dataclass(frozen=True, kw_only=True)
class CommitExperiment:
    """An experiment on the commit, or the change it brings; `evidence` is None before any look."""

    experiment_id: str
    metric: str
    contract: Contract
    evidence: AnyEvidence | None
    is_past: bool

    @property
    def numbers(self) -> Evidence | None:
        """The evidence with its numbers; None where there never were any."""
        return self.evidence if isinstance(self.evidence, Evidence) else None


def experiments_of_commit(
    connection: Connection, project_id: int, environment: str, commit: str
) -> list[CommitExperiment]:
    """Returns the experiments of a commit in an environment, the newest first.

    No flag's, and no portfolio's: a portfolio judges the changes of a week.

    They are those that were registered with the commit, and those on the change that it brings: a
    change that was built again on another base goes on in its experiment, under a new commit.
    Contract and evidence come by the same statement: a breach that came with the evidence stands in
    the contract.
    """
    experiment = experiments.alias("x")
    x, v = experiment.c, verdicts.c
    brought = (
        select(commits.c.changes)
        .where(
            commits.c.project_id == project_id,
            commits.c.environment == environment,
            commits.c.commit_sha == commit,
        )
        .scalar_subquery()
    )
    rows = connection.execute(
        select(
            x.experiment_id,
            x.target_metric,
            cast(v.contract, Text).label("contract"),
            cast(v.evidence, Text).label("evidence"),
            literal_column(IS_PAST, Boolean).label("is_past"),
        )
        .join_from(experiment, verdicts)
        .where(
            x.project_id == project_id,
            x.environment == environment,
            or_(
                x.treatment_commit == commit,
                and_(x.change.bool_op("@>")(brought), x.change.bool_op("<@")(brought)),
            ),
            x.request["treatment_flag"].is_(None),
            text(f"NOT {IS_PORTFOLIO}"),
        )
        .order_by(x.registered_at.desc(), x.experiment_id.desc())
    )
    return [
        value_of(
            CommitExperiment,
            row,
            metric=row.target_metric,
            contract=contract_of(row.contract),
            evidence=evidence_of(row.evidence),
        )
        for row in rows
    ]
