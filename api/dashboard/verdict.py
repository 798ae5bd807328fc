"""A verdict as a page shows it: its reason, its advice, and the numbers beside them."""

import math

from api.dashboard.page.figures import signs
from domain.contract import Contract
from domain.document import Interval
from domain.evidence.document import AnyEvidence, Evidence, looked_at
from domain.measure import Measure, measure_of
from domain.wording.advice import advice, units_arriving
from storage.views.findings import Arrivals


def reason_of(
    contract: Contract,
    document: AnyEvidence | None,
    *,
    bound: bool = True,
    arrivals: Arrivals | None = None,
) -> str:
    """Returns the evidence in one or two sentences, to be read after the headline.

    Args:
        document: The evidence document; None before the first look.
        bound: Whether the deploy that it tests has come.
        arrivals: The traffic so far; None once a unit is complete.
    """
    if units := _units_in(contract, document, arrivals):
        return _arriving(units, document)
    if arrivals is not None and arrivals.events:
        return "Events are coming in. Units are counted when a block of 5 minutes has closed."
    known = looked_at(document)
    if known is None or not known.sessions.accumulated:
        return before_any_look(contract, bound=bound)
    return signs(known.reason)


def _units_in(contract: Contract, document: AnyEvidence | None, arrivals: Arrivals | None) -> int:
    """Returns the units that arrived while none is complete: as stored, or by the evidence."""
    if contract.decided:
        return 0
    if arrivals is not None and arrivals.units:
        return arrivals.units
    known = looked_at(document)
    return 0 if known is None else units_arriving(known)


def _arriving(units: int, document: AnyEvidence | None) -> str:
    known = looked_at(document)
    unit = "unit" if known is None else known.policy.unit
    are_in = f"1 {unit} is" if units == 1 else f"{units:,} {unit}s are"
    said = f"{are_in} in, and none is complete yet"
    if known is None:
        return f"{said}."
    minutes = math.ceil(known.policy.window_seconds / 60)
    return f"{said}: each has {minutes:,} min for its outcome."


def before_any_look(contract: Contract, *, bound: bool) -> str:
    """Returns why nothing is known of an experiment yet."""
    if contract.decided:
        return "It ended before anything was measured." if bound else "No deploy came for it."
    if not bound:
        return "It begins with its deploy, which has not come yet."
    return "Nothing was measured yet."


def advice_of(contract: Contract, document: AnyEvidence | None, *, bound: bool = True) -> list[str]:
    """Returns what to do now, the most important first.

    Args:
        document: The evidence document; None before the first look.
        bound: Whether the deploy that it tests has come.
    """
    lines = None if document is None else document.advice
    # A page has a button for it.
    request = f" (POST /v1/reward/{contract.experiment_id}/close)"
    return [
        signs(line.replace(request, ""))
        for line in lines or advice(contract, document, bound=bound)
    ]


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
