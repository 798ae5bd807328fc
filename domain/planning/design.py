"""A design: a canary before it begins."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Design:
    """A canary before it begins.

    Attributes:
        rate: The share of control's sessions that convert.
        share: The share of sessions that treatment gets.
        changes: How many changes it bundles whose relative lifts add up.
        sample_rate: The share of the sessions that is measured.

    Raises:
        ValueError: A member is outside its range; the message names it and states the rule.
    """

    sessions_per_day: float
    rate: float
    share: float
    changes: int = 1
    sample_rate: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a design that no canary can have."""
        rules = (
            ("sessions_per_day", 0 < self.sessions_per_day < math.inf, "is positive and finite"),
            ("rate", 0 < self.rate < 1, "lies between 0 and 1, both excluded"),
            ("share", 0 < self.share < 1, "lies between 0 and 1, both excluded"),
            ("changes", self.changes >= 1, "is at least 1"),
            ("sample_rate", 0 < self.sample_rate <= 1, "lies above 0 and is at most 1"),
        )
        for name, holds, rule in rules:
            if not holds:
                raise ValueError(f"{name} is {getattr(self, name)}; it {rule}")

    @property
    def measured_per_day(self) -> float:
        """Sessions a day that count."""
        return self.sessions_per_day * self.sample_rate

    def noise(self, lift: float) -> float:
        """The variance of a unit's outcome, over both arms, at an absolute lift."""
        mean = self.rate + self.share * lift
        return mean * (1.0 - mean)

    def sessions(self, weight: float) -> float:
        """Sessions of both arms that make a weight W = N·π(1−π)."""
        return weight / (self.share * (1.0 - self.share))
