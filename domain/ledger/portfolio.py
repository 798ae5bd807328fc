"""A portfolio: the effect of all changes since a hold-back, beside the sum of their claims."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from domain.evidence.effect import AfterDecision, Effect
from domain.planning.boundary import Boundary
from domain.planning.design import Design
from domain.planning.requirement import deciding_sessions
from domain.registration import PORTFOLIO

# The build that users had so long ago is held back by default.
DAYS = 7
# Of these the least that finds a lift within those days; of more users than the last nobody asks
# to have an old build, however long it takes.
SHARES = (0.05, 0.1, 0.2)
DEFAULT_SHARE = 0.1
# The lift that is looked for where nothing was claimed.
_LIFT = 0.1


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """An experiment that measured a part of a portfolio's change by itself.

    Attributes:
        change: The changes that it tested, all of them the portfolio's too.
        title: The first line of its commit's message; None where its deploy has none.
        verdict: As its contract has it.
        decided: Whether that is final.
        claimed: The lift of its contract, relative to control; None of an abstention.
        effect: Its best effect, relative: after the decision where that is final.
        basis: The moment of that effect; None where there is no effect.
    """

    experiment_id: str
    change: Sequence[str]
    title: str | None
    verdict: str
    decided: bool
    claimed: float | None
    effect: float | None
    basis: str | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The portfolio's own experiment.

    Attributes:
        starts_at: From when on units count.
        decided: Whether its verdict is final.
        attempt: Which try of its changes it is: the later, the wider its interval.
        verdict: As its contract has it.
        control: Level of the hold-back at its last look; None before any.
        effect: Its effect as it is served; None before the first look.
    """

    experiment_id: str
    starts_at: datetime
    decided: bool
    attempt: int
    verdict: str
    control: float | None
    effect: Effect | None


@dataclass(frozen=True, kw_only=True)
class Portfolio:
    """The standing build, the hold-back, and the experiments on the changes between the two.

    Attributes:
        metric: The target metric.
        standing: The commit that most users have now; None where there is none.
        treatment: The build that is compared: as it was when the comparison began.
        hold_back: The build that is held back; None where there is none to suggest.
        hold_back_share: The share of units that is declared for it now.
        change: The changes that the treatment carries and the hold-back lacks.
        measurements: The experiments on parts of the change, the newest first.
        comparison: The portfolio's own experiment; None before it is registered.
        per_day: Units a day; None where no experiment on that metric says it.
        rate: The rate of control; None likewise, and of a mean.
    """

    environment: str
    metric: str
    standing: str | None
    standing_deploy: str | None
    treatment: str | None
    hold_back: str | None
    hold_back_share: float | None
    change: Sequence[str]
    measurements: Sequence[Measurement]
    comparison: Comparison | None
    per_day: float | None
    rate: float | None

    @property
    def claims(self) -> list[Measurement]:
        """The keeps, of each change the newest alone: an effect is not added up twice."""
        counted: set[str] = set()
        claims: list[Measurement] = []
        for measurement in self.measurements:
            if measurement.verdict == "keep" and counted.isdisjoint(measurement.change):
                counted.update(measurement.change)
                claims.append(measurement)
        return claims

    @property
    def attempt(self) -> int:
        """Which try of its changes the comparison is, or would be."""
        if self.comparison is None:
            return 1 + len(self.measurements)
        return self.comparison.attempt

    def document(self, *, as_of: datetime) -> dict[str, Any]:
        """Returns it as it is served."""
        claims, comparison = self.claims, self.comparison
        measured = {change for each in self.measurements for change in each.change}
        return {
            "as_of": as_of,
            "environment": self.environment,
            "metric": self.metric,
            "standing": self.standing,
            "standing_deploy": self.standing_deploy,
            "treatment": self.treatment,
            "hold_back": self.hold_back,
            "hold_back_share": self.hold_back_share,
            "share": self._share(_sum(claim.claimed for claim in claims)),
            "moved_on": comparison is not None and self.standing != self.treatment,
            "attempt": self.attempt,
            "changes": len(self.change),
            "unmeasured": sorted(set(self.change) - measured),
            "measurements": [
                {**vars(each), "counted": each in claims} for each in self.measurements
            ],
            "kept": len(claims),
            "claimed": _sum(claim.claimed for claim in claims),
            "expected": _sum(claim.effect for claim in claims),
            **_compared(comparison),
        }

    def _share(self, claimed: float) -> dict[str, Any]:
        """Returns the share that a hold-back needs: the least that finds the claims in time.

        The lift is the sum of the claims, else 10 %.
        """
        lift = claimed if claimed > 0 else _LIFT
        known: dict[str, Any] = {"share": DEFAULT_SHARE, "lift": lift, "days": None}
        if self.per_day is None or self.rate is None or not 0 < self.rate < 1 or self.per_day <= 0:
            return known
        design = Design(sessions_per_day=self.per_day, rate=self.rate, share=0.5)
        boundary = Boundary(alpha=Boundary.alpha / self.attempt**2)
        for share in SHARES:
            sessions = deciding_sessions(replace(design, share=1 - share), lift, boundary)
            known = {"share": share, "lift": lift, "days": sessions / self.per_day}
            if known["days"] <= DAYS:
                break
        return known


def registration_of(document: Mapping[str, Any]) -> dict[str, object] | None:
    """Returns the registration that begins a portfolio; None where it runs, or nothing differs.

    Args:
        document: The portfolio as it is served.
    """
    if document["experiment_id"] is not None or not document["changes"]:
        return None
    return {
        "deploy_id": document["standing_deploy"],
        "control_commit": document["hold_back"],
        "target_metric": document["metric"],
        "metadata": {PORTFOLIO: True},
    }


def _compared(comparison: Comparison | None) -> dict[str, Any]:
    """Returns the measured effect of all changes together."""
    if comparison is None:
        return dict.fromkeys(
            ("experiment_id", "starts_at", "verdict", "decided", "follow_up", "effect")
        )
    effect = comparison.effect
    after = None if effect is None else effect.after_decision
    return {
        "experiment_id": comparison.experiment_id,
        "starts_at": comparison.starts_at,
        "verdict": comparison.verdict,
        "decided": comparison.decided,
        "follow_up": after.state if isinstance(after, AfterDecision) else None,
        "effect": None if effect is None else _relative(effect, comparison.control),
    }


def _relative(effect: Effect, control: float | None) -> dict[str, Any]:
    """Returns an effect with its interval relative to the hold-back's level."""
    level = abs(control or 0.0)
    if effect.estimate and effect.relative:
        level = abs(effect.estimate / effect.relative)
    ends = effect.interval
    return {
        "relative": effect.relative,
        "interval": None if ends is None or not level else [end / level for end in ends],
        "basis": effect.basis,
        "units": effect.units,
        "as_of": effect.as_of,
    }


def _sum(values: Iterable[float | None]) -> float:
    return math.fsum(value for value in values if value is not None)
