"""A measure: how the differences of an experiment's target metric are written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
        money = f"minor units of {self.currency} " if self.currency else ""
        return f"{money}per {self.unit}"

    def difference(self, value: float) -> str:
        """Returns a difference with its sign and unit."""
        return f"{value:+.4g} per {self.unit}" if self.mean else f"{100 * value:+.2f} points"

    def short(self, value: float) -> str:
        """Returns a difference for where its unit stands close by."""
        return f"{value:+.4g}" if self.mean else self.difference(value)

    def interval(self, low: float, high: float) -> str:
        """Returns an interval of differences, points told once, for where a mean's unit is."""
        if self.mean:
            return f"{low:+.4g} to {high:+.4g}"
        return f"{100 * low:+.2f} to {100 * high:+.2f} points"

    def possible(self, value: float) -> float:
        """Returns a difference: a rate loses no more than all of it, whatever is left open."""
        return value if self.mean or self.control is None else max(value, -self.control)

    def relative(self, value: float) -> str:
        """Returns a difference in percent of control; empty while control is nothing."""
        if not self.control:
            return ""
        percent = 100 * value / abs(self.control)
        return f"{percent:+.1f} %" if abs(percent) < 10 else f"{percent:+.0f} %"

    def level(self, value: float | None) -> str:
        """Returns an arm's rate or mean; empty while there is none."""
        if value is None:
            return ""
        return f"{value:.4g}" if self.mean else f"{100 * value:.2f} %"


def measure_of(document: Mapping[str, Any]) -> Measure:
    """Returns the measure of an evidence document's target."""
    policy = document["policy"]
    return measure_of_policy(policy, control=level_of(document["arms"]["control"]))


def measure_of_policy(policy: Mapping[str, Any], *, control: float | None) -> Measure:
    """Returns the measure of a policy's target."""
    target = policy["target"]
    return Measure(
        name=target["name"],
        mean=target.get("kind") == "mean",
        currency=target.get("currency"),
        unit=policy["unit"],
        control=control,
    )


def level_of(arm: Mapping[str, Any]) -> float | None:
    """Returns the rate of an evidence document's arm, or its mean where it has one."""
    return arm.get("mean", arm["rate"])
