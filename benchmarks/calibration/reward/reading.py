"""What a served number says of the true effects."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from stats.counts.cell import Floats


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a served number says of the true effects of those changes that have it.

    Attributes:
        count: How many have it.
        slope: Of the regression of the truth on it; 1 where a unit more of it is a unit more of
            truth, on average.
        error: Standard error of the slope.
        bias: Its mean deviation from the truth, in relative effects.
        rmse: The root of the mean square of the deviations.
    """

    count: int
    slope: float
    error: float
    bias: float
    rmse: float

    @classmethod
    def of(cls, numbers: Iterable[tuple[float | None, float]]) -> Self:
        """The reading of numbers, each with its truth; those that are None are left out."""
        x, truth = np.array([pair for pair in numbers if pair[0] is not None], dtype=float).T
        off = x - truth
        if x.size < 3 or x.std() == 0 or truth.std() == 0:
            return cls(count=x.size, slope=np.nan, error=np.nan, **_deviations(off))
        slope, level = np.polyfit(x, truth, 1)
        rest = truth - slope * x - level
        error = np.sqrt(rest @ rest / (x.size - 2)) / (x.std() * np.sqrt(x.size))
        return cls(count=x.size, slope=float(slope), error=float(error), **_deviations(off))

    def row(self, name: str) -> str:
        """A row of a table of plain text."""
        slope = "–" if np.isnan(self.slope) else f"{self.slope:.3f} ± {self.error:.3f}"
        return (
            f"| {name} | {self.count} | {slope}"
            f" | {100 * self.bias:+.2f} % | {100 * self.rmse:.2f} % |"
        )

    def cell(self) -> str:
        """Slope and root mean square error, as a table of the page shows them."""
        slope = "–" if np.isnan(self.slope) else f"{self.slope:.3f} ± {self.error:.3f}"
        return f"{slope}, {100 * self.rmse:.1f} %"


def _deviations(off: Floats) -> dict[str, float]:
    return {"bias": float(off.mean()), "rmse": float(np.sqrt((off**2).mean()))}
