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
            truth, on average. NaN, like all others, where too few have it.
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
        pairs = [pair for pair in numbers if pair[0] is not None]
        x, truth = np.array(pairs, dtype=float).reshape(-1, 2).T
        off = x - truth
        if x.size < 3 or x.std() == 0 or truth.std() == 0:
            return cls(count=x.size, slope=np.nan, error=np.nan, **_deviations(off))
        slope, level = np.polyfit(x, truth, 1)
        rest = truth - slope * x - level
        error = np.sqrt(rest @ rest / (x.size - 2)) / (x.std() * np.sqrt(x.size))
        return cls(count=x.size, slope=float(slope), error=float(error), **_deviations(off))

    def row(self, name: str) -> str:
        """A row of a table of plain text."""
        slope, bias = known(self.slope, f"{self.slope:.3f} ± {self.error:.3f}"), 100 * self.bias
        off = f"{known(bias, f'{bias:+.2f} %')} | {known(bias, f'{100 * self.rmse:.2f} %')}"
        return f"| {name} | {self.count} | {slope} | {off} |"

    def cell(self) -> str:
        """Slope and root mean square error, as a table of the page shows them."""
        slope = known(self.slope, f"{self.slope:.3f} ± {self.error:.3f}")
        return f"{slope}, {known(self.rmse, f'{100 * self.rmse:.1f} %')}"


def known(number: float, text: str) -> str:
    """Returns the text of a number, or a dash where there is none: of too few."""
    return "–" if np.isnan(number) else text


def _deviations(off: Floats) -> dict[str, float]:
    if not off.size:
        return {"bias": np.nan, "rmse": np.nan}
    return {"bias": float(off.mean()), "rmse": float(np.sqrt((off**2).mean()))}
