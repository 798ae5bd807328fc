"""A verdict as a page shows it: its reason, its advice, and the numbers beside them."""

from api.dashboard.page.figures import signs
from domain.contract import Contract
from domain.document import Interval
from domain.evidence.document import AnyEvidence, ClosedExperiment, Evidence, looked_at
from domain.measure import Measure, measure_of
from domain.registration import Situation
from domain.words import State
from storage.views.findings import Finding

BEFORE_ANY_LOOK = (State.WAITS_FOR_DEPLOY, State.ARRIVING)


def reason_of(contract: Contract, document: AnyEvidence | None, situation: Situation) -> str:
    """Returns the evidence in a sentence or two, to be read after the headline.

    Args:
        document: The evidence document; None before the first look.
        situation: The experiment's; before any unit is complete its sentence is all there is.
    """
    if situation.state in BEFORE_ANY_LOOK and situation.sentence is not None:
        return situation.sentence
    known = looked_at(document)
    if isinstance(document, ClosedExperiment):
        return document.reason
    if known is None or not known.sessions.accumulated:
        return before_any_look(contract, bound=True)
    return signs(known.reason)


def before_any_look(contract: Contract, *, bound: bool) -> str:
    """Returns why nothing is known of an experiment yet."""
    if contract.decided:
        return "It ended before anything was measured." if bound else "No deploy came for it."
    if not bound:
        return "It starts with its deploy, which is not recorded yet."
    return "Nothing was measured yet."


def advice_of(finding: Finding) -> list[str]:
    """Returns what to do now, the most important first."""
    # A page has a button for it.
    request = f" (POST /v1/reward/{finding.registration.experiment_id}/close)"
    return [signs(line.replace(request, "")) for line in finding.registration.situation.advice]


def value_of(contract: Contract, document: Evidence | None) -> tuple[float, float] | None:
    """Returns dollars a day between which the change lies once everybody has it.

    The ends are equal where a verdict names a number. None where no value is known, or where
    the arms differ by more than the change.
    """
    at_risk = contract.value_at_risk
    if at_risk is not None:
        return at_risk, at_risk
    between = None if document is None else document.value_range
    return None if between is None else (between.low, between.high)


def measured(contract: Contract, document: Evidence) -> tuple[Measure, float, Interval] | None:
    """Returns the measure, the lift and its interval: the verdict's, else the last look's."""
    totals = document.totals
    lift = totals.lift if contract.lift is None else contract.lift
    interval = totals.ci if contract.ci is None else contract.ci
    if lift is None or interval is None:
        return None
    return measure_of(document), lift, interval
