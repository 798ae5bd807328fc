"""Late choices: the best of many that differ by chance alone, registered after a look at them."""

from collections.abc import Callable

import numpy as np

from benchmarks.calibration.scenario import Draw, evaluated, of_one_stratum, units
from benchmarks.calibration.traffic import BLOCKS_A_DAY, Ints
from stats.looks.series import Series

LOOKED, DAYS = 3, 14
ROUTES, SETS = 10, 50
BASE = 0.05

# Rows of n1, x1, n0, x0 over the blocks, one for each that may be chosen.
Choices = Callable[[np.random.Generator], tuple[Ints, Ints, Ints, Ints]]


def metrics(number: int) -> Choices:
    """So many metrics of 24,000 units a day."""

    def draw(rng: np.random.Generator) -> tuple[Ints, Ints, Ints, Ints]:
        treated, others = units(rng, BLOCKS_A_DAY * DAYS, 83, 0.5)
        n1, n0 = np.tile(treated, (number, 1)), np.tile(others, (number, 1))
        return n1, rng.binomial(n1, BASE), n0, rng.binomial(n0, BASE)

    return draw


def sets_of_routes(rng: np.random.Generator) -> tuple[Ints, Ints, Ints, Ints]:
    """Fifty sets of ten routes, each with half of them."""
    arrived = rng.poisson(8.3, (ROUTES, BLOCKS_A_DAY * DAYS))
    n1 = rng.binomial(arrived, 0.5)
    n0 = arrived - n1
    x1, x0 = rng.binomial(n1, BASE), rng.binomial(n0, BASE)
    sets = (np.argsort(rng.random((SETS, ROUTES)), axis=1) < ROUTES // 2).astype(np.int64)
    return sets @ n1, sets @ x1, sets @ n0, sets @ x0


def chosen_late(choices: Choices, *, with_past: bool) -> Draw:
    """The best on the third day, counted from its registration; or as before, from the deploy."""
    seen = LOOKED * BLOCKS_A_DAY

    def draw(rng: np.random.Generator) -> Series:
        counts = choices(rng)
        n1, x1, n0, x0 = (count[:, :seen].sum(axis=1) for count in counts)
        rate = (x1 + x0) / (n1 + n0)
        z = (x1 / n1 - x0 / n0) / np.sqrt(rate * (1 - rate) * (1 / n1 + 1 / n0))
        best, begin = int(np.argmax(z)), 0 if with_past else seen
        n1, x1, n0, x0 = (count[best, begin:] for count in counts)
        return of_one_stratum(n1, x1, n0, x0)

    return draw


def kept_late(choices: Choices, count: int, *, with_past: bool, seed: int) -> int:
    """How many of so many changes without effect are kept on the choice."""
    draw = chosen_late(choices, with_past=with_past)
    return sum(each.decision.verdict == "keep" for each in evaluated(draw, count, seed))
