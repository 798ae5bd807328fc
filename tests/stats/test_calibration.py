"""Calibration: error rates, coverage and power of the whole engine on simulated traffic.

Cells are drawn from their sufficient statistics: arrivals a block, their split, conversions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import beta

from stats.evidence import evaluate
from stats.mixture import variance_at
from stats.policy import DAY, Policy
from stats.series import Series
from stats.trace import traced

BLOCK = 300
BLOCKS_A_DAY = DAY // BLOCK
DELAY = 1920
ALPHA = 0.05
AT_ONCE = 50
SURE = 0.999

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def constant_share(_: Floats) -> Floats:
    return np.full(_.shape, 0.5)


def ramp(day: Floats) -> Floats:
    """1, 5, 25 and 50 %, a day each."""
    return np.array((0.01, 0.05, 0.25, 0.5))[np.minimum(day.astype(np.int64), 3)]


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """A day's sessions with their daily rhythm, a baseline with weekly drift, a constant lift."""

    days: int
    share: Callable[[Floats], Floats] = constant_share
    baseline: float = 0.05
    drift: float = 0.5
    lift: float = 0.0
    per_day: int = 24_000
    steady: bool = False

    def drawn(self, rng: np.random.Generator) -> Series:
        day = (np.arange(self.days * BLOCKS_A_DAY) + 0.5) / BLOCKS_A_DAY
        units = self._arrivals(day, rng)
        share = self.share(day)
        rate = self.baseline * (1 + self.drift * np.sin(2 * np.pi * day / 7))
        n1 = rng.binomial(units, share)
        n0 = units - n1
        cuts = np.flatnonzero(np.diff(share)) + 1
        return Series(
            policy=Policy(),
            start=0,
            as_of=self.days * DAY + DELAY,
            closed_at=None,
            cuts=tuple((cuts * BLOCK).tolist()),
            block=np.arange(units.size, dtype=np.int64) * BLOCK,
            stratum=np.zeros(units.size, dtype=np.int64),
            n1=n1,
            x1=rng.binomial(n1, rate + self.lift),
            n0=n0,
            x0=rng.binomial(n0, rate),
        )

    def _arrivals(
        self, day: Floats, rng: np.random.Generator
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        if self.steady:
            reached = np.arange(1, day.size + 1) * self.per_day // BLOCKS_A_DAY
            return np.diff(reached, prepend=0)
        rhythm = 1 + 0.6 * np.sin(2 * np.pi * day)
        return rng.poisson(self.per_day / BLOCKS_A_DAY * rhythm)


def batches(traffic: Traffic, count: int, seed: int) -> Iterator[list[Series]]:
    rng = np.random.default_rng(seed)
    for begin in range(0, count, AT_ONCE):
        yield [traffic.drawn(rng) for _ in range(min(AT_ONCE, count - begin))]


def answered(traffic: Traffic, count: int, seed: int) -> int:
    """How many experiments end in an answer."""
    return sum(
        seen.decision.verdict != "abstain"
        for batch in batches(traffic, count, seed)
        for seen in evaluate(batch)
    )


def missed(traffic: Traffic, count: int, seed: int) -> int:
    """In how many experiments the interval of any look misses the true lift."""
    found = 0
    for series in batches(traffic, count, seed):
        batch = traced(series)
        totals = batch.trace.totals
        informed = np.flatnonzero(totals.W > 0)
        part = totals[informed]
        delta = np.full(informed.size, traffic.lift)
        variance = variance_at(part, part.lift, delta)
        outside = batch.mixture[informed].excess(part.S - delta * part.W, variance) >= 0
        owner = np.searchsorted(batch.first, informed, side="right")
        found += np.unique(owner[outside]).size
    return found


def bounds(hits: int, count: int, sure: float = SURE) -> tuple[float, float]:
    """The exact two-sided binomial interval of a share (Clopper & Pearson, Biometrika 1934)."""
    tail = (1 - sure) / 2
    low = float(beta.ppf(tail, hits, count - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, count - hits)) if hits < count else 1.0
    return low, high


def report(name: str, hits: int, count: int, claim: str) -> None:
    share = hits / count
    error = (share * (1 - share) / count) ** 0.5
    low, high = bounds(hits, count, 0.95)
    print(  # noqa: T201  # the table is what the full calibration is run for
        f"{name:<44} {count:>6} {share:>7.4f} ± {error:.4f}  [{low:.4f}, {high:.4f}]  {claim}"
    )


REGIMES = {
    "constant 50/50": constant_share,
    "ramp 1-5-25-50 %": ramp,
}
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
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.timeout(3600)
def test_peeking_every_five_minutes_answers_falsely_no_more_often_than_alpha(
    regime: str, size: Size
) -> None:
    traffic = Traffic(days=size.days, share=REGIMES[regime])
    hits = answered(traffic, size.errors, seed=20_260_101)
    report(f"type-I error, {regime}, {size.days} days", hits, size.errors, f"<= {ALPHA}")
    assert bounds(hits, size.errors)[0] <= ALPHA


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lift", [0.0, 0.01])
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.timeout(3600)
def test_the_intervals_of_all_looks_together_miss_the_lift_no_more_often_than_alpha(
    regime: str, lift: float, size: Size
) -> None:
    traffic = Traffic(days=size.days, share=REGIMES[regime], lift=lift)
    hits = missed(traffic, size.errors, seed=20_260_102)
    name = f"interval misses {lift:+.2f}, {regime}, {size.days} days"
    report(name, hits, size.errors, f"<= {ALPHA}")
    assert bounds(hits, size.errors)[0] <= ALPHA


@pytest.mark.requirement("cadence.day")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("baseline", DECIDED_IN_A_DAY)
@pytest.mark.timeout(3600)
def test_a_day_of_24_thousand_sessions_closes_20_percent_as_often_as_stated(
    baseline: float, size: Size
) -> None:
    traffic = Traffic(days=1, baseline=baseline, drift=0.0, lift=0.2 * baseline, steady=True)
    hits = answered(traffic, size.days_of_power, seed=20_260_103)
    stated = DECIDED_IN_A_DAY[baseline]
    report(f"decided in a day at {baseline:.0%}", hits, size.days_of_power, f"about {stated}")
    low, high = bounds(hits, size.days_of_power)
    assert low - 0.01 <= stated <= high + 0.01


def test_the_simulation_would_notice_a_test_that_is_peeked_at() -> None:
    """The mutant: a plain z-test on the same looks."""
    fired, count = 0, 100
    for series in batches(Traffic(days=3), count, seed=20_260_104):
        batch = traced(series)
        totals = batch.trace.totals
        crossed = np.abs(totals.S) > 1.96 * np.sqrt(np.maximum(totals.V0, 1.0))
        fired += np.unique(np.searchsorted(batch.first, np.flatnonzero(crossed), "right")).size
    assert bounds(fired, count)[0] > 2 * ALPHA
