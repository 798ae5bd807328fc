"""Traffic: simulated experiments, drawn from their sufficient statistics.

These are arrivals a block, their split over the arms, and conversions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from domain.metric import DAY
from domain.policy import Numbers
from stats.counts.closed_cells import ClosedCells
from stats.decision.evidence import Evidence, evaluate
from stats.looks.series import Series
from stats.looks.stratification import stratified
from stats.looks.trace import traced
from stats.sequential.mixture import variance_at

BLOCK = 300
BLOCKS_A_DAY = DAY // BLOCK
DELAY = 1920
AT_ONCE = 50

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Share = Callable[[Floats], Floats]


def constant(share: float) -> Share:
    return lambda day: np.full(day.shape, share)


def ramp_of(step: float) -> Share:
    """1, 5, 25 and 50 %, for `step` days each and the last for good."""

    def share(day: Floats) -> Floats:
        return np.array((0.01, 0.05, 0.25, 0.5))[np.minimum(day / step, 3).astype(np.int64)]

    return share


constant_share = constant(0.5)
ramp = ramp_of(1.0)


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """A day's sessions with their daily rhythm, a baseline with weekly drift, a constant lift."""

    days: int
    share: Share = constant_share
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
            policy=Numbers(),
            start=0,
            as_of=self.days * DAY + DELAY,
            closed_at=None,
            cuts=tuple((cuts * BLOCK).tolist()),
            target=ClosedCells(
                block=np.arange(units.size, dtype=np.int64) * BLOCK,
                stratum=np.zeros(units.size, dtype=np.int64),
                n1=n1,
                x1=rng.binomial(n1, rate + self.lift),
                n0=n0,
                x0=rng.binomial(n0, rate),
            ),
        )

    def _arrivals(self, day: Floats, rng: np.random.Generator) -> Ints:
        if self.steady:
            reached = np.arange(1, day.size + 1) * self.per_day // BLOCKS_A_DAY
            return np.diff(reached, prepend=0)
        rhythm = 1 + 0.6 * np.sin(2 * np.pi * day)
        return rng.poisson(self.per_day / BLOCKS_A_DAY * rhythm)


def batches(traffic: Traffic, count: int, seed: int) -> Iterator[list[Series]]:
    rng = np.random.default_rng(seed)
    for begin in range(0, count, AT_ONCE):
        yield [traffic.drawn(rng) for _ in range(min(AT_ONCE, count - begin))]


def evidences(traffic: Traffic, count: int, seed: int) -> Iterator[Evidence]:
    for batch in batches(traffic, count, seed):
        yield from evaluate(batch)


def answered(traffic: Traffic, count: int, seed: int) -> int:
    """How many experiments end in an answer."""
    return sum(seen.decision.verdict != "abstain" for seen in evidences(traffic, count, seed))


def missed(traffic: Traffic, count: int, seed: int) -> int:
    """In how many experiments the interval of any look misses the true lift."""
    found = 0
    for series in batches(traffic, count, seed):
        batch = traced([stratified(one) for one in series])
        totals = batch.trace.totals
        informed = np.flatnonzero(totals.W > 0)
        part = totals[informed]
        delta = np.full(informed.size, traffic.lift)
        variance = variance_at(part, part.lift, delta)
        outside = batch.mixture[informed].excess(part.S - delta * part.W, variance) >= 0
        owner = np.searchsorted(batch.first, informed, side="right")
        found += np.unique(owner[outside]).size
    return found
