"""Evidence of experiments that are set aside: the last that was served, and that it stands."""

from msgspec import structs
from sqlalchemy import Connection

from domain.contract import Contract, contract
from domain.document import document_text
from domain.evidence.document import AnyEvidence, ClosedExperiment
from domain.wording.headline import NO_ANSWER, headline_of
from domain.words import AbstainReason, EndedBecause, Verdict
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

    An open experiment serves its contract on, and a warning in its evidence. If closed by hand it
    is decided, whether or not it can be computed; the breaches before stay.
    """
    served = served_of_set_aside(connection)
    forget_next_looks(connection, [verdict.experiment_id for verdict in served])
    closed = [_closed(verdict) for verdict in served if verdict.closed]
    warned = [
        _draft(verdict, _warned(verdict.evidence), verdict.contract)
        for verdict in served
        if not verdict.closed and verdict.evidence is not None
    ]
    return [*closed, *warned]


def _closed(verdict: ServedVerdict) -> Drafted:
    decided = contract(
        verdict.experiment_id,
        verdict=Verdict.ABSTAIN,
        abstain_reason=verdict.contract.abstain_reason or AbstainReason.POWER,
        decided=True,
        guardrail_breaches=verdict.contract.guardrail_breaches,
    )
    before = verdict.evidence or ClosedExperiment(
        sentence="",
        headline="",
        reason="",
        advice=(),
        experiment_id=verdict.experiment_id,
        as_of=None,
    )
    document = structs.replace(
        _warned(before),
        sentence=_CLOSED.sentence,
        headline=headline_of(decided).text,
        reason=_CLOSED.reason,
        ended_because=EndedBecause.CLOSED,
    )
    return _draft(verdict, document, decided)


def _warned(document: AnyEvidence) -> AnyEvidence:
    others = (word for word in document.warnings if word != WARNING)
    return structs.replace(document, warnings=(*others, WARNING))


def _draft(verdict: ServedVerdict, document: AnyEvidence, served: Contract) -> Drafted:
    draft = Draft(
        experiment_id=verdict.experiment_id,
        document=document_text(document),
        contract=document_text(served),
        as_of=verdict.as_of,
        next_look_at=None if verdict.closed else verdict.next_look_at,
    )
    return Drafted(draft=draft, contract=served, evidence=None)
