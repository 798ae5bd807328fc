"""A verdict as a page shows it: its reason, its advice, and the numbers beside them."""

from api.dashboard.page.figures import signs
from domain.contract import Contract
from domain.document import Interval
from domain.evidence.document import Evidence
from domain.evidence.effect import Effect
from domain.measure import Measure, measure_of
from domain.registration import Situation
from storage.views.findings import Finding


def reason_of(contract: Contract, reason: str | None, situation: Situation) -> str:
    """Returns the evidence in a sentence or two, to be read after the headline.

    Args:
        reason: The evidence's as of now; None before the first look.
    """
    if (said := reason or situation.sentence) is not None:
        return signs(said)
    return "It ended before anything was measured." if contract.decided else "No look yet."


def advice_of(finding: Finding) -> list[str]:
    """Returns what to do now, the most important first."""
    # A page has a button for it.
    request = f" (POST /v1/reward/{finding.registration.experiment_id}/close)"
    return [signs(line.replace(request, "")) for line in finding.registration.situation.advice]


def value_of(
    contract: Contract, document: Evidence | None, effect: Effect | None
) -> tuple[float, float] | None:
    """Returns dollars a day between which the change lies once everybody has it.

    The ends are equal once there is a verdict: at the best estimate, as the rest of
    the page is, while the contract's number is of the measured lift. None where no
    value is known, or where the arms differ by more than the change.
    """
    at_risk = contract.value_at_risk
    if at_risk is not None:
        best = at_risk if effect is None or effect.value_per_day is None else effect.value_per_day
        return best, best
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
