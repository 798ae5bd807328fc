"""A portfolio: the effect of all changes since a hold-back, beside the sum of their claims."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from msgspec import Meta, structs

from domain.document import Document, Interval, Moment
from domain.evidence.effect import Basis, Effect, FollowUpState
from domain.planning.boundary import Boundary
from domain.planning.design import LEAST, Design
from domain.planning.requirement import deciding_sessions
from domain.registration import PORTFOLIO
from domain.words import Verdict

# The build that users had so long ago is held back by default.
DAYS = 7
# Candidate hold-back shares: the smallest that finds the lift within DAYS is taken, and never more
# than the last, however long that takes.
SHARES = (0.05, 0.1, 0.2)
DEFAULT_SHARE = 0.1
# The lift that is looked for where nothing was claimed.
_LIFT = 0.1


class PortfolioMeasurement(Document, frozen=True, kw_only=True):
    """An experiment on a part of the changes; its effects are relative to control."""

    experiment_id: str
    change: tuple[str, ...]
    title: Annotated[str | None, Meta(description="The first line of its commit's message.")]
    verdict: Verdict
    decided: bool
    claimed: Annotated[
        float | None, Meta(description="The contract's lift; null in an abstention.")
    ]
    effect: Annotated[float | None, Meta(description="The best estimate.")]
    basis: Basis | None
    counted: Annotated[bool, Meta(description="Whether it is a keep that the sums hold.")]


class PortfolioShare(Document, frozen=True, kw_only=True):
    """The share of units that the hold-back needs."""

    share: float
    lift: Annotated[
        float, Meta(description="The lift that is looked for: the sum of the claims, or 10 %.")
    ]
    days: Annotated[
        float | None,
        Meta(description="Days until 80 % of runs detect it; null before any traffic is known."),
    ]


class PortfolioEffect(Document, frozen=True, kw_only=True):
    """The effect of all changes together, relative to the hold-back."""

    relative: float | None
    interval: Interval | None
    basis: Basis
    units: int
    as_of: Moment | None


class Portfolio(Document, frozen=True, kw_only=True):
    """The newest portfolio; before any is registered, the portfolio that could be begun."""

    as_of: Moment
    environment: str
    metric: str
    standing: Annotated[str | None, Meta(description="The build that most users have now.")]
    standing_deploy: Annotated[str | None, Meta(description="The deploy to register.")]
    treatment: Annotated[
        str | None, Meta(description="The build that is compared with the hold-back.")
    ]
    hold_back: Annotated[
        str | None,
        Meta(description="Before a portfolio is registered the build that users had 7 days ago."),
    ]
    hold_back_share: Annotated[float | None, Meta(description="As last declared.")]
    share: PortfolioShare
    moved_on: Annotated[
        bool,
        Meta(description="Whether users have a later build: that build's units are not compared."),
    ]
    attempt: int
    changes: Annotated[int, Meta(description="How many changes the hold-back lacks.")]
    unmeasured: Annotated[
        tuple[str, ...], Meta(description="Those that no experiment of their own measured.")
    ]
    measurements: Annotated[tuple[PortfolioMeasurement, ...], Meta(description="The newest first.")]
    kept: int
    claimed: Annotated[float, Meta(description="The sum of what the keeps claimed.")]
    expected: Annotated[float, Meta(description="The sum of their best estimates.")]
    experiment_id: Annotated[str | None, Meta(description="Null before it is registered.")]
    starts_at: Moment | None
    verdict: Verdict | None
    decided: bool | None
    follow_up: Annotated[
        FollowUpState | None, Meta(description="The week after its decision: null before that.")
    ]
    effect: PortfolioEffect | None

    @property
    def registration(self) -> dict[str, object] | None:
        """The registration that begins it; None where it runs, or nothing differs."""
        if self.experiment_id is not None or not self.changes:
            return None
        return {
            "deploy_id": self.standing_deploy,
            "control_commit": self.hold_back,
            "target_metric": self.metric,
            "metadata": {PORTFOLIO: True},
        }


def with_counted(measurements: Sequence[PortfolioMeasurement]) -> tuple[PortfolioMeasurement, ...]:
    """Returns measurements with the keeps counted that the sums hold.

    Of each change the newest keep alone counts: an effect is not added up twice.

    Args:
        measurements: The newest first.
    """
    added: set[str] = set()
    marked: list[PortfolioMeasurement] = []
    for measurement in measurements:
        counted = measurement.verdict == "keep" and added.isdisjoint(measurement.change)
        if counted:
            added.update(measurement.change)
        marked.append(structs.replace(measurement, counted=counted))
    return tuple(marked)


def needed_share(
    claimed: float, *, attempt: int, per_day: float | None, rate: float | None
) -> PortfolioShare:
    """Returns the share that a hold-back needs: the least that finds the claims in time.

    Args:
        claimed: The sum of the claims, which is looked for; 10 % where that is no gain.
        per_day: Units a day; None where no experiment on that metric says it.
        rate: The rate of control; None likewise, and of a mean.
    """
    lift = claimed if claimed > 0 else _LIFT
    known = PortfolioShare(share=DEFAULT_SHARE, lift=lift, days=None)
    if per_day is None or rate is None or not LEAST <= rate <= 1 - LEAST or per_day <= 0:
        return known
    design = Design(sessions_per_day=per_day, rate=rate, share=0.5)
    boundary = Boundary(alpha=Boundary.alpha / attempt**2)
    for share in SHARES:
        sessions = deciding_sessions(replace(design, share=1 - share), lift, boundary)
        known = PortfolioShare(share=share, lift=lift, days=sessions / per_day)
        if sessions / per_day <= DAYS:
            break
    return known


def relative_effect(effect: Effect, control: float | None) -> PortfolioEffect:
    """Returns an effect with its interval relative to the hold-back's level.

    Args:
        control: That level at the last look; None before any.
    """
    level = abs(control or 0.0)
    if effect.estimate and effect.relative:
        level = abs(effect.estimate / effect.relative)
    ends = effect.interval
    return PortfolioEffect(
        relative=effect.relative,
        interval=None if ends is None or not level else (ends[0] / level, ends[1] / level),
        basis=effect.basis,
        units=effect.units,
        as_of=effect.as_of,
    )
