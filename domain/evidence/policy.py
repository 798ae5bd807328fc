"""The policy in an evidence document: the numbers that were frozen with its experiment."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from domain.document import Document

# Standard deviations of the log-odds lift of a change around 0, each with its weight: a fleet of
# which some changes do nothing, most do little, and a few do much.
EFFECT_PRIOR = (
    (0.0, 0.25),
    (0.005, 0.05),
    (0.01, 0.10),
    (0.02, 0.20),
    (0.05, 0.20),
    (0.10, 0.12),
    (0.20, 0.06),
    (0.50, 0.02),
)


Member = Literal["unit", "cap", "thresholds", "history", "routes"]


class FrozenMetric(Document, frozen=True, kw_only=True):
    """A metric as the policy froze it."""

    cap: Annotated[
        float | None, Meta(description="Of a mean: the largest value that an event counts.")
    ]
    kind: Literal["conversion", "mean", "ratio"]
    name: str
    rates: Annotated[
        dict[str, float] | None,
        Meta(description="What a unit of another currency counts in the metric's own."),
    ] = None
    where: Annotated[
        dict[str, tuple[str, ...]] | None,
        Meta(description="The values that an event's properties may have, by property."),
    ] = None
    over: Annotated[
        float | None, Meta(description="What the value of a unit's first event has to exceed.")
    ] = None
    quantile: Annotated[
        str | None, Meta(description="Which quantile of the 28 days before the start that was.")
    ] = None
    value_unit: Annotated[
        Literal["ms"] | None, Meta(description="The unit of its values, where they are durations.")
    ] = None
    of: Annotated[
        str | None, Meta(description="The guardrail that has this threshold among several.")
    ] = None
    better: Literal["higher", "lower"]
    margin: Annotated[
        float | Literal["default"] | None,
        Meta(
            description="Of a guardrail: how much worse still counts as unharmed, absolute; null"
            " where no keep waits for it."
        ),
    ]
    sources: Annotated[tuple[str, ...], Meta(description="The names of its events.")]
    per: Annotated[
        tuple[str, ...] | None, Meta(description="Of a ratio, the events that it is taken over.")
    ] = None
    currency: str | None
    vouched_only: Annotated[bool, Meta(description="Whether only vouched events count.")] = False
    trusted_only: Annotated[
        bool,
        Meta(description="Whether only the write key's events count, as of a server's spans."),
    ] = False
    grace_seconds: Annotated[
        int | None,
        Meta(
            description="How long its outcomes are waited for, where that is longer than the grace"
            " of all."
        ),
    ] = None
    window_seconds: Annotated[
        int, Meta(description="How long after its exposure a unit's events count.")
    ]


class Precisions(Document, frozen=True, kw_only=True):
    """The mixture precisions ρ of the test's components, 1 / (relative lift)²."""

    day: Annotated[float, Meta(description="Of the smallest typical lift.")]
    fast: Annotated[float, Meta(description="Of the largest lift.")]
    between: Annotated[tuple[float, ...], Meta(description="Of those between.")] = ()


class FrozenSource(Document, frozen=True, kw_only=True):
    """The past that a member of the policy was read from."""

    member: Member
    metric: str | None = None
    vouched: Annotated[
        int,
        Meta(
            description="Values, first values, users or sessions that came with the write key, or"
            " signed by the router."
        ),
    ]
    unvouched: Annotated[
        int,
        Meta(
            description="Those that came with the public key, counted where vouched ones were too"
            " few: anybody can send these."
        ),
    ]
    since: datetime
    until: datetime


class EvidencePolicy(Document, frozen=True, kw_only=True):
    """The numbers that were frozen when the experiment was bound to its deploy."""

    target: FrozenMetric
    guardrails: tuple[FrozenMetric, ...]
    environment: str
    routes: Annotated[
        tuple[str, ...] | None, Meta(description="Patterns that expose a unit; null for all.")
    ]
    routes_because: Annotated[
        Literal["named", "affected", "all"],
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
    unit: Literal["session", "user"]
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
    earlier_attempts: Annotated[tuple[str, ...], Meta(description="Their experiments.")] = ()
    split_at: Annotated[
        float | None,
        Meta(description="The e-value at which a flag or segment splits the strata."),
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
