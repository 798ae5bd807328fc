"""The statement on an experiment's verdict, which the service signs for others."""

import hashlib
from datetime import datetime

from sqlalchemy import Connection, text

from domain.contract import contract_of
from domain.document import document_text
from domain.evidence.attestation import (
    VALID_FOR,
    AttestedVerdict,
    Digest,
    LogExtent,
    Statement,
    Subject,
)
from domain.lineage.flag import Flag
from storage.postgres.refusal import Missing
from storage.postgres.rows import value_of

_READ = text("""
SELECT x.experiment_id, p.name AS project, x.environment, x.target_metric AS metric,
    x.treatment_commit, x.starts_at,
    x.request -> 'treatment_flag' AS flag, coalesce(x.change, '{}') AS change, x.policy,
    v.contract::text AS contract, v.evidence ->> 'digest' AS digest, v.as_of,
    coalesce((v.evidence ->> 'retrospective')::boolean, false) AS retrospective
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
    JOIN projects AS p ON p.project_id = x.project_id
WHERE x.experiment_id = :experiment_id AND x.project_id = :project_id
""")


def statement_on(
    connection: Connection, project_id: int, experiment_id: str, *, now: datetime
) -> Statement:
    """Returns the statement on the published verdict, open or decided.

    Raises:
        Missing: The project has no such experiment.
    """
    bound = {"experiment_id": experiment_id, "project_id": project_id}
    row = connection.execute(_READ, bound).one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    policy = None
    if row.policy is not None:
        frozen = document_text(dict(sorted(row.policy.items()))).encode()
        policy = Digest(sha256=hashlib.sha256(frozen).hexdigest())
    log = None
    if row.as_of is not None and row.starts_at is not None:
        log = LogExtent(since=row.starts_at, until=row.as_of)
    verdict = value_of(
        AttestedVerdict,
        row,
        contract=contract_of(row.contract),
        change=tuple(row.change),
        evidence=None if row.digest is None else Digest(sha256=row.digest),
        policy=policy,
        log=log,
        issued_at=now,
        expires=now + VALID_FOR,
    )
    flag = None if row.flag is None else Flag(**row.flag).change
    subject = Subject.of(commit=row.treatment_commit, flag=flag, experiment_id=experiment_id)
    return Statement.on(verdict, subject)
