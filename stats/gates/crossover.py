"""Crossover: units that were exposed to both arms without a deploy in between."""

from dataclasses import dataclass

import numpy as np

from stats.counts.cell import Floats, Ints
from stats.counts.columns import BlockColumns

MIN_CROSSINGS = 10
MOST_CROSSED = 0.05


@dataclass(frozen=True, kw_only=True)
class Crossings(BlockColumns):
    """Units that crossed; arrays of equal length, one entry a unit.

    Attributes:
        block: Start of the block of the unit's exposure.
        stratum: Code of its stratum.
        at: When the crossing was received.
    """

    block: Ints
    stratum: Ints
    at: Ints


def crossed_units(counted_from: Ints, at: Ints) -> Ints:
    """Counts the units known to have crossed, at each look.

    Args:
        counted_from: When each crossing begins to count.
        at: The looks.
    """
    return np.searchsorted(np.sort(counted_from), at, side="right")


def is_not_sticky(crossed: Ints, units: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Whether the router cannot be sticky: 10 units crossed, and more than 5 % of all."""
    return (crossed >= MIN_CROSSINGS) & (crossed > MOST_CROSSED * units)


def crossover_share(crossed: Ints, units: Ints) -> Floats:
    """The share of units that crossed; NaN without units."""
    return np.divide(crossed, units, out=np.full(units.size, np.nan), where=units > 0)
