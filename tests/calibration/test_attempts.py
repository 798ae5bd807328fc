"""Calibration of attempts: a change without effect that is tried again and again."""

from typing import Any

import numpy as np
import pytest

from stats.looks.policy import Policy
from stats.looks.series import Series
from tests.calibration.proportion import Proportion, bounds
from tests.calibration.scenario import Draw, evaluated, of_one_stratum, units
from tests.calibration.traffic import BLOCKS_A_DAY

TRIES = 20
DAYS = 3


def without_effect(attempt: int) -> Draw:
    """24,000 units a day for three days, 5 % in both arms: who gives up then tries again."""

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * DAYS, 83, 0.5)
        x1, x0 = rng.binomial(n1, 0.05), rng.binomial(n0, 0.05)
        return of_one_stratum(n1, x1, n0, x0, policy=Policy(attempt=attempt))

    return draw


def kept_at_last(count: int, *, counted: bool) -> int:
    """How many of so many changes are kept in one of twenty tries, counted as attempts or not."""
    left = count
    for number in range(1, TRIES + 1):
        draw = without_effect(number if counted else 1)
        left -= sum(
            seen.decision.verdict == "keep" for seen in evaluated(draw, left, 20_261_301 + number)
        )
    return count - left


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(40, id="small"),
        pytest.param(1000, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(3600)]),
    ],
)
def test_a_change_without_effect_that_is_tried_twenty_times_is_seldom_kept(count: int) -> None:
    shares: dict[str, Any] = {}
    for name, counted, claim in (("attempts", True, 0.05), ("each as the first", False, None)):
        hits = kept_at_last(count, counted=counted)
        seen = Proportion(name=f"20 tries, {name}: kept", hits=hits, count=count, at_most=claim)
        print(seen.row())  # noqa: T201
        shares[name] = bounds(hits, count)
    assert shares["attempts"][0] <= 0.05
    if count >= 1000:
        # The simulation would notice attempts that are not counted.
        assert shares["each as the first"][0] > 0.05
