"""Calibration: error rates, coverage and power of the whole engine on simulated traffic."""

import numpy as np
import pytest

from benchmarks.calibration.proportion import Proportion, bounds
from benchmarks.calibration.traffic import Traffic, answered, batches
from stats.looks.stratification import stratified
from stats.looks.trace import traced
from tests.repetition import also_nightly

ALPHA = 0.05


DECIDED_IN_A_DAY = {0.03: 0.45, 0.05: 0.71, 0.10: 0.97}


@pytest.mark.requirement("cadence.day")
@pytest.mark.parametrize("count", [600, pytest.param(10_000, marks=pytest.mark.calibration)])
@pytest.mark.parametrize("baseline", also_nightly([0.05], [0.03, 0.10]))
@pytest.mark.timeout(3600)
def test_a_day_of_24_thousand_sessions_closes_20_percent_as_often_as_stated(
    baseline, count
) -> None:
    traffic = Traffic(days=1, baseline=baseline, drift=0.0, lift=0.2 * baseline, steady=True)
    hits = answered(traffic, count, seed=20_260_103)
    stated = DECIDED_IN_A_DAY[baseline]
    name = f"decided in a day at {baseline:.0%}, stated {stated}"
    print(Proportion(name=name, hits=hits, count=count).row())  # noqa: T201  # the full table
    low, high = bounds(hits, count)
    assert low - 0.01 <= stated <= high + 0.01


def test_the_simulation_would_notice_a_test_that_is_peeked_at() -> None:
    """The mutant: a plain z-test on the same looks."""
    fired, count = 0, 100
    for series in batches(Traffic(days=3), count, seed=20_260_104):
        batch = traced([stratified(each) for each in series])
        totals = batch.trace.totals
        crossed = np.abs(totals.S) > 1.96 * np.sqrt(np.maximum(totals.V0, 1.0))
        fired += np.unique(np.searchsorted(batch.first, np.flatnonzero(crossed), "right")).size
    assert bounds(fired, count)[0] > 2 * ALPHA
