"""An agent that ends its own null changes at the best moment, and the numbers that it is given."""

from dataclasses import dataclass

import numpy as np

from benchmarks.calibration.reward.population import drawn
from domain.evidence.effect import PRECISE
from domain.metric import DAY, HOUR
from domain.policy import Numbers
from stats.counts.cell import Floats
from stats.decision.effect import effect_at
from stats.looks.stratification import stratified
from stats.looks.trace import traced


def final_effects(count: int, truth: float, *, base: float, seed: int) -> Floats:
    """The relative effects of changes of one truth, after seven days of 24,000 units each."""
    policy = Numbers(horizon_seconds=7 * DAY)
    effects = np.zeros(count)
    for number in range(count):
        series = drawn(seed + number, truth, policy, days=7, base=base)
        batch = traced([stratified(series)])
        last = len(batch.trace) - 1
        effect = effect_at(batch, last, policy, is_rate=True, interval=(0.0, 0.0))
        assert effect is not None
        effects[number] = effect.posterior.relative or 0.0
    return effects


@dataclass(frozen=True, kw_only=True)
class Harvest:
    """The numbers that an agent's changes are given, relative.

    Attributes:
        ended: The share of changes that the agent ended.
        served: Of all changes.
        trainable: Of those alone whose likelihood is precise.
    """

    ended: float
    served: Floats
    trainable: Floats


def harvest(
    count: int, threshold: float, *, seed: int, per_day: int = 24_000, truth: float = 0.0
) -> Harvest:
    """Ends each change at the first look of an hour at which its effect reaches a threshold.

    An ended change serves its effect of then for ever; any other serves the effect of its seventh
    day. It is trainable where its likelihood is precise, whoever ended it.

    Args:
        count: How many changes.
        threshold: A relative effect.
        per_day: Units a day.
        truth: The true relative effect of each.
    """
    policy = Numbers(horizon_seconds=7 * DAY)
    served, error, ended = np.zeros(count), np.full(count, np.inf), 0
    for number in range(count):
        series = drawn(seed + number, truth, policy, days=7, per_day=per_day)
        batch = traced([stratified(series)])
        hours = np.searchsorted(batch.trace.at, np.arange(2, 7 * 24) * HOUR, side="right") - 1
        for row in np.unique(hours[hours >= 0]).tolist():
            effect = effect_at(batch, row, policy, is_rate=True, interval=(0.0, 0.0))
            served[number] = 0.0 if effect is None else effect.posterior.relative or 0.0
            error[number] = np.inf if effect is None else effect.posterior.observed_error
            if served[number] >= threshold:
                ended += 1
                break
    return Harvest(ended=ended / count, served=served, trainable=served[error <= PRECISE])
