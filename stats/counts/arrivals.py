"""Arrivals: units by who served them first, and the shares that were declared for the arms."""

from dataclasses import dataclass

import numpy as np

from stats.counts.cell import Ints
from stats.counts.columns import BlockColumns


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
            raise ValueError("the columns of arrivals are of one length")
        if np.any(np.diff(self.block) <= 0):
            raise ValueError("the blocks of arrivals ascend")
