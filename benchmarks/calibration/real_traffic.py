"""Real traffic of one page, split at random into two arms between which nothing differs."""

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.calibration.traffic import AT_ONCE, BLOCK, DELAY, Ints
from domain.policy import Numbers
from stats.counts.closed_cells import ClosedCells
from stats.looks.series import Series

# It stands beside the checkout, not in it.
DATA = Path(__file__).parents[3] / "shared" / "data" / "ab_data.csv.gz"
VISITORS = 145_274
# A day, and its first look.
LOOKS = 289


def conversions() -> Ints:
    """Whether each visitor of the old landing page converted, in the order of their visits."""
    with gzip.open(DATA, "rt", newline="") as file:
        rows = [
            (row["timestamp"], int(row["converted"]))
            for row in csv.DictReader(file)
            if (row["group"], row["landing_page"]) == ("control", "old_page")
        ]
    assert len(rows) == VISITORS
    return np.array([converted for _, converted in sorted(rows)], dtype=np.int64)


def splits(visitors: Ints, count: int, seed: int) -> Iterator[list[Series]]:
    """The same visitors as a day's traffic, a half of them drawn anew each time as treated."""
    generator = np.random.default_rng(seed)
    for begin in range(0, count, AT_ONCE):
        yield [
            split(visitors, generator.integers(0, 2, visitors.size))
            for _ in range(min(AT_ONCE, count - begin))
        ]


def split(visitors: Ints, treated: Ints) -> Series:
    first = np.arange(LOOKS) * visitors.size // LOOKS
    units, conversions, n1, x1 = (
        np.add.reduceat(each, first)
        for each in (np.ones_like(visitors), visitors, treated, treated * visitors)
    )
    return Series(
        policy=Numbers(),
        start=0,
        as_of=LOOKS * BLOCK + DELAY,
        closed_at=None,
        cuts=(),
        target=ClosedCells(
            block=np.arange(LOOKS, dtype=np.int64) * BLOCK,
            stratum=np.zeros(LOOKS, dtype=np.int64),
            n1=n1,
            x1=x1,
            n0=units - n1,
            x0=conversions - x1,
        ),
    )
