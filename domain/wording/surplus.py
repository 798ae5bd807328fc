"""The surplus line and the stand in words: a keep waits for both beside its guardrails."""

import math

from domain.evidence.results import Candidate, Surplus

SUSPICION = "Worse, unless units are lost"
PAUSED = (
    "Raise its share no further, and look for visits that control loses, or that come to treatment"
    " alone and do nothing: bots, health checks, retries under new ids."
)
# So many standard errors of a share are no chance of the draw.
_OFF = 3.0


def awaited_line(surplus: Surplus | None) -> str | None:
    """Returns the line that a keep waits for; None where it waits for none."""
    if surplus is None or surplus.holds:
        return None
    return "the gain is more than empty visits to one arm could explain"


def awaited_stand(candidate: Candidate) -> str | None:
    """Returns the evidence that a keep waits for; None where it waits for none."""
    stand = candidate.stand
    if stand is None or stand.holds:
        return None
    if stand.record is None or stand.needed is None:
        return "it can be held against what the project judges in a day"
    judged, kept = stand.record.judged, stand.record.kept
    changes = f"{judged:,} {'change' if judged == 1 else 'changes'} judged in 30 days"
    among = f", {kept:,} of them kept so" if kept else ""
    return f"its evidence is {stand.needed:,.0f} and stands beside {changes}{among}"


def router_sentence(surplus: Surplus | None) -> str | None:
    """Returns by how much the router misses the declared share; None where it does not."""
    if surplus is None or surplus.holds or not surplus.units:
        return None
    error = math.sqrt(surplus.declared * (1 - surplus.declared) / surplus.units)
    if abs(surplus.served - surplus.declared) <= _OFF * error:
        return None
    return (
        f"The router serves {100 * surplus.served:.3g} % where {100 * surplus.declared:.3g} % is"
        " declared: correct its weights, or declare what it serves."
    )
