"""The policy: the frozen numbers that a verdict depends on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

HOUR = 3600
DAY = 86_400


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The numbers that are frozen when an experiment binds to its deploy.

    Attributes:
        alpha: The project's level of the test, in (0, 1).
        attempt: 1 for the first experiment of a project on this change and metric, 2 for the next.
        rho_day: Mixture precision of the day cadence, 1 / (relative lift to close)².
        rho_fast: Mixture precision of the fast cadence.
        rho_between: Mixture precisions of the typical lifts between those two.
        better: The direction of the metric that is an improvement, `higher` or `lower`.
        window_seconds: Attribution window of the target metric, a whole multiple of a block; with
            what its own grace exceeds the policy's by.
        grace_seconds: How long a block waits for late events after its last window has run out.
        block_seconds: Length of a block; a whole number of them makes a day.
        block_min_units: Units at which an analysis block ends while treatment's share is declared.
        undeclared_min_units: The same where it is not declared.
        horizon_seconds: Exposure time after which an experiment is decided in any case.
        contrast_seconds: Time without a comparable unit after which it is closed.
        vif_limit: Variance inflation above which the design counts as aliased.
        futility_margin: The lift, relative to control's rate, inside which a change makes no
            difference; None where that ends nothing.
        guardrail_alpha: The level of all guardrails together, apart from the target's.
        value_per_conversion: Dollars that one conversion is worth, where configured.
        sample_rate: The share of all units that are measured, in (0, 1].
        split_at: The evidence that the arms carry the values of another flag unequally from which
            on the strata are split by it; None where strata stand as the store holds them.
        fading_at: The evidence that the effect differs between the halves of the experiment from
            which on the verdict carries a warning; None where that is not asked.
        after_window_at: The evidence that outcomes come after the window more often in one arm
            from which on that arm's lower rate is no answer.

    Raises:
        ValueError: A member is outside its range; the message states the value and the rule.
    """

    alpha: float = 0.05
    attempt: int = 1
    rho_day: float = 25.0
    rho_fast: float = 4.0
    rho_between: tuple[float, ...] = ()
    better: str = "higher"
    window_seconds: int = 1800
    grace_seconds: int = 120
    block_seconds: int = 300
    block_min_units: int = 50
    undeclared_min_units: int = 20
    horizon_seconds: int = 28 * DAY
    contrast_seconds: int = DAY
    vif_limit: float = 10.0
    futility_margin: float | None = None
    guardrail_alpha: float = 0.05
    value_per_conversion: float | None = None
    sample_rate: float = 1.0
    split_at: float | None = None
    fading_at: float | None = None
    after_window_at: float = 100.0

    def __post_init__(self) -> None:
        rules = (
            ("alpha", 0 < self.alpha < 1, "lies in (0, 1)"),
            ("attempt", self.attempt >= 1, "is at least 1"),
            ("rho_day", 0 < self.rho_day < math.inf, "is positive and finite"),
            ("rho_fast", 0 < self.rho_fast < math.inf, "is positive and finite"),
            (
                "rho_between",
                all(0 < rho < math.inf for rho in self.rho_between),
                "holds positive and finite numbers",
            ),
            ("better", self.better in {"higher", "lower"}, "is 'higher' or 'lower'"),
            (
                "block_seconds",
                self.block_seconds > 0 and DAY % self.block_seconds == 0,
                "is positive and divides a day",
            ),
            (
                "window_seconds",
                self.window_seconds >= 0 and self.window_seconds % max(1, self.block_seconds) == 0,
                "is a whole multiple of the block",
            ),
            ("grace_seconds", self.grace_seconds >= 0, "is not negative"),
            ("block_min_units", self.block_min_units >= 1, "is at least 1"),
            ("undeclared_min_units", self.undeclared_min_units >= 1, "is at least 1"),
            (
                "horizon_seconds",
                self.horizon_seconds >= self.block_seconds,
                "holds at least one block",
            ),
            ("contrast_seconds", self.contrast_seconds > 0, "is positive"),
            ("vif_limit", self.vif_limit >= 1, "is at least 1"),
            (
                "futility_margin",
                self.futility_margin is None or 0 < self.futility_margin < math.inf,
                "is positive and finite, or null",
            ),
            ("guardrail_alpha", 0 < self.guardrail_alpha < 1, "lies in (0, 1)"),
            (
                "value_per_conversion",
                self.value_per_conversion is None or math.isfinite(self.value_per_conversion),
                "is finite or null",
            ),
            ("sample_rate", 0 < self.sample_rate <= 1, "lies in (0, 1]"),
            (
                "split_at",
                self.split_at is None or 1 < self.split_at < math.inf,
                "is above 1 and finite, or null",
            ),
            (
                "fading_at",
                self.fading_at is None or 1 < self.fading_at < math.inf,
                "is above 1 and finite, or null",
            ),
            (
                "after_window_at",
                1 < self.after_window_at < math.inf,
                "is above 1 and finite",
            ),
        )
        for name, holds, rule in rules:
            if not holds:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but it {rule}")

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Self:
        """The policy in a frozen policy document; members of other readers are ignored.

        Args:
            document: The parsed JSON; keys are named like the members of this class.

        Raises:
            TypeError: A member is of another type than its default.
            ValueError: A member is outside its range.
        """
        members: dict[str, object] = {}
        for field in fields(cls):
            if field.name in document:
                members[field.name] = _typed(field.name, document[field.name], field.type)
        return cls(**members)  # pyright: ignore[reportArgumentType]  # checked by _typed

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
    def counts_information(self) -> bool:
        """Whether progress is counted in information rather than sessions.

        So it is of every experiment whose policy was frozen since strata are split by need.
        """
        return self.split_at is not None

    @property
    def log_threshold(self) -> float:
        """The logarithm of 1/level: where the e-process crosses."""
        return -math.log(self.level)


def _typed(name: str, value: object, kind: object) -> object:
    if isinstance(value, list) and kind == tuple[float, ...]:
        return tuple(_typed(name, each, float) for each in value)
    numbers = (int, float) if kind is not int else (int,)
    expected = (str,) if kind is str else numbers
    optional = value is None and kind not in (str, int, float)
    if optional or (isinstance(value, expected) and not isinstance(value, bool)):
        return float(value) if kind is not int and isinstance(value, int) else value
    raise TypeError(f"{name} is {value!r}, but its type is {kind}")
