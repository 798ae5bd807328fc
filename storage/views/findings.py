"""Findings: experiments as pages show them, each with a summary of its evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from domain.contract import Contract, contract_of
from domain.evidence.document import AnyEvidence, Evidence, evidence_of, looked_at
from domain.evidence.effect import Effect
from domain.lineage.serving import ReleaseStep
from domain.registration import ListedExperiment, RegistrationAnswer, Situation
from storage.postgres.refusal import Missing
from storage.postgres.rows import value_of
from storage.schema.policy_columns import CONTRAST_SECONDS
from storage.verdicts.publication import PublishedVerdict
from storage.verdicts.situations import IN_SHORT, read_situations
from storage.views.published import effect_of
from storage.views.registrations import read_current


@dataclass(frozen=True, kw_only=True)
class Finding(PublishedVerdict):
    """An experiment with the verdict and the evidence that are served of it.

    Attributes:
        evidence: The evidence document as of now; None before the first look.
        contrast_seconds: After so long without a comparison it ends; None before its deploy.
        acted: The step that was taken after its decision; None where none was.
        effect: The best estimate of its effect; None before the first look.
    """

    closed_at: datetime | None
    message: str | None
    url: str | None
    pull_request: str | None
    note: str | None
    registration: RegistrationAnswer
    contrast_seconds: int | None
    flag: dict[str, Any] | None
    evidence: AnyEvidence | None
    acted: ReleaseStep | None
    effect: Effect | None


_FIND = text(f"""
SELECT x.experiment_id, x.closed_at, d.commit ->> 'message' AS message, d.commit ->> 'url' AS url,
    d.commit ->> 'pull_request' AS pull_request, x.note,
    {CONTRAST_SECONDS} AS contrast_seconds,
    x.request -> 'treatment_flag' AS flag, x.treatment_commit,
    v.contract::text AS contract, v.decided, v.published_at, v.next_look_at,
    coalesce(f.effect, v.evidence -> 'effect')::text AS effect
FROM experiments AS x
JOIN verdicts AS v USING (experiment_id)
LEFT JOIN follow_ups AS f USING (experiment_id)
LEFT JOIN deploys AS d USING (deploy_id)
WHERE x.experiment_id = :experiment_id AND x.project_id = :project_id
""")


def read_finding(connection: Connection, project_id: int, experiment_id: str) -> Finding:
    """Returns an experiment of a project with its served verdict and evidence.

    Raises:
        Missing: The project has no such experiment.
    """
    bound = {"experiment_id": experiment_id, "project_id": project_id}
    row = connection.execute(_FIND, bound).one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    registration, current = read_current(connection, project_id, experiment_id)
    return value_of(
        Finding,
        row,
        registration=registration,
        evidence=current.evidence,
        acted=current.acted,
        effect=effect_of(row.effect),
    )


class ListedFinding(ListedExperiment, frozen=True, kw_only=True):
    """An experiment in a list: its verdict and its evidence as of now.

    Attributes:
        reason: The evidence's; None before the first look.
        evidence: Without its looks; None before the first.
    """

    message: str | None
    contract: Contract
    situation: Situation
    reason: str | None
    evidence: Evidence | None


_LIST = f"""
SELECT x.experiment_id, x.target_metric AS metric, x.environment, x.registered_at,
    x.treatment_commit, x.deploy_id, d.commit ->> 'message' AS message,
    v.contract::text AS contract, {IN_SHORT} AS evidence
FROM experiments AS x
JOIN verdicts AS v USING (experiment_id)
LEFT JOIN deploys AS d USING (deploy_id)
"""
_NEWEST = """
WHERE x.project_id = :project_id AND {condition}
ORDER BY x.registered_at DESC, x.experiment_id DESC
LIMIT :limit
"""


def list_findings(
    connection: Connection,
    project_id: int,
    *,
    limit: int,
    decided: bool | None = None,
    words: Sequence[str] = (),
    before: str | None = None,
) -> list[ListedFinding]:
    """Returns a project's experiments, the newest first: decided, open, or by None both."""
    condition = """
        (CAST(:decided AS boolean) IS NULL OR v.decided = :decided)
        AND (CAST(:words AS text[]) = '{}' OR NOT EXISTS (
            SELECT FROM unnest(CAST(:words AS text[])) AS word
            WHERE strpos(lower(concat_ws(' ', x.experiment_id, x.target_metric, x.environment,
                x.treatment_commit, x.note, d.commit ->> 'message', d.commit ->> 'author',
                d.commit ->> 'branch', d.commit ->> 'pull_request')), lower(word)) = 0
        ))
        AND (CAST(:before AS text) IS NULL OR (x.registered_at, x.experiment_id) < (
            SELECT registered_at, experiment_id FROM experiments
            WHERE experiment_id = :before AND project_id = :project_id
        ))
    """
    bound = {
        "project_id": project_id,
        "limit": limit,
        "decided": decided,
        "words": list(words),
        "before": before,
    }
    return _listed(connection, condition, bound)


def findings_of_commits(
    connection: Connection, project_id: int, environment: str | None, commits: Sequence[str]
) -> list[ListedFinding]:
    """Returns the experiments that test some commits, the newest first."""
    condition = """
        x.treatment_commit = ANY(:commits)
        AND (CAST(:environment AS text) IS NULL OR x.environment = :environment)
    """
    bound = {
        "project_id": project_id,
        "limit": 200,
        "commits": list(commits),
        "environment": environment,
    }
    return _listed(connection, condition, bound)


def _listed(
    connection: Connection, condition: str, bound: Mapping[str, object]
) -> list[ListedFinding]:
    query = text(_LIST + _NEWEST.format(condition=condition))
    rows = connection.execute(query, bound).all()
    published = {
        row.experiment_id: (contract_of(row.contract), evidence_of(row.evidence)) for row in rows
    }
    current = read_situations(connection, published)
    return [
        value_of(
            ListedFinding,
            row,
            contract=published[row.experiment_id][0],
            situation=now.situation,
            reason=None if now.evidence is None else now.evidence.reason,
            evidence=looked_at(now.evidence),
        )
        for row in rows
        for now in [current[row.experiment_id]]
    ]
