"""The effect of a change in a line: the best estimate and its moment, the same in every face."""

from datetime import datetime

from domain.document import Interval
from domain.evidence.document import Evidence
from domain.evidence.effect import Effect
from domain.figures import rough_percent
from domain.measure import measure_of

MOMENTS = {"open": "so far", "at_decision": "at the decision", "at_reward": "over its full time"}


def training_sentence(effect: Effect | None, *, retrospective: bool) -> str | None:
    """Returns whether to train on an effect, and else when; None where it is no estimate."""
    if effect is None or effect.estimate is None:
        return None
    if retrospective:
        return "Do not train on the estimate: what it measures could be chosen by the answer."
    if effect.trainable:
        return f"The estimate is final: it can be trained on from {_at(effect.reward_at)} on."
    if effect.final:
        return "Train on the likelihood: the estimate still depends on its prior."
    return (
        f"The estimate can change until {_at(effect.reward_at)}, or until the"
        " decision where that is later: train on none before."
    )


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def learned_line(effect: Effect | None) -> str | None:
    """Returns the estimate by the prior that the project's changes taught; None without any."""
    if effect is None or effect.learned is None or effect.credible is None:
        return None
    low, high = (rough_percent(100 * end) for end in effect.credible)
    return (
        f"{rough_percent(100 * effect.learned)}, 95 % between {low} and {high}, by the project's"
        f" changes up to {effect.prior_of}"
    )


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
    size = measure_of(evidence).difference(effect.estimate)
    relative = "" if effect.relative is None else f" ({rough_percent(100 * effect.relative)})"
    return f"{size}{relative} {MOMENTS[effect.basis]}"
