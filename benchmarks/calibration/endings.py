"""Scenarios of how experiments end: thin ramps, rare errors, and money with a whale in it."""

from collections.abc import Sequence

import numpy as np

from benchmarks.calibration.scenario import Draw, of_one_stratum, rail, units
from benchmarks.calibration.traffic import BLOCK, BLOCKS_A_DAY, Floats, Ints
from domain.metric import DAY
from stats.counts.arrivals import Arrivals, Epoch
from stats.counts.closed_cells import Values
from stats.looks.series import Series

WHALE = 500_000.0


def thin_ramp(*shares: float, per_day: int = 240, step: int = 3, days: int = 27) -> Draw:
    """Declared shares for `step` days each, the last for good, at a few units a day."""
    last = len(shares) - 1
    epochs = tuple(
        Epoch(start=i * step * DAY, end=None if i == last else (i + 1) * step * DAY, share=share)
        for i, share in enumerate(shares)
    )
    block = np.arange(days * BLOCKS_A_DAY, dtype=np.int64) * BLOCK
    share = np.array(shares)[np.minimum(block // (step * DAY), last)]

    def draw(rng: np.random.Generator) -> Series:
        came = rng.poisson(per_day / BLOCKS_A_DAY, block.size)
        n1 = rng.binomial(came, share)
        return of_one_stratum(
            n1,
            rng.binomial(n1, 0.05),
            came - n1,
            rng.binomial(came - n1, 0.05),
            cuts=tuple(epoch.start for epoch in epochs[1:]),
            allocation=epochs,
            arrivals=Arrivals(block=block, treatment=n1, others=came - n1),
        )

    return draw


def rare_errors(*, control: float, treatment: float) -> Draw:
    """Target 5 % and +20 % for a week, and rates of errors."""

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * 7, 83, 0.5)
        watched = rail("error", n1, rng.binomial(n1, treatment), n0, rng.binomial(n0, control))
        x1, x0 = rng.binomial(n1, 0.06), rng.binomial(n0, 0.05)
        return of_one_stratum(n1, x1, n0, x0, guardrails=(watched,))

    return draw


def revenue_with_a_whale(*, lift: float, capped: bool, past: int = 200) -> Draw:
    """1 % of units pay a log-normal sum (σ = 2) for 14 days; a unit of treatment pays 500,000.

    Args:
        lift: How much more of treatment's units pay, relative to control's.
        capped: Whether values are capped as by default with so many values in the past: at the
            larger of twenty times the median and the 95th percentile.
        past: Non-zero values of the 28 days before.
    """

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, BLOCKS_A_DAY * 14, 83, 0.5)
        x1, x0 = rng.binomial(n1, 0.01 * (1 + lift)), rng.binomial(n0, 0.01)
        earlier = rng.lognormal(3, 2, past)
        cap = max(20 * np.median(earlier), np.quantile(earlier, 0.95)) if capped else np.inf
        paid1, paid0 = rng.lognormal(3, 2, int(x1.sum())), rng.lognormal(3, 2, int(x0.sum()))
        paid1[paid1.size // 20] = WHALE
        (y1, yy1), (y0, yy0) = _sums(paid1, x1, cap), _sums(paid0, x0, cap)
        return of_one_stratum(n1, x1, n0, x0, values=Values(y1=y1, yy1=yy1, y0=y0, yy0=yy0))

    return draw


def _sums(paid: Floats, payers: Ints, cap: float) -> Sequence[Floats]:
    block, worth = np.repeat(np.arange(payers.size), payers), np.minimum(paid, cap)
    return [np.bincount(block, weights=worth**power, minlength=payers.size) for power in (1, 2)]
