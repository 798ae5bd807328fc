"""A proportion: how many of the simulated experiments did something, and what bound that keeps."""

from dataclasses import dataclass

from scipy.stats import beta

SURE = 0.999


def bounds(hits: int, count: int, sure: float = SURE) -> tuple[float, float]:
    """The exact two-sided binomial interval of a share (Clopper & Pearson, Biometrika 1934)."""
    tail = (1 - sure) / 2
    low = float(beta.ppf(tail, hits, count - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, count - hits)) if hits < count else 1.0
    return low, high


@dataclass(frozen=True, kw_only=True)
class Proportion:
    """What was counted in a cell of the calibration.

    Attributes:
        name: What is counted, and under which conditions.
        hits: In how many replications it was so.
        count: Replications.
        at_most: The bound that it must not be above; None where there is none.
        at_least: The bound that it must not be below; None where there is none.
    """

    name: str
    hits: int
    count: int
    at_most: float | None = None
    at_least: float | None = None

    @property
    def share(self) -> float:
        return self.hits / self.count

    @property
    def error(self) -> float:
        """The Monte-Carlo standard error of the share."""
        return (self.share * (1 - self.share) / self.count) ** 0.5

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95 % interval."""
        return bounds(self.hits, self.count, 0.95)

    @property
    def claim(self) -> str:
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return "–" if self.at_least is None else f"≥ {self.at_least:g}"

    @property
    def judgement(self) -> str:
        """Whether the bound holds; `within error` where the simulation can't deny it."""
        low, high = self.interval
        above = 0.0 if self.at_most is None else self.share - self.at_most
        below = 0.0 if self.at_least is None else self.at_least - self.share
        if self.at_most is None and self.at_least is None:
            return "–"
        if max(above, below) <= 0:
            return "holds"
        surely = (low - self.at_most) if self.at_most is not None else (self.at_least or 0) - high
        return "**OUTSIDE**" if surely > 0 else "within error"

    def row(self) -> str:
        """A line of a table of plain text."""
        low, high = self.interval
        return (
            f"{self.name:<58} {self.count:>6} {self.share:>7.4f} ± {self.error:.4f}  "
            f"[{low:.4f}, {high:.4f}]  {self.claim}  {self.judgement}"
        )
