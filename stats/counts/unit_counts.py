"""Unit counts: units by the block of their exposure and by what gates ask of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from domain.policy import Numbers
from stats.counts.cell import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class UnitCounts:
    """Units by the block of their exposure, or of what they did later: an array a name.

    Attributes:
        block: Start of the block, ascending.
        columns: An entry a block each; a gate says which it reads.
    """

    block: Ints
    columns: Mapping[str, Ints]

    def sums(
        self, *names: str, at: Ints, policy: Numbers, inside: Sequence[bool] | None = None
    ) -> Floats:
        """The sums of columns over the blocks that are closed at each look, a row a name.

        Args:
            inside: Whether each block counts; None for all.
        """
        closes = self.block + policy.block_seconds + policy.grace_seconds
        counts = np.stack([self.columns[name] for name in names]).astype(np.float64)
        if inside is not None:
            counts = np.where(inside, counts, 0.0)
        sums = np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0)))
        return sums[:, np.searchsorted(closes, at, side="right")]

    def between(self, begin: int, end: int) -> Self:
        """The blocks from a given block on, up to before another."""
        inside = (self.block >= begin) & (self.block < end)
        columns = {name: column[inside] for name, column in self.columns.items()}
        return type(self)(block=self.block[inside], columns=columns)
