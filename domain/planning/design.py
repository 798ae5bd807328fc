"""A design: a canary before it begins."""

from dataclasses import dataclass

# Far beyond any canary; outside, a power of what is asked for is no number any more.
LEAST, MOST = 1e-9, 1e12


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
        ranges = {"sessions_per_day": (LEAST, MOST), "sample_rate": (LEAST, 1), "changes": (1, 99)}
        ranges |= dict.fromkeys(("rate", "share"), (LEAST, 1 - LEAST))
        for name, (least, most) in ranges.items():
            if not least <= (value := getattr(self, name)) <= most:
                raise ValueError(f"{name} is {value}; it lies between {least:.9g} and {most:.9g}")

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
