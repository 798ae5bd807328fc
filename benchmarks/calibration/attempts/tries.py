"""Tries: a change without effect that is registered again until it is kept."""

import numpy as np

from benchmarks.calibration.scenario import Draw, evaluated, of_one_stratum, units
from benchmarks.calibration.traffic import BLOCKS_A_DAY
from domain.policy import Numbers
from stats.looks.series import Series

TRIES = 20
DAYS = 3


def without_effect(attempt: int) -> Draw:
    """24,000 units a day for three days, 5 % in both arms: who gives up then tries again."""

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * DAYS, 83, 0.5)
        x1, x0 = rng.binomial(n1, 0.05), rng.binomial(n0, 0.05)
        return of_one_stratum(n1, x1, n0, x0, policy=Numbers(attempt=attempt))

    return draw


def kept_at_last(count: int, *, counted: bool, seed: int = 20_261_301) -> int:
    """How many of so many changes are kept in any of twenty tries, counted as attempts or not."""
    left = count
    for number in range(1, TRIES + 1):
        draw = without_effect(number if counted else 1)
        left -= sum(
            seen.decision.verdict == "keep" for seen in evaluated(draw, left, seed + number)
        )
    return count - left
