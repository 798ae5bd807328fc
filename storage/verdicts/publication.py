"""Verdicts as they are served: read from a row, published in a single transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from domain.contract import Contract, contract_of
from storage.postgres.rows import value_of
from storage.verdicts.announcements import announce
from storage.verdicts.next_look import NextLook
from storage.verdicts.situations import SUSPECTED


@dataclass(frozen=True, kw_only=True)
class PublishedVerdict:
    """A cached verdict row: the contract is the text that readers get, to the byte."""

    experiment_id: str
    contract: str
    decided: bool
    next_look_at: datetime | None
    published_at: datetime


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
    SELECT experiment_id, contract::text AS contract, {steady} AS steady,
        {suspected} AS suspected
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
    RETURNING v.experiment_id, v.project_id, v.contract::text AS contract, {steady} AS steady,
        {suspected} AS suspected
)
SELECT p.experiment_id, p.project_id, p.contract, b.contract AS before,
    p.steady IS DISTINCT FROM b.steady AS shortfall_changed,
    coalesce(p.suspected AND NOT coalesce(b.suspected, false), false) AS now_suspected
FROM published AS p LEFT JOIN before AS b USING (experiment_id)
ORDER BY p.experiment_id
""".replace("{steady}", _STEADY).replace("{suspected}", SUSPECTED)
)


@dataclass(frozen=True, kw_only=True)
class Published:
    """A verdict that this step published, with the contract that was served before it, if any.

    Attributes:
        shortfall_changed: Whether a breach of `arrival` is explained otherwise than before.
        now_suspected: Whether the test alone says for the first time that it is worse.
    """

    experiment_id: str
    project_id: int
    contract: Contract
    before: Contract | None
    shortfall_changed: bool = False
    now_suspected: bool = False

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
    announce(
        connection,
        [each.contract for each in published if each.changed or each.now_suspected],
        suspected={each.experiment_id for each in published if each.now_suspected},
    )
    return published
