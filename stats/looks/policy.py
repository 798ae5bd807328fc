"""The policy: the frozen numbers that a verdict depends on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta

from domain.evidence.policy import EFFECT_PRIOR

HOUR = 3600
DAY = 86_400
Seconds = Annotated[int, Meta(ge=0)]
Precision = Annotated[float, Meta(gt=0)]
Evidence = Annotated[float, Meta(gt=1)]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The numbers that are frozen when an experiment binds to its deploy.

    Attributes:
        alpha: The project's level of the test, in (0, 1).
        attempt: 1 for the first experiment of a project on this change and metric, 2 for the next.
        rho_day: Mixture precision of the day cadence, 1 / (relative lift to close)².
        better: The direction of the metric that is an improvement, `higher` or `lower`.
        window_seconds: Attribution window of the target metric, a whole multiple of a block; with
            what its own grace exceeds the policy's by.
        block_min_units: Units at which an analysis block ends while treatment's share is declared.
        undeclared_min_units: The same where it is not declared.
        futility_margin: The lift, relative to control's rate, inside which a change makes no
            difference; None where that ends nothing.
        sample_rate: The share of all units that are measured, in (0, 1].
        split_at: The evidence that the arms carry the values of another flag unequally from which
            on the strata are split by it.
        fading_at: The evidence that the effect differs between the halves of the experiment from
            which on the verdict carries a warning.
        effect_prior: Standard deviations of the log-odds lift around 0, each with its weight.
        after_window_at: The evidence that outcomes come after the window more often in an arm
            from which on that arm's lower rate is no answer.
    """

    alpha: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    attempt: Annotated[int, Meta(ge=1)] = 1
    rho_day: Precision = 25.0
    rho_fast: Precision = 4.0
    rho_between: tuple[Precision, ...] = ()
    better: Literal["higher", "lower"] = "higher"
    window_seconds: Seconds = 1800
    grace_seconds: Seconds = 120
    block_seconds: Annotated[int, Meta(ge=1)] = 300
    block_min_units: Annotated[int, Meta(ge=1)] = 50
    undeclared_min_units: Annotated[int, Meta(ge=1)] = 20
    horizon_seconds: Annotated[int, Meta(ge=1)] = 28 * DAY
    contrast_seconds: Annotated[int, Meta(ge=1)] = DAY
    vif_limit: Annotated[float, Meta(ge=1)] = 10.0
    futility_margin: Annotated[float, Meta(gt=0)] | None = None
    guardrail_alpha: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    value_per_conversion: float | None = None
    sample_rate: Annotated[float, Meta(gt=0, le=1)] = 1.0
    split_at: Evidence = 2.0
    fading_at: Evidence = 100.0
    after_window_at: Evidence = 100.0
    effect_prior: tuple[tuple[float, float], ...] = EFFECT_PRIOR
    reward_seconds: Seconds = 7 * DAY

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Self:
        """The policy in a frozen policy document; members of other readers are ignored.

        Args:
            document: The parsed JSON; keys are named like the members of this class.

        Raises:
            msgspec.ValidationError: A member is of another type, or outside its range.
        """
        return msgspec.convert(document, cls)

    @property
    def level(self) -> float:
        """The level that this attempt tests at, α/j²: registering again is no lucky draw."""
        return self.alpha / self.attempt**2

    @property
    def closes_after(self) -> int:
        """How long after its end a block of the target closes, in seconds."""
        return self.window_seconds + self.grace_seconds

    @property
    def rho(self) -> tuple[float, ...]:
        """The precisions of the mixture's components: day, fast, and those between."""
        return (self.rho_day, self.rho_fast, *self.rho_between)

    @property
    def log_threshold(self) -> float:
        """The logarithm of 1/level: where the e-process crosses."""
        return -math.log(self.level)
