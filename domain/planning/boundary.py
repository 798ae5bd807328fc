"""The boundary that the test's evidence has to reach, as a project sets it."""

import math
from dataclasses import dataclass

from domain.measure import precision_of
from domain.planning.design import LEAST


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """The test of a new experiment, in plain numbers and without arrays.

    Attributes:
        alpha: The level of the test.
        typical_lifts: The relative lifts that the project names, a component of the test each.

    Raises:
        ValueError: A member is outside its range; the message names it and states the rule.
    """

    alpha: float = 0.05
    typical_lifts: tuple[float, ...] = (0.2, 0.5)

    def __post_init__(self) -> None:
        lifts = self.typical_lifts
        fit = 1 <= len(lifts) <= 4 and all(0.01 <= lift <= 2 for lift in lifts)
        rules = (
            ("alpha", LEAST <= self.alpha < 1, f"lies between {LEAST:g} and 1, without 1"),
            ("typical_lifts", fit, "holds 1 to 4 lifts between 0.01 and 2"),
        )
        for name, holds, rule in rules:
            if not holds:
                raise ValueError(f"{name} is {getattr(self, name)}; it {rule}")

    def excess(self, score: float, variance: float) -> float:
        """Logarithm of α·E, for a score that is 0 where it would be negative.

        E is the mean over the components ρ of √(ρ/(ρ+V)) · exp(S²/(2(ρ+V))), as in
        `stats.sequential.mixture`.
        """
        components = [
            0.5 * math.log(rho / (rho + variance)) + 0.5 * max(0.0, score) ** 2 / (rho + variance)
            for rho in map(precision_of, self.typical_lifts)
        ]
        return log_sum(components) - math.log(len(components)) + math.log(self.alpha)


def log_sum(logs: list[float]) -> float:
    """Logarithm of the sum of numbers whose logarithms these are."""
    largest = max(logs)
    return largest + math.log(sum(math.exp(each - largest) for each in logs))
