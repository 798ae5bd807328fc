"""Evidence of experiments that are set aside: the last one that was served, and that it stands."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from domain.contract import contract, document_text
from domain.wording.advice import advice
from domain.wording.headline import NO_ANSWER, headline_of
from orchestration.pipeline.drafts import Drafted
from orchestration.pipeline.sentence import of_the_experiment
from storage.verdicts.next_look import forget_next_looks
from storage.verdicts.publication import Draft
from storage.verdicts.set_aside import ServedVerdict, served_of_set_aside

WARNING = "set_aside"
_CLOSED = of_the_experiment(
    NO_ANSWER, "it was closed by hand, while its data could not be computed."
)


def draft_set_aside(connection: Connection) -> list[Drafted]:
    """Returns drafts of the experiments that are set aside, as far as they say anything new.

    An open one serves its contract on, and a warning in its evidence. One that was closed by hand
    is decided, whether or not it can be computed; the breaches that were found before stay.
    """
    served = served_of_set_aside(connection)
    forget_next_looks(connection, [verdict.experiment_id for verdict in served])
    return [
        _closed(verdict) if verdict.closed else _warned(verdict, verdict.evidence)
        for verdict in served
        if verdict.closed or verdict.evidence is not None
    ]


def _closed(verdict: ServedVerdict) -> Drafted:
    decided = contract(
        verdict.experiment_id,
        verdict="abstain",
        abstain_reason=verdict.contract["abstain_reason"] or "power",
        decided=True,
        guardrail_breaches=verdict.contract["guardrail_breaches"],
    )
    before = verdict.evidence or {"experiment_id": verdict.experiment_id, "as_of": None}
    document: dict[str, Any] = {
        **before,
        "sentence": _CLOSED.sentence,
        "headline": headline_of(decided).text,
        "reason": _CLOSED.reason,
        "warnings": _with_warning(before),
        "ended_because": "closed",
    }
    document["advice"] = advice(decided, document)
    return _draft(verdict, document, decided)


def _warned(verdict: ServedVerdict, evidence: dict[str, object] | None) -> Drafted:
    document = evidence or {}
    return _draft(verdict, {**document, "warnings": _with_warning(document)}, verdict.contract)


def _with_warning(document: Mapping[str, object]) -> list[object]:
    warnings = document.get("warnings")
    others = [word for word in warnings if word != WARNING] if isinstance(warnings, list) else []
    return [*others, WARNING]


def _draft(
    verdict: ServedVerdict, document: dict[str, object], served: dict[str, object]
) -> Drafted:
    draft = Draft(
        experiment_id=verdict.experiment_id,
        document=document_text(document),
        contract=document_text(served),
        as_of=verdict.as_of,
        next_look_at=None if verdict.closed else verdict.next_look_at,
    )
    return Drafted(draft=draft, contract=served, evidence=None)
