"""Verdicts as they are served: read from a row, published in a single transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import (
    ARRAY,
    Boolean,
    ColumnElement,
    Connection,
    Double,
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
from domain.evidence.effect import Effect
from domain.listing import ListedVerdict
from storage.experiments.commit_ids import commit_named
from storage.experiments.histories import joint_with
from storage.postgres.refusal import Missing, unknown_to_the_store
from storage.postgres.rows import value_of
from storage.schema.tables import experiments, verdicts
from storage.verdicts.announcements import announce
from storage.verdicts.next_look import NextLook


@dataclass(frozen=True, kw_only=True)
class PublishedVerdict:
    """A cached verdict row: the contract is the text that readers get, to the byte."""

    experiment_id: str
    contract: str
    decided: bool
    next_look_at: datetime | None
    published_at: datetime


def read_verdict(connection: Connection, project_id: int, experiment_id: str) -> PublishedVerdict:
    """Returns the verdict of an experiment, never computed here.

    Raises:
        Missing: The project has no such experiment.
    """
    row = connection.execute(
        select(
            cast(verdicts.c.contract, Text).label("contract"),
            verdicts.c.decided,
            verdicts.c.next_look_at,
            verdicts.c.published_at,
        ).where(verdicts.c.experiment_id == experiment_id, verdicts.c.project_id == project_id)
    ).one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    return value_of(PublishedVerdict, row, experiment_id=experiment_id)


def read_evidence(connection: Connection, project_id: int, experiment_id: str) -> str | None:
    """Returns the evidence behind the served verdict as JSON text, None before the first look.

    Raises:
        Missing: The project has no such experiment.
    """
    return _read_json(connection, verdicts.c.evidence, project_id, experiment_id)


_EFFECT = text("""
SELECT coalesce(f.effect, v.evidence -> 'effect')::text AS effect
FROM verdicts AS v LEFT JOIN follow_ups AS f USING (experiment_id)
WHERE v.experiment_id = :experiment_id AND v.project_id = :project_id
""")


def read_effect(connection: Connection, project_id: int, experiment_id: str) -> Effect | None:
    """Returns the effect beside the verdict, None before the first look.

    Raises:
        Missing: The project has no such experiment.
    """
    bound = {"experiment_id": experiment_id, "project_id": project_id}
    row = connection.execute(_EFFECT, bound).one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    return effect_of(row.effect)


_EFFECTS = msgspec.json.Decoder(Effect | None)


def effect_of(text: str | None) -> Effect | None:
    """Returns the effect of its JSON text, null where the look has none."""
    return None if text is None else _EFFECTS.decode(text)


def _read_json(
    connection: Connection, column: ColumnElement[Any], project_id: int, experiment_id: str
) -> str | None:
    row = connection.execute(
        select(cast(column, Text).label("text")).where(
            verdicts.c.experiment_id == experiment_id, verdicts.c.project_id == project_id
        )
    ).one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    return None if row.text == "null" else row.text


def project_of(connection: Connection, experiment_id: str) -> int:
    """Returns the project of an experiment, for operators of the service.

    Raises:
        Missing: There is no such experiment.
    """
    project_id = connection.execute(
        select(verdicts.c.project_id).where(verdicts.c.experiment_id == experiment_id)
    ).scalar_one_or_none()
    if project_id is None:
        raise unknown_to_the_store(experiment_id)
    return project_id


@dataclass(frozen=True, kw_only=True)
class VerdictFilter:
    """Which experiments a list shows; None admits all.

    Attributes:
        status: `open` or `decided`.
        treatment_commit: The commit or its beginning.
        decided_after: Those decided later.
        pending: Those that are decided and whose commit is still the declared canary that it was:
            since the deciding look nobody posted that it is promoted, withdrawn or not declared.
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
      AND d.commit_sha = experiments.treatment_commit"""
_ALLOCATION = f"""(SELECT d.allocation {_OWN_DEPLOYS}
    ORDER BY d.deployed_at DESC, d.recorded_at DESC LIMIT 1)"""
_FLAG = "experiments.request -> 'treatment_flag' IS NOT NULL"
# A flag's change is no commit's: no deploy of a commit acts on it.
_PENDING = f"""(verdicts.decided AND NOT {_FLAG} AND {_ALLOCATION} > 0 AND {_ALLOCATION} < 1
    AND NOT EXISTS (SELECT {_OWN_DEPLOYS}
      AND (d.allocation IS NULL OR d.allocation IN (0, 1))
      AND d.deployed_at > coalesce(verdicts.as_of, verdicts.published_at)))"""
# A commit came after the canary where its first deploy did, or where it was put before everybody
# since: a hotfix, a promotion, an older commit deployed again. What is withdrawn came not at all.
_SUPERSEDED_BY = f"""(
    SELECT later.commit_sha
    FROM (
        SELECT d.commit_sha, max(d.deployed_at) AS last_at,
            bool_or(d.allocation IS NULL OR d.allocation = 1) AS for_everybody,
            (array_agg(d.allocation ORDER BY d.deployed_at DESC, d.recorded_at DESC))[1] AS share
        FROM deploys AS d
        WHERE {_ALLOCATION} > 0 AND {_ALLOCATION} < 1
          AND d.project_id = experiments.project_id AND d.environment = experiments.environment
          AND d.commit_sha <> experiments.treatment_commit
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


def list_verdicts(
    connection: Connection,
    project_id: int,
    *,
    wanted: VerdictFilter,
    limit: int,
    after: tuple[datetime, str] | None = None,
) -> list[ListedVerdict]:
    """Returns a project's experiments, the newest first; pending ones by decision, oldest first.

    Args:
        after: (registered_at, experiment_id) of the last verdict of the page before; of a pending
            verdict (decided_at, experiment_id).
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
        conditions.append(literal_column(_PENDING, Boolean))
        position = tuple_(v.published_at, x.experiment_id)
        order = (v.published_at, x.experiment_id)
    if after is not None:
        conditions.append(position > after if wanted.pending else position < after)
    rows = connection.execute(
        select(
            experiments,
            cast(v.contract, Text).label("contract"),
            v.as_of,
            case((v.decided, v.published_at)).label("decided_at"),
            literal_column(joint_with("experiments"), ARRAY(Text)).label("joint_with"),
            literal_column(_ALLOCATION, Double).label("allocation"),
            literal_column(_SUPERSEDED_BY, Text).label("superseded_by"),
        )
        .join_from(experiments, verdicts)
        .where(*conditions)
        .order_by(*order)
        .limit(limit)
    )
    return [
        value_of(
            ListedVerdict,
            row,
            metric=row.target_metric,
            contract=contract_of(row.contract),
        )
        for row in rows
    ]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Evidence and contract of an experiment, computed and not yet published.

    Attributes:
        as_of: The look; None before any.
        next_look_at: When the next look can come at the earliest; None once decided.
        next_look: When its next look can come; None where that is not known.
    """

    experiment_id: str
    document: str
    contract: str
    as_of: datetime | None
    next_look_at: datetime | None
    next_look: NextLook | None = None


# A string for each column rather than an array: a driver quotes an array's elements letter by
# letter, and documents are long. The separator cannot stand in JSON, nor in an identifier.
_STAGE = text("""
INSERT INTO evidence (experiment_id, document, contract, as_of, next_look_at)
SELECT d.experiment_id, d.document::json, d.contract::json, d.as_of, d.next_look_at
FROM unnest(
    string_to_array(:ids, E'\\x1e'), string_to_array(:documents, E'\\x1e'),
    string_to_array(:contracts, E'\\x1e'),
    CAST(:as_ofs AS timestamptz[]), CAST(:next_looks AS timestamptz[])
) AS d (experiment_id, document, contract, as_of, next_look_at)
ON CONFLICT (experiment_id) DO UPDATE
SET document = excluded.document, contract = excluded.contract,
    as_of = excluded.as_of, next_look_at = excluded.next_look_at
""")


_SEPARATOR = "\x1e"
# Bounds the memory, and the length of a string that PostgreSQL takes.
_STAGED_AT_ONCE = 500


def stage_evidence(connection: Connection, drafts: Sequence[Draft]) -> None:
    """Keeps computed evidence for `publish_verdicts`; no reader sees it."""
    for begin in range(0, len(drafts), _STAGED_AT_ONCE):
        some = drafts[begin : begin + _STAGED_AT_ONCE]
        connection.execute(
            _STAGE,
            {
                "ids": _SEPARATOR.join(draft.experiment_id for draft in some),
                "documents": _SEPARATOR.join(draft.document for draft in some),
                "contracts": _SEPARATOR.join(draft.contract for draft in some),
                "as_ofs": [draft.as_of for draft in some],
                "next_looks": [draft.next_look_at for draft in some],
            },
        )


# Documents are long: only those in which `arrival` is breached are looked into.
_STEADY = """CASE WHEN v.contract::text LIKE '%"arrival"%'
    THEN v.evidence #>> '{gates,shortfall,steady}' END"""
_PUBLISH = text(
    """
-- Verdict and evidence change in one row, hence at once. A row that would say the same is left
-- alone: its time of publication is when the answer last changed.
WITH before AS (
    SELECT experiment_id, contract::text AS contract, {steady} AS steady
    FROM verdicts AS v WHERE NOT decided AND experiment_id = ANY(:ids)
), published AS (
    INSERT INTO verdicts AS v (
        experiment_id, project_id, contract, evidence, verdict, abstain_reason, decided,
        as_of, next_look_at, published_at
    )
    SELECT e.experiment_id, x.project_id, e.contract, e.document,
           e.contract ->> 'verdict', e.contract ->> 'abstain_reason',
           (e.contract -> 'power_state' ->> 'decided')::boolean,
           e.as_of, e.next_look_at, clock_timestamp()
    FROM evidence AS e
    JOIN experiments AS x USING (experiment_id)
    LEFT JOIN verdicts AS served USING (experiment_id)
    -- The conflict below would leave the decided ones alone too; by then all were read.
    WHERE served.decided IS NOT TRUE AND e.experiment_id = ANY(:ids)
    ON CONFLICT (experiment_id) DO UPDATE
    SET contract = excluded.contract, evidence = excluded.evidence, verdict = excluded.verdict,
        abstain_reason = excluded.abstain_reason, decided = excluded.decided,
        as_of = excluded.as_of, next_look_at = excluded.next_look_at,
        published_at = CASE WHEN v.contract::text = excluded.contract::text
            THEN v.published_at ELSE excluded.published_at END
    WHERE NOT v.decided
      -- Of repaired rows, of which nothing was published yet, an earlier look may decide.
      AND (v.as_of IS NULL OR v.as_of <= excluded.as_of OR NOT EXISTS (
          SELECT FROM publication_progress AS p
          WHERE p.experiment_id = v.experiment_id AND p.published_to IS NOT NULL
      ))
      AND (v.contract::text, v.evidence::text, v.next_look_at)
          IS DISTINCT FROM (excluded.contract::text, excluded.evidence::text, excluded.next_look_at)
    RETURNING v.experiment_id, v.project_id, v.contract::text AS contract, {steady} AS steady
)
SELECT p.experiment_id, p.project_id, p.contract, b.contract AS before,
    p.steady IS DISTINCT FROM b.steady AS shortfall_changed
FROM published AS p LEFT JOIN before AS b USING (experiment_id)
ORDER BY p.experiment_id
""".replace("{steady}", _STEADY)
)


@dataclass(frozen=True, kw_only=True)
class Published:
    """A verdict that this step published, with the contract that was served before it, if any.

    Attributes:
        shortfall_changed: Whether a breach of `arrival` is explained otherwise than before.
    """

    experiment_id: str
    project_id: int
    contract: Contract
    before: Contract | None
    shortfall_changed: bool = False

    @property
    def changed(self) -> bool:
        """Whether the verdict itself changed, rather than its numbers alone."""
        differs = self.before is None or _answer(self.contract) != _answer(self.before)
        return differs or self.shortfall_changed


def _answer(contract: Contract) -> tuple[object, ...]:
    return (
        contract.verdict,
        contract.abstain_reason,
        contract.decided,
        contract.guardrail_breaches,
    )


_STAGED = text("""
SELECT e.experiment_id FROM evidence AS e LEFT JOIN verdicts AS v USING (experiment_id)
WHERE v.decided IS NOT TRUE
ORDER BY e.experiment_id
""")


def staged_experiments(connection: Connection) -> list[str]:
    """Returns the undecided experiments of which evidence is staged."""
    return list(connection.execute(_STAGED).scalars())


def publish_verdicts(
    connection: Connection, *, only: Sequence[str] | None = None
) -> list[Published]:
    """Publishes staged evidence with its verdicts and returns what that changed.

    A changed verdict is announced in the same transaction: no verdict without its
    announcement, and no announcement without its verdict.

    Args:
        connection: In a transaction that is the only writer of derived tables.
    """
    ids = staged_experiments(connection) if only is None else list(only)
    rows = connection.execute(_PUBLISH, {"ids": ids}).all()
    published = [
        value_of(
            Published,
            row,
            contract=contract_of(row.contract),
            before=None if row.before is None else contract_of(row.before),
        )
        for row in rows
    ]
    announce(connection, [verdict.contract for verdict in published if verdict.changed])
    return published


def all_contracts(connection: Connection, project_id: int | None = None) -> list[str]:
    """Returns each experiment's contract, as served, oldest first; of a project or of all."""
    query = (
        select(cast(verdicts.c.contract, Text))
        .join_from(verdicts, experiments)
        .order_by(experiments.c.registered_at, experiments.c.experiment_id)
    )
    if project_id is not None:
        query = query.where(verdicts.c.project_id == project_id)
    return list(connection.execute(query).scalars())
