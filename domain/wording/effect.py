"""The effect of a change in a line: the best estimate and its moment, the same in every face."""

from domain.document import Interval
from domain.evidence.document import Evidence
from domain.measure import measure_of

MOMENTS = {
    "open": "so far",
    "at_decision": "at the decision",
    "after_decision": "in the week after the decision",
}


def near_end(interval: Interval | None) -> float | None:
    """Returns the least difference that an interval leaves; None where it leaves none at all."""
    if interval is None:
        return None
    low, high = interval
    return low if low > 0 else high if high < 0 else None


def effect_line(evidence: Evidence) -> str | None:
    """Returns the best estimate of an evidence document's effect, with its moment.

    Returns:
        None where nothing was compared, or the comparison is not fair.
    """
    effect = evidence.effect
    if effect is None or effect.estimate is None:
        return None
    measure, estimate = measure_of(evidence), effect.estimate
    relative = measure.relative(estimate)
    size = f"{measure.difference(estimate)}{f' ({relative})' if relative else ''}"
    return f"{size} {MOMENTS[effect.basis]}"
