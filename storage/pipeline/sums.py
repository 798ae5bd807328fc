"""Sums: the doubles that a cell keeps of a mean, from the whole numbers that the text adds up."""

from typing import NamedTuple

from domain.millionths import MILLION
from storage.pipeline.steps import HALF


class ArmSums(NamedTuple):
    """The sum of a cell's amounts of one arm, in whole millionths.

    Attributes:
        total: Of the amounts.
        high_squares: Of the squares of their high halves.
        products: Of the products of both halves.
        low_squares: Of the squares of their low halves.
    """

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
