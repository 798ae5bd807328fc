"""Arrivals: units by who served them first, and the shares that were declared for the arms."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stats.counts.cell import Ints
from stats.counts.columns import BlockColumns

ROUTER_LAG = 3600


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """A time of constant declaration.

    Attributes:
        start: When it began, epoch seconds.
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
) -> Iterator[tuple[float, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]]:
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
class Arrivals(BlockColumns):
    """Units of the eligible routes by who served them first, whatever their arm or stratum.

    Attributes:
        block: Start of the block of a unit's first exposure; strictly ascending.
        treatment: Units first served by the treatment commit.
        others: All other units.
    """

    block: Ints
    treatment: Ints
    others: Ints

    def __post_init__(self) -> None:
        if self.treatment.shape != self.block.shape or self.others.shape != self.block.shape:
            raise ValueError("the columns of arrivals are of the same length")
        if np.any(np.diff(self.block) <= 0):
            raise ValueError("the blocks of arrivals ascend")
