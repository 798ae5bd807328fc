"""The policy in an evidence document: a view of the numbers that were frozen with it."""

from typing import Annotated, Self

from msgspec import Meta

from domain.document import Document
from domain.metric import DAY, FrozenMetric
from domain.policy import EFFECT_PRIOR, FrozenSource, KeepWhen, Policy, RoutesBecause, Suspicion


class Precisions(Document, frozen=True, kw_only=True):
    """The mixture precisions ρ of the test's components, 1 / (relative lift)²."""

    day: Annotated[float, Meta(description="Of the smallest typical lift.")]
    fast: Annotated[float, Meta(description="Of the largest lift.")]
    between: Annotated[tuple[float, ...], Meta(description="Of those between.")] = ()


class EvidencePolicy(Document, frozen=True, kw_only=True):
    """The numbers that were frozen when the experiment was bound to its deploy."""

    target: FrozenMetric
    guardrails: tuple[FrozenMetric, ...]
    environment: str
    routes: Annotated[
        tuple[str, ...] | None, Meta(description="Patterns that expose a unit; null for all.")
    ]
    routes_because: Annotated[
        RoutesBecause,
        Meta(
            description="Whether the registration named them, the diff affects them, or all count."
        ),
    ]
    alpha: float
    attempt: Annotated[int, Meta(description="The number of this attempt at the change, from 1.")]
    level: Annotated[float, Meta(description="alpha / attempt²: the level of this test.")]
    rho: Precisions
    window_seconds: int
    grace_seconds: Annotated[
        int, Meta(description="How long after its end a block of exposures closes.")
    ]
    block_min_units: Annotated[
        int, Meta(description="Units that end an analysis block, at declared shares.")
    ]
    undeclared_min_units: Annotated[int, Meta(description="The same at undeclared shares.")]
    horizon_days: int
    futility_margin: float | None
    effect_prior: Annotated[
        tuple[tuple[float, float], ...],
        Meta(
            description="The prior of the effect: standard deviations of the log-odds lift around"
            " 0, each with its weight."
        ),
    ] = EFFECT_PRIOR
    reward_days: Annotated[
        int, Meta(description="Days after the start at which the effect is final.")
    ] = 7
    unit: Annotated[
        str, Meta(description="`session`, `user`, or the property of events that names the unit.")
    ]
    value_per_conversion: Annotated[float | None, Meta(description="Dollars.")]
    sample_rate: Annotated[
        float | None,
        Meta(description="The share of units that is measured; left out where all are."),
    ] = None
    drawn: Annotated[
        bool, Meta(description="Whether the published draw gives the arms, so that it is verified.")
    ] = False
    signed_assignments: Annotated[
        bool, Meta(description="Whether events without the router's signature are left out.")
    ] = False
    on_suspicion: Annotated[
        Suspicion, Meta(description="The step that a harm asks for which lost units may explain.")
    ] = "pause"
    keep_when: Annotated[
        KeepWhen, Meta(description="Whether a keep stands beside the project's other changes.")
    ] = "alone"
    earlier_attempts: Annotated[tuple[str, ...], Meta(description="Their experiments.")] = ()
    split_at: Annotated[
        float | None, Meta(description="The e-value at which a flag or segment splits the strata.")
    ] = None
    segments: tuple[str, ...] = ()
    warmup_seconds: int = 0
    unwatched: Annotated[
        tuple[str, ...],
        Meta(description="Quantiles of guardrails that could not be frozen, each in a sentence."),
    ] = ()
    read_from: Annotated[
        tuple[FrozenSource, ...],
        Meta(description="The past events, users or sessions that its members were read from."),
    ] = ()
    unread: Annotated[
        tuple[str, ...],
        Meta(description="Members at their default, since their past could not be read in time."),
    ] = ()
    after_window_at: Annotated[
        float | None,
        Meta(description="The e-value at which outcomes after the window hold a verdict."),
    ] = None

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Returns a policy as it is served; members at their defaults are left out."""
        own = {
            "rho": Precisions(day=policy.rho_day, fast=policy.rho_fast, between=policy.rho_between),
            "horizon_days": policy.horizon_seconds // DAY,
            "reward_days": policy.reward_seconds // DAY,
            "sample_rate": policy.sample_rate if policy.sample_rate < 1 else None,
        }
        shared = {*cls.__struct_fields__} - {*own}
        return cls(**own, **{name: getattr(policy, name) for name in shared})
