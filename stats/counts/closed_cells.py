"""Closed cells: a metric's stored counts and sums, by block and stratum."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stats.counts.cell import ArmCounts, Floats, Ints
from stats.counts.columns import Columns


@dataclass(frozen=True, kw_only=True)
class Values(Columns):
    """Sums y and sums of squares yy of a continuous metric's capped values, of each arm in a cell.

    A unit without the event counts as zero.
    """

    kind = "mean"

    y1: Floats
    yy1: Floats
    y0: Floats
    yy0: Floats

    def summed(self, order: NDArray[np.intp], begins: NDArray[np.intp]) -> Self:
        """The sums of groups of cells: of cells in an order, where each group begins."""
        parts = {name: np.add.reduceat(sums[order], begins) for name, sums in vars(self).items()}
        return type(self)(**parts)


@dataclass(frozen=True, kw_only=True)
class Pairs(Values):
    """Sums of a ratio's two counts of a unit, y over d: Σd, Σd² and Σyd of each arm too."""

    kind = "ratio"

    d1: Floats
    dd1: Floats
    yd1: Floats
    d0: Floats
    dd0: Floats
    yd0: Floats


@dataclass(frozen=True, kw_only=True)
class Adjusted(Pairs):
    """Sums of a mean's values y and of their users' histories d; h counts users with a history."""

    kind = "adjusted"

    h1: Floats
    h0: Floats


@dataclass(frozen=True, kw_only=True)
class ClosedCells(ArmCounts, Columns):
    """The closed cells of a metric; arrays of equal length, an entry a cell.

    Attributes:
        block: Start of the block, seconds since the Unix epoch; ascending.
        stratum: Code of the stratum, not negative; (block, stratum) is unique.
        values: Of a continuous metric; None where the metric is a conversion.

    Raises:
        ValueError: The arrays contradict each other; the message states the rule.
    """

    block: Ints
    stratum: Ints
    values: Values | None = None

    def __post_init__(self) -> None:
        counts = (self.stratum, self.n1, self.x1, self.n0, self.x0)
        values = self.values
        sums = () if values is None else tuple(vars(values).values())
        columns = (*counts, *sums)
        if any(column.shape != self.block.shape or column.ndim != 1 for column in columns):
            shapes = [column.shape for column in (self.block, *columns)]
            raise ValueError(f"the columns have shapes {shapes}, but must have the same length")
        if not self.block.size:
            return
        if _repeats(self.block, self.stratum):
            raise ValueError("blocks must ascend, and a stratum may occur once in a block")
        if min(column.min() for column in (self.stratum, self.x1, self.x0)) < 0:
            raise ValueError("codes of strata and counts are not negative")
        if (self.n1 - self.x1).min() < 0 or (self.n0 - self.x0).min() < 0:
            raise ValueError("an arm has no more conversions than units")
        if not all(np.all(np.isfinite(column)) for column in sums):
            raise ValueError("the values of a continuous metric are finite")

    def between(self, first: int, stop: int) -> Self:
        """The cells of the blocks from a given block on, up to before another."""
        begin, end = np.searchsorted(self.block, (first, stop)).tolist()
        return self[begin:end]

    def regrouped(self, stratum: Ints) -> Self:
        """The same units, regrouped by a code for each old code; negative codes leave units out."""
        if stratum.tolist() == [0]:
            return self
        code = stratum[self.stratum]
        kept = np.flatnonzero(code >= 0)
        order = kept[np.lexsort((code[kept], self.block[kept]))]
        block, code = self.block[order], code[order]
        first = np.ones(order.size, dtype=np.bool_)
        first[1:] = (np.diff(block) != 0) | (np.diff(code) != 0)
        begins = np.flatnonzero(first)
        values = self.values
        return type(self)(
            block=block[begins],
            stratum=code[begins],
            n1=np.add.reduceat(self.n1[order], begins),
            x1=np.add.reduceat(self.x1[order], begins),
            n0=np.add.reduceat(self.n0[order], begins),
            x0=np.add.reduceat(self.x0[order], begins),
            values=None if values is None else values.summed(order, begins),
        )

    def with_conversions_of(self, parts: Iterable[Self]) -> Self:
        """The same units with the conversions of others, whose cells are among these."""
        x1, x0, size = np.zeros_like(self.x1), np.zeros_like(self.x0), self.stratum.max(initial=0)
        places = self.block * (size + 1) + self.stratum
        order = np.argsort(places, kind="stable")
        for part in parts:
            own = part.block * (size + 1) + part.stratum
            rows = order[np.searchsorted(places, own, sorter=order)]
            x1[rows] += part.x1
            x0[rows] += part.x0
        return replace(self, x1=x1, x0=x0)

    @property
    def levels(self) -> Mapping[str, Floats | Ints]:
        """The numerator y and denominator d of the level of each arm."""
        values, n = self.values, {"d1": self.n1, "d0": self.n0}
        if values is None:
            return {"y1": self.x1, "y0": self.x0, **n}
        over = n
        if isinstance(values, Pairs) and values.kind == "ratio":
            over = {"d1": values.d1, "d0": values.d0}
        return {"y1": values.y1, "y0": values.y0, **over}

    @property
    def kind(self) -> str:
        """`mean`, `adjusted` or `ratio` for a continuous metric, else `conversion`."""
        return "conversion" if self.values is None else self.values.kind


def _repeats(block: Ints, stratum: Ints) -> bool:
    """Whether blocks do not ascend, or a stratum occurs again in a block."""
    least = (block[1:] - block[:-1]).min(initial=1)
    if least > 0:
        return False
    if least < 0:
        return True
    order = np.lexsort((stratum, block))
    same_block = np.diff(block[order]) == 0
    same_stratum = np.diff(stratum[order]) == 0
    return bool(np.any(same_block & same_stratum))
