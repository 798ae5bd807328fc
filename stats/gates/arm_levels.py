"""Levels of both arms in a guardrail's metric, and the interval of their difference."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stats.counts.cell import Floats
from stats.counts.columns import Columns
from stats.sequential.harm import log_harm

_HALVINGS, _AT_ONCE = 80, 5


@dataclass(frozen=True, kw_only=True)
class ArmLevels(Columns):
    """Levels of both arms, one entry for each closing of a guardrail.

    Attributes:
        control: Control's rate, or mean; NaN without units.
        treatment: Treatment's.
        lift: Treatment's minus control's, block by block; NaN where nothing was compared.
        weight: W of the lift.
        variance: The variance of its score that the test reads.
        rho: Precisions of the mixture (closings, components).
    """

    control: Floats
    treatment: Floats
    lift: Floats
    weight: Floats
    variance: Floats
    rho: Floats

    def interval(self, closing: int, threshold: float) -> tuple[float, float] | None:
        """Returns the differences that the one-sided test excludes on neither side.

        It excludes 0 on the harmful side where the guardrail's evidence of harm reaches its
        threshold, and lies within the margin where harm beyond it is excluded.

        Args:
            closing: The number of the closing.
            threshold: Of the guardrail.

        Returns:
            None where nothing was compared, or no difference is excluded.
        """
        if not self.weight[closing] > 0:
            return None
        reach = _excluded_score(self[np.array([closing])], math.log(threshold))
        lift, reach = float(self.lift[closing]), reach / float(self.weight[closing])
        return (lift - reach, lift + reach) if math.isfinite(reach) else None


def _excluded_score(levels: ArmLevels, log_threshold: float) -> float:
    """Returns the score at which the evidence of a single entry reaches a threshold."""

    def reaches(scores: Floats) -> NDArray[np.bool_]:
        return log_harm(scores, levels.variance, levels.rho) >= log_threshold

    low, high = 0.0, math.sqrt(float(levels.variance[0] + levels.rho[0, 1]))
    while high < math.inf and not reaches(np.array([high]))[0]:
        low, high = high, 2.0 * high
    for _ in range(0, _HALVINGS, _AT_ONCE):
        if 0.5 * (low + high) in {low, high}:
            break
        low, high = _bisected(low, high, reaches)
    return high


def _bisected(
    low: float, high: float, reaches: Callable[[Floats], NDArray[np.bool_]]
) -> tuple[float, float]:
    """Bisects some times; all points that this may come to are tried at once, which costs less."""
    ends = np.array([low, high])
    for _ in range(_AT_ONCE):
        halved = np.empty(2 * ends.size - 1)
        halved[::2], halved[1::2] = ends, 0.5 * (ends[:-1] + ends[1:])
        ends = halved
    reached = reaches(ends)
    first, last = 0, ends.size - 1
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (first, middle) if reached[middle] else (middle, last)
    return float(ends[first]), float(ends[last])
