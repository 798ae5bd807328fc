"""The list of verdicts: a project's experiments, or those that ask for a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ARRAY,
    Boolean,
    Connection,
    DateTime,
    Double,
    Row,
    Text,
    and_,
    case,
    cast,
    literal_column,
    select,
    text,
    tuple_,
)

from domain.contract import Contract, contract_of
from domain.evidence.document import AnyEvidence, evidence_of
from domain.lineage.flag import Flag
from domain.listing import ListedVerdict
from domain.registration import Registration
from domain.words import Action
from storage.experiments.commit_ids import commit_named
from storage.experiments.histories import joint_with
from storage.postgres.rows import value_of
from storage.schema.policy_columns import IS_PAST
from storage.schema.tables import experiments, verdicts
from storage.tenants.settings import read_settings
from storage.verdicts.situations import IN_SHORT, SituationReading, read_situations

Published = tuple[Contract, AnyEvidence | None]


@dataclass(frozen=True, kw_only=True)
class VerdictFilter:
    """Which experiments a list shows; None admits all.

    Attributes:
        status: `open` or `decided`.
        pending: Those that ask for a step that nobody took yet: decided, a guardrail is breached,
            or a harm is suspected on which the project goes back, and the commit is still the
            canary that it was: without a declared share, where it is to be taken back. Since a
            decision nobody posted that it is promoted, withdrawn or not declared. Of a flag, a
            breach.
    """

    status: str | None = None
    treatment_commit: str | None = None
    deploy_id: str | None = None
    metric: str | None = None
    decided_after: datetime | None = None
    pending: bool = False


_OWN_DEPLOYS = """
    FROM deploys AS d
    WHERE d.project_id = experiments.project_id AND d.environment = experiments.environment
      AND d.commit_sha = experiments.treatment_commit AND d.withdrawn_at IS NULL"""
_ALLOCATION = f"""(SELECT d.allocation {_OWN_DEPLOYS}
    ORDER BY d.deployed_at DESC, d.recorded_at DESC LIMIT 1)"""
# A share that is never declared is a canary's until a deploy after a declared share, or of share 0
# or 1, says otherwise.
_CANARY = f"""({_ALLOCATION} > 0 AND {_ALLOCATION} < 1
    OR {_ALLOCATION} IS NULL AND EXISTS (SELECT {_OWN_DEPLOYS})
      AND NOT EXISTS (SELECT {_OWN_DEPLOYS} AND d.allocation > 0 AND d.allocation < 1))"""
# A commit came after the canary where its first deploy did, or where it was put before everybody
# since: a hotfix, a promotion, an older commit deployed again. What is withdrawn came not at all.
_SUPERSEDED_BY = f"""(
    SELECT later.commit_sha
    FROM (
        SELECT d.commit_sha, max(d.deployed_at) AS last_at,
            bool_or(d.allocation IS NULL OR d.allocation = 1) AS for_everybody,
            (array_agg(d.allocation ORDER BY d.deployed_at DESC, d.recorded_at DESC))[1] AS share
        FROM deploys AS d
        WHERE {_CANARY}
          AND d.project_id = experiments.project_id AND d.environment = experiments.environment
          AND d.commit_sha <> experiments.treatment_commit AND d.withdrawn_at IS NULL
          AND d.deployed_at > (SELECT min(d.deployed_at) {_OWN_DEPLOYS})
        GROUP BY d.commit_sha
    ) AS later
    WHERE later.share IS DISTINCT FROM 0
      AND (later.for_everybody OR NOT EXISTS (
          SELECT FROM deploys AS e
          WHERE e.project_id = experiments.project_id
            AND e.environment = experiments.environment AND e.commit_sha = later.commit_sha
            AND e.deployed_at <= (SELECT min(d.deployed_at) {_OWN_DEPLOYS})
      ))
    ORDER BY later.last_at DESC, later.commit_sha LIMIT 1
)"""
_FLAG = "experiments.request -> 'treatment_flag' IS NOT NULL"
# A canary that got its share again before a decision goes on, and so does what it is to be taken
# back for. A build without a declared share may be everybody's: it is listed to be taken back where
# it was measured live, and once it is decided, until another commit comes. A flag's change is no
# commit's: no deploy of a commit acts on it, and it asks for a step until its experiment ends.
_PENDING = f"""CASE WHEN {IS_PAST.replace("x.", "experiments.")} THEN false
    WHEN {_FLAG} THEN NOT verdicts.decided AND experiments.closed_at IS NULL
    WHEN NOT {_CANARY} OR verdicts.decided AND EXISTS (SELECT {_OWN_DEPLOYS}
      AND (d.allocation IS NULL OR d.allocation IN (0, 1))
      AND d.deployed_at > coalesce(verdicts.as_of, verdicts.published_at)) THEN false
    WHEN {_ALLOCATION} IS NOT NULL THEN true
    WHEN (verdicts.evidence ->> 'retrospective')::bool THEN false
    ELSE NOT verdicts.decided OR {_SUPERSEDED_BY} IS NULL AND (
      verdicts.contract ->> 'verdict' = 'rollback'
      OR verdicts.contract ->> 'verdict' = 'abstain'
        AND json_array_length(verdicts.contract -> 'guardrail_breaches') > 0) END"""


_BREACHED_AT = literal_column(
    """coalesce((SELECT min((guardrail ->> 'breached_at')::timestamptz)
    FROM json_array_elements(verdicts.evidence -> 'guardrails') AS guardrail
    WHERE json_array_length(verdicts.contract -> 'guardrail_breaches') > 0),
    CASE WHEN (verdicts.evidence #>> '{surplus,suspected}')::bool THEN verdicts.as_of END)""",
    DateTime(timezone=True),
)
_BREACHED = text(f"""
SELECT v.experiment_id, v.contract::text AS contract, {IN_SHORT} AS evidence
FROM verdicts AS v
WHERE v.project_id = :project_id AND NOT v.decided
  AND (json_array_length(v.contract -> 'guardrail_breaches') > 0
      OR (v.evidence #>> '{{surplus,suspected}}')::bool)
""")


def list_verdicts(
    connection: Connection,
    project_id: int,
    *,
    wanted: VerdictFilter,
    limit: int,
    after: tuple[datetime, str] | None = None,
) -> list[ListedVerdict]:
    """Returns a project's experiments, the newest first; pending ones since when, oldest first.

    Args:
        after: (registered_at, experiment_id) of the last verdict of the page before; of a pending
            verdict (decided_at or breached_at, experiment_id).
    """
    x, v = experiments.c, verdicts.c
    conditions = [x.project_id == project_id]
    if wanted.status is not None:
        conditions.append(v.decided.is_(wanted.status == "decided"))
    if wanted.treatment_commit is not None:
        commit = commit_named(connection, project_id, wanted.treatment_commit)
        conditions.append(x.treatment_commit == commit)
    if wanted.deploy_id is not None:
        conditions.append(x.deploy_id == wanted.deploy_id)
    if wanted.metric is not None:
        conditions.append(x.target_metric == wanted.metric)
    if wanted.decided_after is not None:
        conditions.append(and_(v.decided, v.published_at > wanted.decided_after))
    position = tuple_(x.registered_at, x.experiment_id)
    order = (x.registered_at.desc(), x.experiment_id.desc())
    if wanted.pending:
        breached = _to_take_back(connection, project_id)
        conditions.append(v.decided | x.experiment_id.in_(breached))
        conditions.append(literal_column(_PENDING, Boolean))
        since = case((v.decided, v.published_at), else_=_BREACHED_AT)
        position, order = tuple_(since, x.experiment_id), (since, x.experiment_id)
    if after is not None:
        conditions.append(position > after if wanted.pending else position < after)
    rows = connection.execute(
        select(
            experiments,
            cast(v.contract, Text).label("contract"),
            literal_column(IN_SHORT.replace("v.", "verdicts."), Text).label("evidence"),
            v.as_of,
            _BREACHED_AT.label("breached_at"),
            case((v.decided, v.published_at)).label("decided_at"),
            literal_column(joint_with("experiments"), ARRAY(Text)).label("joint_with"),
            literal_column(_ALLOCATION, Double).label("allocation"),
            literal_column(_SUPERSEDED_BY, Text).label("superseded_by"),
        )
        .join_from(experiments, verdicts)
        .where(*conditions)
        .order_by(*order)
        .limit(limit)
    ).all()
    published, current = _current(connection, rows)
    trusts = read_settings(connection, project_id).act_on_unvouched_breaches
    return [
        value_of(
            ListedVerdict,
            row,
            metric=row.target_metric,
            headline=current[row.experiment_id].situation.headline,
            action=current[row.experiment_id].situation.action,
            treatment_flag=None if (flag := _flag(row.request)) is None else flag.change,
            by_itself=flag is None
            and not current[row.experiment_id].is_past
            and (trusts or current[row.experiment_id].trusted),
            contract=published[row.experiment_id][0],
        )
        for row in rows
    ]


def _flag(request: Mapping[str, object]) -> Flag | None:
    return Registration.of_stored(request).treatment_flag


def _to_take_back(connection: Connection, project_id: int) -> list[str]:
    """Returns the open experiments whose canary is to be taken back for a breach or suspicion."""
    rows = connection.execute(_BREACHED, {"project_id": project_id}).all()
    _, current = _current(connection, rows)
    return [name for name, each in current.items() if each.situation.action is Action.ROLL_BACK]


def _current(
    connection: Connection, rows: Sequence[Row[Any]]
) -> tuple[dict[str, Published], dict[str, SituationReading]]:
    """Returns the contracts and evidence of some rows, and the same as of now."""
    published = {
        row.experiment_id: (contract_of(row.contract), evidence_of(row.evidence)) for row in rows
    }
    return published, read_situations(connection, published)
