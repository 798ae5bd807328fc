"""Levels of both arms in a guardrail's metric, and the interval of their difference."""

import math
from dataclasses import dataclass

import numpy as np

from stats.counts.cell import Floats
from stats.counts.columns import Columns
from stats.sequential.harm import log_harm

_HALVINGS = 80


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

    def reaches(score: float) -> bool:
        evidence = log_harm(np.array([score]), levels.variance, levels.rho)
        return bool(evidence[0] >= log_threshold)

    low, high = 0.0, math.sqrt(float(levels.variance[0] + levels.rho[0, 1]))
    while high < math.inf and not reaches(high):
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high
