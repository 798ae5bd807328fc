"""A measure: how the differences of an experiment's target metric are written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.dashboard.figures import signs


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A metric as people read it.

    Attributes:
        name: Of the metric.
        mean: Whether it is what a unit brings, rather than the share of units that convert.
        currency: Of a mean that is money, which is counted in minor units.
        unit: What is randomized.
        control: Control's rate or mean; None while there is none.
    """

    name: str
    mean: bool
    currency: str | None
    unit: str
    control: float | None

    @property
    def scale(self) -> float:
        """What a difference is multiplied by to be written: rates are told in points."""
        return 1.0 if self.mean else 100.0

    @property
    def per(self) -> str:
        """What a difference is counted in."""
        if not self.mean:
            return "points"
        return f"minor units of {self.currency} per {self.unit}" if self.currency else self.per_unit

    @property
    def per_unit(self) -> str:
        """What a mean is over."""
        return f"per {self.unit}"

    def difference(self, value: float) -> str:
        """Returns a difference with its sign and unit."""
        return signs(f"{value:+.4g} per {self.unit}" if self.mean else f"{100 * value:+.2f} points")

    def interval(self, low: float, high: float) -> str:
        """Returns an interval of differences, the unit told once."""
        if self.mean:
            return signs(f"{low:+.4g} to {high:+.4g} per {self.unit}")
        return signs(f"{100 * low:+.2f} to {100 * high:+.2f} points")

    def relative(self, value: float) -> str:
        """Returns a difference in percent of control; empty while control is nothing."""
        if not self.control:
            return ""
        percent = 100 * value / abs(self.control)
        if not self.mean:
            # A rate loses no more than all of itself, whatever an interval leaves open.
            percent = max(percent, -100.0)
        return signs(f"{percent:+.1f} %" if abs(percent) < 10 else f"{percent:+.0f} %")

    def level(self, value: float | None) -> str:
        """Returns an arm's rate or mean; a dash while there is none."""
        if value is None:
            return "–"
        return signs(f"{value:.4g}" if self.mean else f"{100 * value:.2f} %")


def measure_of(document: Mapping[str, Any]) -> Measure:
    """Returns the measure of an evidence document's target."""
    target = document["policy"]["target"]
    return Measure(
        name=target["name"],
        mean=target.get("kind") == "mean",
        currency=target.get("currency"),
        unit=document["policy"]["unit"],
        control=level_of(document["arms"]["control"]),
    )


def level_of(arm: Mapping[str, Any]) -> float | None:
    """Returns the rate of an evidence document's arm, or its mean where it has one."""
    return arm.get("mean", arm["rate"])
