"""After the window: whether outcomes come after it more often in one arm than in the other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from stats.counts.cell import Floats, Ints
from stats.counts.closed_cells import ClosedCells
from stats.counts.timeline import Stream, timeline


@dataclass(frozen=True, kw_only=True)
class LongWindow:
    """The target's outcomes within four times its window.

    Attributes:
        window_seconds: How long they stay open after a block's exposures.
        cells: The closed cells: those of the target, but for what has not closed yet.
    """

    window_seconds: int
    cells: ClosedCells

    def between(self, begin: int, end: int) -> Self:
        """Those of the blocks from one on, up to before another."""
        return replace(self, cells=self.cells.between(begin, end))

    def regrouped(self, stratum: Ints) -> Self:
        """The same units in coarser strata; see `ClosedCells.regrouped`."""
        return replace(self, cells=self.cells.regrouped(stratum))


def missed_outcomes(target: ClosedCells, long: ClosedCells) -> ClosedCells:
    """The outcomes that the target's window misses, out of all within four windows.

    A payment of a user with several sessions may count for another of them in the longer window:
    such a cell has missed none.

    Args:
        target: The target's cells.
        long: Those of the long window, of the same units.

    Returns:
        Cells with n_a = x_a + after_a and x_a = after_a.

    Raises:
        ValueError: The target has not closed where the long window has.
    """
    strata = 1 + max(int(target.stratum.max(initial=0)), int(long.stratum.max(initial=0)))
    known, wanted = target.block * strata + target.stratum, long.block * strata + long.stratum
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known[order], wanted)
    if np.any(place >= known.size) or np.any(known[order[place]] != wanted):
        raise ValueError("the long window has cells that the target does not have")
    x1, x0 = target.x1[order[place]], target.x0[order[place]]
    n1, n0 = np.maximum(long.x1, x1), np.maximum(long.x0, x0)
    return ClosedCells(block=long.block, stratum=long.stratum, n1=n1, x1=n1 - x1, n0=n0, x0=n0 - x0)


@dataclass(frozen=True, kw_only=True)
class AfterWindow:
    """An experiment's outcomes within four windows, and the looks at which they are read.

    Attributes:
        target: The target's cells.
        long: The long window's.
        cell_end: The end of the analysis block of each cell of the long window.
        ends: The ends of analysis blocks.
        grace_seconds: The policy's.
        at: The looks.
    """

    target: ClosedCells
    long: LongWindow
    cell_end: Ints
    ends: Ints
    grace_seconds: int
    at: Ints

    def missed(self) -> Stream:
        """The outcomes that the window misses, out of all of them.

        A look counts the analysis blocks whose four windows and grace have passed.
        """
        closes_after = self.long.window_seconds + self.grace_seconds
        last = self.at[-1] if self.at.size else 0
        closed = int(np.searchsorted(self.ends + closes_after, last, side="right"))
        return Stream(
            cells=missed_outcomes(self.target, self.long.cells),
            cell_end=self.cell_end,
            ends=self.ends[:closed],
            closes_after=closes_after,
        )


def after_window(read: Sequence[AfterWindow]) -> list[tuple[Floats, Floats]]:
    """Score and variance at each look of each experiment: missed outcomes, out of all of them."""
    if not read:
        return []
    line = timeline([each.missed() for each in read])
    sums: list[tuple[Floats, Floats]] = []
    for number, each in enumerate(read):
        rows = line.rows(number)
        closed = np.searchsorted(line.at[rows], each.at, side="right")
        totals = line.totals.gathered(np.where(closed > 0, rows.start + closed - 1, -1))
        sums.append((totals.S, totals.V0))
    return sums
