"""Arrivals: units by who served them first, and the shares that were declared for the arms."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stats.counts.cell import Floats, Ints
from stats.counts.columns import BlockColumns, Columns

ROUTER_LAG = 3600
ONE_NAMED_IN = 20

Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """A time of constant declaration, epoch seconds.

    Attributes:
        end: When the next epoch began; None for the last.
        share: The declared share of the treatment commit; None where none is declared.
    """

    start: int
    end: int | None
    share: float | None

    def __post_init__(self) -> None:
        if self.share is not None and not 0 <= self.share <= 1:
            raise ValueError(f"share is {self.share!r}, but it lies in [0, 1] or is null")
        if self.end is not None and self.end < self.start:
            raise ValueError(f"end is {self.end}, but an epoch that starts at {self.start} is over")


def counted_blocks(
    allocation: Sequence[Epoch], block: Ints, *, block_seconds: int
) -> Iterator[tuple[float, Flags]]:
    """Yields each share inside (0, 1), with the blocks whose units were drawn at it.

    Of every later epoch the first 60 minutes are left out, since routers lag, and so are blocks
    that reach over the end of an epoch.
    """
    for number, epoch in enumerate(allocation):
        if epoch.share is None or not 0 < epoch.share < 1:
            continue
        inside = block + block_seconds <= (math.inf if epoch.end is None else epoch.end)
        if number:
            inside &= block >= epoch.start + ROUTER_LAG
        else:
            inside &= block + block_seconds > epoch.start
        yield epoch.share, inside


@dataclass(frozen=True, kw_only=True)
class UnknownBuilds(Columns):
    """Units with an event that names no build, by the name of their first; arrays (blocks, names).

    Attributes:
        units: The units by the block of that event; 0 of unrecorded commits, which always count.
        named: The units of a known build whose first event has this name.
        treatment: By how much treatment's arrivals change where such an event is an arrival.
    """

    units: Ints
    named: Ints
    treatment: Ints
    others: Ints


@dataclass(frozen=True, kw_only=True)
class Arrivals(BlockColumns):
    """Units of the eligible routes by who served them first, whatever their arm or stratum.

    Attributes:
        block: Start of the block of a unit's first exposure; strictly ascending.
        nameless: What events of an unknown build would add; None where there is none.
    """

    block: Ints
    treatment: Ints
    others: Ints
    nameless: UnknownBuilds | None = None

    def __post_init__(self) -> None:
        if self.treatment.shape != self.block.shape or self.others.shape != self.block.shape:
            raise ValueError("the columns of arrivals are of the same length")
        if np.any(np.diff(self.block) <= 0):
            raise ValueError("the blocks of arrivals ascend")

    def counted(self, inside: Flags, counting: Flags) -> tuple[Floats, Floats]:
        """Treatment's arrivals and those of others in some blocks; entry i is of the first i.

        Args:
            counting: As `counting_names` returns it.
        """
        treatment, others = summed(np.where(inside, np.stack((self.treatment, self.others)), 0).T).T
        if self.nameless is not None:
            moved = np.stack((self.nameless.treatment, self.nameless.others))
            added = [summed(np.where(inside[:, None], own, 0)) * counting for own in moved]
            treatment, others = treatment + added[0].sum(axis=1), others + added[1].sum(axis=1)
        return treatment.astype(np.float64), others.astype(np.float64)

    def counting_names(self, allocation: Sequence[Epoch], *, block_seconds: int) -> Flags:
        """Returns which event names count as arrivals without a build: array (blocks + 1, names).

        Entry i is of the first i blocks. They are at an unnamed build where, of the units whose
        first event has the name, at least 1 in 20 name a build, or half of the smallest share that
        was declared by then; and where else nobody arrives beside treatment's units: then it is
        the base that names none.
        """
        if self.nameless is None:
            return np.ones((self.block.size + 1, 0), dtype=np.bool_)
        named, of = summed(self.nameless.named), summed(self.nameless.named + self.nameless.units)
        smallest = np.full(self.block.size + 1, 1.0)
        for epoch in allocation:
            if epoch.share is not None and 0 < epoch.share < 1:
                known = np.append(False, epoch.start < self.block + block_seconds)
                smallest[known] = np.minimum(smallest[known], epoch.share)
        counting = (ONE_NAMED_IN * named >= of) | (2 * named >= smallest[:, None] * of)
        others = summed(self.others) + (summed(self.nameless.others) * counting).sum(axis=1)
        return counting | ((others == 0) & (summed(self.treatment) > 0))[:, None]


def summed(counts: Ints) -> Ints:
    """Counts of the first i blocks, an entry more than there are blocks."""
    return np.pad(np.cumsum(counts, axis=0), [(1, 0)] + [(0, 0)] * (counts.ndim - 1))
