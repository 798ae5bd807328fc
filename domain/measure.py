"""A measure: formats the differences of an experiment's target metric."""

import math
from dataclasses import dataclass
from typing import Self

from domain.currency import minor_unit_digits
from domain.evidence.document import Evidence
from domain.evidence.policy import EvidencePolicy
from domain.figures import rough_percent
from domain.metric import FrozenMetric


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A metric as people read it.

    Attributes:
        mean: Whether it is an amount, as a mean or a ratio of 1 and more, rather than a share.
        currency: Of a mean that is money, which is counted in minor units.
        control: Control's rate, mean or ratio; None while there is none.
    """

    name: str
    mean: bool
    currency: str | None
    unit: str
    control: float | None
    over: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, definition: FrozenMetric | None, *, name: str, unit: str, control: float | None
    ) -> Self:
        """Returns the measure of a metric; of `arrival` no policy has a definition."""
        over = () if definition is None else definition.per or ()
        is_amount = (
            (control or 0) >= 1 if over else definition is not None and definition.kind == "mean"
        )
        currency = None if definition is None else definition.currency
        return cls(
            name=name, mean=is_amount, currency=currency, unit=unit, control=control, over=over
        )

    @property
    def word(self) -> str:
        """The word for the level of an arm."""
        return "ratio" if self.over else "mean" if self.mean else "rate"

    @property
    def scale(self) -> float:
        """The factor that turns a stored difference into points or into a currency's major unit."""
        if not self.mean:
            return 100.0
        return 1.0 if self.currency is None else 10.0 ** -minor_unit_digits(self.currency)

    @property
    def per(self) -> str:
        """The unit of a written difference."""
        if not self.mean:
            return "points"
        noun = " or ".join(self.over) or self.unit
        return f"{self.currency} per {noun}" if self.currency else f"per {noun}"

    def difference(self, value: float) -> str:
        """Returns a difference with its sign and unit."""
        return f"{self._written(value, '+')} {self.per}"

    def size(self, value: float) -> str:
        """Returns how large a difference is, with its unit."""
        return f"{self._written(abs(value))} {self.per}"

    def short(self, value: float) -> str:
        """Returns a difference for places that show a mean's unit beside it."""
        return self._written(value, "+") if self.mean else self.difference(value)

    def interval(self, low: float, high: float) -> str:
        """Returns an interval of differences, for places that show a mean's unit beside it."""
        return f"{self._written(low, '+')} to {self.short(high)}"

    def possible(self, value: float) -> float:
        """Returns a difference within its possible range: a rate cannot fall below zero."""
        return value if self.mean or self.control is None else max(value, -self.control)

    def relative(self, value: float) -> str:
        """Returns a difference in percent of control; empty while control is nothing."""
        if not self.control:
            return ""
        return rough_percent(100 * value / abs(self.control))

    def level(self, value: float | None) -> str:
        """Returns an arm's rate or mean; empty while there is none."""
        if value is None:
            return ""
        return self._written(value) if self.mean else f"{100 * value:.2f} %"

    def _written(self, value: float, sign: str = "") -> str:
        scaled = value * self.scale
        if scaled == 0:
            # No difference has no direction; minus zero is an end at control's own zero.
            scaled, sign = 0.0, ""
        if not self.mean:
            # An end that misses zero by less than a hundredth of a point is no zero.
            return f"{scaled:{sign}.1g}" if 0 < abs(scaled) < 0.005 else f"{scaled:{sign}.2f}"
        return f"{scaled:{sign},.0f}" if abs(scaled) >= 1000 else f"{scaled:{sign}.4g}"


def typical_lift(precision: float) -> str:
    """Returns the lift that a component of the test expects, in percent: 20 % for 25.

    Args:
        precision: Of the component, 1/lift².
    """
    return f"{100 / math.sqrt(precision):.3g} %"


def precision_of(lift: float) -> float:
    """Returns the precision of the test's component for a lift (docs/statistics.md, 'The test').

    It is 1/lift², in as many digits as the lift is written with: 25 for 0.2.
    """
    return round(1 / lift**2, 9)


def too_small(futility_margin: float) -> str:
    """Returns the largest difference that a project treats as none."""
    return f"smaller than the {100 * futility_margin:g} % that this project set"


def measure_of(evidence: Evidence) -> Measure:
    """Returns the measure of an evidence document's target."""
    return measure_of_policy(evidence.policy, control=evidence.arms.control.level)


def measure_of_policy(policy: EvidencePolicy, *, control: float | None) -> Measure:
    """Returns the measure of a policy's target."""
    target = policy.target
    return Measure.of(target, name=target.name, unit=policy.unit, control=control)


def excludes_loss(evidence: Evidence | None, share: float) -> bool:
    """Tells whether a loss beyond a share of control's level is excluded, on its worse side.

    Args:
        evidence: The evidence document; None before any look.
        share: The accepted loss, as a share of control's rate or mean.
    """
    known = None if evidence is None else evidence.known.not_worse_than
    if evidence is None or known is None:
        return False
    return (-known if evidence.policy.target.better == "higher" else known) <= share
