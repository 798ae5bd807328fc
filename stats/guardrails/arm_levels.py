"""Levels of both arms in a guardrail's metric, and the interval of their difference."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stats.counts.cell import Floats
from stats.counts.columns import Columns
from stats.sequential.harm import log_harm
from stats.sequential.mixture import precisions

_HALVINGS = 80


@dataclass(frozen=True, kw_only=True)
class ArmLevels(Columns):
    """Levels of both arms, an entry for each closing of a guardrail.

    Attributes:
        control: Control's rate, or mean; NaN without units.
        lift: Treatment's minus control's, block by block; NaN where nothing was compared.
        rho: Precisions of the mixture (closings, components).
    """

    control: Floats
    treatment: Floats
    lift: Floats
    weight: Floats
    variance: Floats
    rho: Floats


@dataclass(frozen=True, kw_only=True)
class LevelsAt:
    """The levels of a guardrail at any of its closings."""

    levels: ArmLevels
    closing: int
    threshold: float


def intervals(read: Sequence[LevelsAt]) -> list[tuple[float, float] | None]:
    """Returns the differences that neither side's test excludes, of each closing.

    It excludes 0 on the harmful side where the guardrail's evidence of harm reaches its
    threshold, and lies within the margin where harm beyond it is excluded. It is None where
    nothing was compared, or no difference is excluded.
    """
    every: list[tuple[float, float] | None] = [None] * len(read)
    compared = [
        number for number, entry in enumerate(read) if entry.levels.weight[entry.closing] > 0
    ]
    if not compared:
        return every
    own = [read[number] for number in compared]
    scores = _excluded_scores(
        np.array([entry.levels.variance[entry.closing] for entry in own]),
        precisions([entry.levels.rho[entry.closing] for entry in own]),
        np.array([math.log(entry.threshold) for entry in own]),
    )
    for number, entry, score in zip(compared, own, scores.tolist(), strict=True):
        lift = float(entry.levels.lift[entry.closing])
        reach = score / float(entry.levels.weight[entry.closing])
        if math.isfinite(reach):
            every[number] = lift - reach, lift + reach
    return every


def _excluded_scores(variance: Floats, rho: Floats, log_threshold: Floats) -> Floats:
    """Returns the scores at which evidence reaches its threshold, by bisection."""
    low, high = np.zeros_like(variance), np.sqrt(variance + rho[:, 1])
    while np.any(short := (log_harm(high, variance, rho) < log_threshold) & (high < math.inf)):
        low, high = np.where(short, high, low), np.where(short, 2.0 * high, high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if np.all((middle == low) | (middle == high)):
            break
        reached = log_harm(middle, variance, rho) >= log_threshold
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return high
