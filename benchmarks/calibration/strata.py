"""Many strata: traffic spread over them, and what joining blocks in other ways would cost."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.calibration.traffic import BLOCK, BLOCKS_A_DAY, DELAY, Floats, Share, constant_share
from domain.metric import DAY
from domain.policy import Numbers
from stats.counts.arrivals import Arrivals, Epoch
from stats.counts.closed_cells import ClosedCells
from stats.decision.evidence import Evidence, evaluate
from stats.looks.block import analysis_blocks
from stats.looks.series import Series

AT_ONCE = 8
NOBODY = np.empty(0, dtype=np.int64)


def in_phase(day: Floats) -> Floats:
    """A share that follows the day between 20 and 80 %, as the baseline does."""
    return 0.5 + 0.3 * np.sin(2 * np.pi * day)


@dataclass(frozen=True, kw_only=True)
class Strata:
    """Traffic without an effect, evenly spread over strata.

    Attributes:
        number: Strata.
        per_day: Units a day in all of them together.
        days: How long.
        share: Treatment's share over time.
        declared: The share that is declared; None where none is.
        baseline: Control's rate on average; it swings by half of that each day.
    """

    number: int
    per_day: int = 24_000
    days: int = 14
    share: Share = constant_share
    declared: float | None = None
    baseline: float = 0.05

    def drawn(self, rng: np.random.Generator) -> Series:
        blocks = self.days * BLOCKS_A_DAY
        day = (np.arange(blocks) + 0.5) / BLOCKS_A_DAY
        came = rng.poisson(self.per_day / BLOCKS_A_DAY, blocks)
        stratum = rng.integers(0, self.number, int(came.sum()))
        cell, units = np.unique(
            np.repeat(np.arange(blocks), came) * self.number + stratum, return_counts=True
        )
        block, stratum = np.divmod(cell, self.number)
        n1 = rng.binomial(units, self.share(day)[block])
        rate = (self.baseline * (1 + 0.5 * np.sin(2 * np.pi * day)))[block]
        return Series(
            policy=Numbers(),
            start=0,
            as_of=self.days * DAY + DELAY,
            closed_at=None,
            cuts=(),
            target=ClosedCells(
                block=block * BLOCK,
                stratum=stratum,
                n1=n1,
                x1=rng.binomial(n1, rate),
                n0=units - n1,
                x0=rng.binomial(units - n1, rate),
            ),
            **({} if self.declared is None else declared(self.declared)),
        )

    def evidences(self, count: int, seed: int) -> Iterator[Evidence]:
        rng = np.random.default_rng(seed)
        for begin in range(0, count, AT_ONCE):
            yield from evaluate([self.drawn(rng) for _ in range(min(AT_ONCE, count - begin))])

    def answers(self, count: int, seed: int) -> int:
        """How many of so many experiments end in an answer, each of them false."""
        return sum(one.decision.verdict != "abstain" for one in self.evidences(count, seed))


def declared(share: float) -> dict[str, Any]:
    """The members of a series whose share is declared, with no arrival to hold it against."""
    return {
        "allocation": (Epoch(start=0, end=None, share=share),),
        "arrivals": Arrivals(block=NOBODY, treatment=NOBODY, others=NOBODY),
    }


def inflation_if_joined_together(series: Series) -> float:
    """The VIF, were analysis blocks the same in all strata: joined to fifty units of them all."""
    cells = series.target
    block, first, place = np.unique(cells.block, return_index=True, return_inverse=True)
    counts = [
        np.bincount(place, weights=column).astype(np.int64)
        for column in (cells.n1, cells.x1, cells.n0, cells.x0)
    ]
    n1, x1, n0, x0 = counts
    joined = ClosedCells(block=block, stratum=0 * first, n1=n1, x1=x1, n0=n0, x0=x0)
    pooled = replace(series, target=joined, **declared(0.5))
    row = np.searchsorted(analysis_blocks(pooled).ends, cells.block, side="right")
    strata = int(cells.stratum.max()) + 1
    return _information(cells, cells.stratum) / _information(cells, row * strata + cells.stratum)


def _information(cells: ClosedCells, group: Any) -> float:
    n1, n0 = (np.bincount(group, weights=units) for units in (cells.n1, cells.n0))
    return float(np.sum(n1 * n0 / np.maximum(n1 + n0, 1)))
