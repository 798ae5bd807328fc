"""Calibration: error rates, coverage and power of the whole engine on simulated traffic."""

from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.calibration.proportion import Proportion, bounds
from benchmarks.calibration.traffic import Traffic, answered, batches, constant_share, missed, ramp
from stats.looks.stratification import stratified
from stats.looks.trace import traced
from tests.repetition import also_nightly

ALPHA = 0.05


def report(name: str, hits: int, count: int, claim: float | None) -> None:
    row = Proportion(name=name, hits=hits, count=count, at_most=claim).row()
    print(row)  # noqa: T201  # the table is what the full calibration is run for


CONSTANT, RAMP = "constant 50/50", "ramp 1-5-25-50 %"
REGIMES = {CONSTANT: constant_share, RAMP: ramp}
DECIDED_IN_A_DAY = {0.03: 0.45, 0.05: 0.71, 0.10: 0.97}


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is simulated."""

    days: int
    errors: int
    days_of_power: int


SIZES = [
    pytest.param(Size(days=6, errors=300, days_of_power=600), id="small"),
    pytest.param(
        Size(days=28, errors=2000, days_of_power=10_000), id="full", marks=pytest.mark.calibration
    ),
]


@pytest.mark.requirement("service.always-valid")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("regime", also_nightly([RAMP], [CONSTANT]))
@pytest.mark.timeout(3600)
def test_peeking_every_five_minutes_answers_falsely_no_more_often_than_alpha(
    regime: str, size: Size
) -> None:
    traffic = Traffic(days=size.days, share=REGIMES[regime])
    hits = answered(traffic, size.errors, seed=20_260_101)
    report(f"type-I error, {regime}, {size.days} days", hits, size.errors, ALPHA)
    assert bounds(hits, size.errors)[0] <= ALPHA


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lift", also_nightly([0.01], [0.0]))
@pytest.mark.parametrize("regime", also_nightly([RAMP], [CONSTANT]))
@pytest.mark.timeout(3600)
def test_the_intervals_of_all_looks_together_miss_the_lift_no_more_often_than_alpha(
    regime: str, lift: float, size: Size
) -> None:
    traffic = Traffic(days=size.days, share=REGIMES[regime], lift=lift)
    hits = missed(traffic, size.errors, seed=20_260_102)
    name = f"interval misses {lift:+.2f}, {regime}, {size.days} days"
    report(name, hits, size.errors, ALPHA)
    assert bounds(hits, size.errors)[0] <= ALPHA


@pytest.mark.requirement("cadence.day")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("baseline", also_nightly([0.05], [0.03, 0.10]))
@pytest.mark.timeout(3600)
def test_a_day_of_24_thousand_sessions_closes_20_percent_as_often_as_stated(
    baseline: float, size: Size
) -> None:
    traffic = Traffic(days=1, baseline=baseline, drift=0.0, lift=0.2 * baseline, steady=True)
    hits = answered(traffic, size.days_of_power, seed=20_260_103)
    stated = DECIDED_IN_A_DAY[baseline]
    report(f"decided in a day at {baseline:.0%}, stated {stated}", hits, size.days_of_power, None)
    low, high = bounds(hits, size.days_of_power)
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
