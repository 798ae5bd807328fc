"""A series: the closed cells of one experiment in time, as the store holds them."""

from dataclasses import dataclass

import numpy as np

from stats.cell import Ints
from stats.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Series:
    """One experiment's closed target cells; arrays of equal length, one entry a cell.

    Times are whole seconds since the Unix epoch. Cells that close after `as_of` may be given:
    they don't enter.

    Attributes:
        policy: The numbers frozen at binding.
        start: When exposure began.
        as_of: How far the log was read.
        closed_at: When the experiment was closed by hand, if it was.
        cuts: Times that begin a new analysis block at the block that contains them.
        block: Start of the block; ascending.
        stratum: Code of the stratum, not negative; (block, stratum) is unique.
        n1: Units of treatment.
        x1: Conversions of treatment.
        n0: Units of control.
        x0: Conversions of control.

    Raises:
        ValueError: The arrays contradict one another; the message states the rule.
    """

    policy: Policy
    start: int
    as_of: int
    closed_at: int | None
    cuts: tuple[int, ...]
    block: Ints
    stratum: Ints
    n1: Ints
    x1: Ints
    n0: Ints
    x0: Ints

    def __post_init__(self) -> None:
        columns = (self.stratum, self.n1, self.x1, self.n0, self.x0)
        if any(column.shape != self.block.shape or column.ndim != 1 for column in columns):
            shapes = [column.shape for column in (self.block, *columns)]
            raise ValueError(f"the columns have shapes {shapes}, but they are of one length")
        if not self.block.size:
            return
        if self.block[0] < self.begin or np.any(self.block % self.policy.block_seconds):
            raise ValueError(
                f"a block begins at {self.block[0]}, but blocks begin at multiples of "
                f"{self.policy.block_seconds} seconds from {self.begin} on"
            )
        step = np.diff(self.block)
        if np.any(step < 0) or _repeats(self.block, self.stratum, step):
            raise ValueError("blocks ascend, and a stratum stands once in a block")
        if np.any(np.minimum(self.stratum, np.minimum(self.x1, self.x0)) < 0):
            raise ValueError("codes of strata and counts are not negative")
        if np.any(self.x1 > self.n1) or np.any(self.x0 > self.n0):
            raise ValueError("an arm has no more conversions than units")

    @property
    def begin(self) -> int:
        """The start of the block that contains the start: where the first analysis block begins."""
        return self.start - self.start % self.policy.block_seconds

    @property
    def horizon_end(self) -> int:
        """The end of the last block that lies within the horizon."""
        end = self.start + self.policy.horizon_seconds
        return end - end % self.policy.block_seconds


def _repeats(block: Ints, stratum: Ints, step: Ints) -> bool:
    if np.all(step > 0):
        return False
    order = np.lexsort((stratum, block))
    same_block = np.diff(block[order]) == 0
    same_stratum = np.diff(stratum[order]) == 0
    return bool(np.any(same_block & same_stratum))
