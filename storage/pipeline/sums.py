"""Sums: the doubles that a cell keeps, from the whole numbers that the text adds up."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from domain.millionths import MILLION
from storage.pipeline.steps import HALF, KINDS


class ArmSums(NamedTuple):
    """The sum of a cell's amounts of an arm, in whole millionths."""

    total: int
    high_squares: int
    products: int
    low_squares: int

    @property
    def y(self) -> float:
        """The double nearest to the sum of the amounts, in the metric's own unit."""
        return self.total / MILLION

    @property
    def yy(self) -> float:
        """The double nearest to the sum of their squares, in the square of that unit."""
        square = self.high_squares * HALF**2 + 2 * self.products * HALF + self.low_squares
        return square / MILLION**2

    @property
    def counts(self) -> tuple[float, ...]:
        """Returns a ratio's Σy, Σy², Σd, Σd² and Σyd: an amount is y·HALF + d."""
        y, d = divmod(self.total, HALF)
        return tuple(map(float, (y, self.high_squares, d, self.low_squares, self.products)))


def stored_cell(row: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the columns of `CELLS` of a cell, from the columns of `COMPUTED_CELLS`.

    The doubles are made here: no engine rounds whole numbers of any size correctly.
    """
    experiment_id, metric, block, stratum, *counts = row
    sums: tuple[float | None, ...] = ()
    if counts[4]:
        treatment, control = (ArmSums(*map(int, counts[at : at + 4])) for at in (5, 9))
        if KINDS[counts[4]] == "picked":
            (*two, four), (*two_of_control, four_of_control) = treatment[:3], control[:3]
            sums = tuple(map(float, (*two, *two_of_control, four, 0, 0, four_of_control, 0, 0)))
        elif KINDS[counts[4]] == "mean":
            sums = (treatment.y, treatment.yy, control.y, control.yy)
        else:
            of_treatment, of_control = treatment.counts, control.counts
            sums = (*of_treatment[:2], *of_control[:2], *of_treatment[2:], *of_control[2:])
    missing = (None,) * (len(CELLS) - 8 - len(sums))
    return (experiment_id, metric, block, stratum, *map(int, counts[:4]), *sums, *missing)


CELLS = (
    *("experiment_id", "metric", "block", "stratum"),
    *("n1", "x1", "n0", "x0", "y1", "yy1", "y0", "yy0"),
    *("d1", "dd1", "yd1", "d0", "dd0", "yd0"),
)
COMPUTED_CELLS = """
r.metric, r.block, r.stratum, r.n1, r.x1, r.n0, r.x0, r.kind,
r.y1, r.hh1, r.hl1, r.ll1, r.y0, r.hh0, r.hl0, r.ll0
"""
