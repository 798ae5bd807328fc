"""The evidence document and its effect: their members as the API describes them.

They are published as JSON by the pipeline (`orchestration/pipeline/document.py`) and served to the
byte; a test holds what every story of the pipeline publishes to these shapes.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from api.wire.shape import Shape

Interval = tuple[float, float]
EValue = Annotated[
    float | Literal["inf"] | None,
    Field(description="An e-value; null where nothing could be tested."),
]


class EffectEstimate(Shape):
    """The numbers of an estimate.

    They are null where nothing was compared, and where what differs between the arms is not the
    change alone.
    """

    estimate: float | None = Field(
        description="Treatment minus control: shrunk by as much as the test doubts it while open"
        " and at the decision, unbiased once measured afresh."
    )
    standard_error: float | None = Field(
        description="The estimate's standard deviation. Make no interval of it."
    )
    interval: Interval | None = Field(description="The always-valid interval of the difference.")
    relative: float | None = Field(description="The estimate divided by control's rate or mean.")
    value_per_day: float | None = Field(
        description="Dollars a day once every unit has the change; null without a value per"
        " conversion."
    )
    value_interval: Interval | None
    units: int = Field(description="Units of both arms that were compared.")
    final: bool = Field(
        description="Whether the estimate can change no more; one at the decision may be replaced"
        " once, by a fresh one, a week after the decision."
    )


class EvidenceEffect(EffectEstimate):
    """The best estimate of a change's effect at a look."""

    basis: Literal["open", "at_decision"] = Field(
        description="The moment of the estimate: the last look, or the one that decided."
    )
    as_of: datetime


class AfterDecision(EffectEstimate):
    """The effect of the units that were exposed after a decision, while both arms are served.

    Of a stopped one the interval alone is given.
    """

    state: Literal["running", "stopped", "final"] = Field(
        description="final at the planned end; stopped where an arm was gone before it."
    )
    begins_at: datetime
    ends_at: datetime = Field(description="The planned end of exposure.")
    basis: Literal["after_decision"]
    as_of: datetime | None


class Effect(EffectEstimate):
    """The best estimate of a change's effect: the number to train on."""

    basis: Literal["open", "at_decision", "after_decision"] = Field(
        description="The moment of the estimate: the last look, the one that decided, or the end"
        " of the week after it."
    )
    as_of: datetime
    after_decision: AfterDecision | None = Field(
        description="Units that were exposed after the deciding look alone; null while open, and"
        " after an end without an answer."
    )


class FrozenMetric(Shape):
    """A metric as the policy froze it."""

    name: str
    sources: list[str] = Field(description="The names of its events.")
    kind: Literal["conversion", "mean"]
    better: Literal["higher", "lower"]
    window_seconds: int = Field(description="How long after its exposure a unit's events count.")
    cap: float | None = Field(description="Of a mean: the largest value that an event counts.")
    margin: float | Literal["default"] | None = Field(
        description="Of a guardrail: how much worse still counts as unharmed, absolute; null where"
        " no keep waits for it."
    )
    currency: str | None
    rates: dict[str, float] = Field(
        default={}, description="What one unit of another currency counts in the metric's own."
    )
    vouched_only: bool = Field(default=False, description="Whether only vouched events count.")
    grace_seconds: int = Field(
        default=0,
        description="How long its outcomes are waited for, where that is longer than the grace of"
        " all.",
    )


class Precisions(Shape):
    """The mixture precisions ρ of the test's components, 1 / (relative lift)²."""

    day: float = Field(description="Of the smallest typical lift.")
    fast: float = Field(description="Of the largest one.")
    between: list[float] = Field(default=[], description="Of those between.")


class EvidencePolicy(Shape):
    """The numbers that were frozen when the experiment was bound to its deploy."""

    target: FrozenMetric
    guardrails: list[FrozenMetric]
    environment: str
    routes: list[str] | None = Field(description="Patterns that expose a unit; null for all.")
    routes_because: Literal["named", "affected", "all"] = Field(
        description="Whether the registration named them, the diff affects them, or all count."
    )
    alpha: float
    attempt: int = Field(description="The number of this attempt at the change, from 1.")
    level: float = Field(description="alpha / attempt²: the level of this test.")
    rho: Precisions
    window_seconds: int
    grace_seconds: int = Field(description="How long after its end a block of exposures closes.")
    block_min_units: int = Field(
        description="Units that end an analysis block, at declared shares."
    )
    undeclared_min_units: int = Field(description="The same at undeclared shares.")
    horizon_days: int
    futility_margin: float | None
    unit: Literal["session", "user"]
    value_per_conversion: float | None = Field(description="Dollars.")
    sample_rate: float = Field(default=1, description="The share of units that is measured.")
    signed_assignments: bool = Field(
        default=False, description="Whether events without the router's signature are left out."
    )
    earlier_attempts: list[str] = Field(default=[], description="Their experiments.")
    split_at: float | None = Field(
        default=None, description="The e-value at which a flag or segment splits the strata."
    )
    segments: list[str] = Field(default=[])
    warmup_seconds: int = 0
    after_window_at: float | None = Field(
        default=None, description="The e-value at which outcomes after the window hold a verdict."
    )


class EvidenceArm(Shape):
    """The units of one arm in closed blocks."""

    units: int
    conversions: int
    rate: float | None
    total: float | None = Field(
        default=None, description="Of a mean alone: the sum of all values, capped."
    )
    mean: float | None = Field(default=None, description="Of a mean alone: that sum a unit.")
    late: int = Field(description="Units whose outcome came after their block had closed.")


class EvidenceArms(Shape):
    """Both arms."""

    control: EvidenceArm
    treatment: EvidenceArm


class Totals(Shape):
    """The sums of the test over all cells (docs/statistics.md)."""

    S: float = Field(description="The score.")
    W: float = Field(description="The Mantel-Haenszel weight: the information so far.")
    V: float = Field(description="The variance of the score under no effect.")
    lift: float | None = Field(description="S / W.")
    e_value: float = Field(description="At most 1e300.")
    p_value: float
    p_running_min: float = Field(description="The least p-value over looks that no gate held.")
    ci: Interval | None = Field(description="Given whenever arms were compared.")


class YesNo(Shape):
    """Beside a mean, the test of whether units had its event; it decides nothing."""

    lift: float
    e_value: float
    ci: Interval


class Known(Shape):
    """The relative lifts that are excluded already, divided by control's rate."""

    not_worse_than: float | None
    not_better_than: float | None
    smallest_lift_by_horizon: float | None = Field(
        description="The smallest rise that the traffic expected by the horizon finds in 80 % of"
        " experiments; null once decided."
    )
    sentence: str | None


class EvidenceLook(Shape):
    """A look; of more than 500 the first, the last, the crossing and an even selection."""

    at: datetime
    e_value: float
    p_running_min: float
    lift: float | None
    ci: Interval | None
    gated: bool = Field(description="Whether a gate held this look back.")


class ShareShortfall(Shape):
    """Treatment's share of arrivals, where too few of its units arrived."""

    declared: float
    seen: float
    steady: bool = Field(description="Whether a wrong weight explains it as well as a dying build.")


class EvidenceGates(Shape):
    """The readings of the gates: whether the difference is the change's alone."""

    vif: EValue = Field(description="Variance inflation factor; above 10 nothing can be said.")
    aliased_with: list[str] = Field(
        description="Other changes that the change cannot be separated from, or `time`."
    )
    sample_ratio_e: EValue
    crossover_share: float | None = Field(description="The share of units seen in both arms.")
    lateness_e: EValue
    interaction_e: EValue
    after_window_e: EValue
    left_out_e: dict[str, float] = Field(
        default={}, description="Of each reason for which a mean leaves outcomes out."
    )
    interacting_because: list[
        Literal[
            "sample_ratio",
            "crossover",
            "lateness",
            "interaction",
            "after_window",
            "other_currency",
            "no_value",
        ]
    ]
    shortfall: ShareShortfall | None


class EvidenceSplit(Shape):
    """A flag or segment that the strata are split by, since the arms share it unequally."""

    by: str
    e_value: float
    since: datetime | None


class EvidenceGuardrail(Shape):
    """The one-sided test of a guardrail."""

    metric: str
    e_value: float
    threshold: float = Field(description="The e-value at which it is breached.")
    breached_at: datetime | None
    non_inferior_at: datetime | None = Field(description="When it was shown unharmed.")
    lift: float | None


class EvidenceCandidate(Shape):
    """A target that is better already, and waits for its guardrails."""

    at: datetime
    lift: float
    confidence: float
    ci: Interval
    cadence: Literal["day", "fast"]
    holds: bool = Field(description="Whether the target's test still holds at this look.")
    waits_for: list[str] = Field(description="Guardrails that are not shown unharmed.")


class EvidenceSessions(Shape):
    """Traffic so far, and the traffic that a verdict needs."""

    accumulated: int = Field(description="Units in closed cells.")
    required: float | None = Field(
        description="Units that find the smallest typical lift in 80 % of experiments; null before"
        " 100 control units and both arms."
    )
    required_fast: float | None = Field(description="The same of the largest typical lift.")
    per_day: float | None = Field(description="Units in the last 24 hours, or a day so far.")
    projected_decision_at: datetime | None = Field(
        description="When `required` is reached; null where that is unknown, past, or beyond the"
        " horizon, and once decided."
    )


class EvidenceTippingPoint(Shape):
    """How many invented sessions would explain the lift."""

    sessions: int
    unseen: int | None = Field(
        description="About how many the sample ratio lets pass; null at undeclared shares: any."
    )


class Vouched(Shape):
    """The outcomes that came with the write key, or signed: those that cannot be invented."""

    conversions: int
    of: int
    e_value: float
    holds: bool = Field(description="Whether they alone show the same answer.")


class LeftOut(Shape):
    """The outcomes of counted units that do not count, for one reason."""

    reason: Literal["late", "other_currency", "no_value"]
    of: Literal["units", "outcomes"]
    control: int
    treatment: int


class EvidenceCounts(Shape):
    """Units as of the look.

    From `in_cells` to `partial`, with `excluded` and `warming`, they add up to the units with an
    event on the experiment's routes.
    """

    in_cells: int
    open: int = Field(description="Exposed, and their outcomes are still waited for.")
    late: int = Field(description="Exposed by an event that came after its block had closed.")
    in_flight: int = Field(description="Seen before the start already, so in neither arm.")
    unknown_commit: int = Field(description="Of commits that no deploy names.")
    ambiguous_commit: int = Field(
        default=0, description="Of commit ids so short that they begin several commits."
    )
    partial: int = Field(description="Served some changes of the treatment, and not all.")
    crossover: int = Field(description="Seen in both arms within their window.")
    excluded: int = Field(description="Of strata beyond those that are compared.")
    warming: int = Field(description="Of the first minutes, as `warmup_minutes` says.")
    unmatched_route: int = Field(description="Of paths that are not in the static graph.")
    unsigned: int = Field(default=0, description="Without the router's signature.")


class MetricRow(Shape):
    """The results of both arms by one metric."""

    metric: str
    role: Literal["target", "guardrail"] = Field(description="The target comes first.")
    control: float | None = Field(description="The rate, or the mean; null of `arrival`.")
    treatment: float | None
    difference: float | None = Field(
        description="Treatment minus control, compared block by block: not simply the difference"
        " of the two."
    )
    interval: Interval | None = Field(
        description="Where the true difference lies, however often one looks. Of a guardrail by"
        " its own one-sided test."
    )
    state: Literal["better", "worse", "unfair", "not_known", "breached", "unharmed"]


class BaseMoved(Shape):
    """The build that took the place of the control."""

    rebase_on: str
    changes: list[str] = Field(description="The `changes` to post with the rebased commit.")
    since: datetime | None = Field(description="When it was deployed, where that is recorded.")
    continues: bool = Field(
        description="Whether the rebased commit counts on in this experiment, or is registered"
        " anew."
    )


class MissingControl(Shape):
    """That no build without the change is served beside the treatment."""

    unknown_commit: str | None = Field(
        description="The commit of no recorded deploy that was seen most, if any was."
    )
    part: float | None = Field(description="Its part of the sessions that were seen last.")


class ValueRange(Shape):
    """Dollars a day, by the interval of the lift and the units of the last 7 days."""

    low: float
    high: float


class EvidenceWords(Shape):
    """The words that every page, picture and tool shows as they are."""

    sentence: str = Field(description="What is known, in one or two sentences.")
    headline: str = Field(description="`Keep`, `Can't say yet` and the like.")
    reason: str = Field(description="The sentence without its headline.")
    advice: list[str] = Field(description="What to do now, the most important first.")
    experiment_id: str


class Evidence(EvidenceWords):
    """All that a verdict rests on, as of one look: the deciding one, else the last."""

    as_of: datetime | None = Field(description="Null where it ended before any look.")
    change: list[str] = Field(description="The change under test: lineage of treatment − control.")
    joint_with: list[str] = Field(
        description="The changes under test that are not the treatment commit's own."
    )
    base_moved: BaseMoved | None = Field(
        description="Null while a build is served that the treatment can be compared with."
    )
    nothing_to_compare: MissingControl | None = Field(
        description="While open: null once a unit was compared, or a build without the change is"
        " served beside the treatment."
    )
    policy: EvidencePolicy
    arms: EvidenceArms
    totals: Totals
    yes_no: YesNo | None = None
    known: Known
    looks: list[EvidenceLook]
    gates: EvidenceGates
    splits: list[EvidenceSplit] = Field(default=[])
    guardrails: list[EvidenceGuardrail]
    candidate: EvidenceCandidate | None
    sessions: EvidenceSessions
    tipping_point: EvidenceTippingPoint | None
    vouched: Vouched | None
    left_out: list[LeftOut] = Field(default=[], description="A row for each reason there is.")
    counts: EvidenceCounts
    warnings: list[str] = Field(description="Words for what to look at beside the verdict.")
    ended_because: (
        Literal[
            "horizon",
            "promoted",
            "withdrawn",
            "superseded",
            "nothing_to_compare",
            "futility",
            "closed",
        ]
        | None
    ) = Field(description="What ended it without an answer.")
    digest: str = Field(
        description="SHA-256 over cells, deploys and policy: of the same evidence the same."
    )
    metrics: list[MetricRow]
    value_range: ValueRange | None
    effect: EvidenceEffect | None = Field(description="Null where it ended before any look.")


class ClosedExperiment(EvidenceWords):
    """An experiment that ended before it was computed: no deploy came, or its data broke it."""

    as_of: None
    warnings: list[str] = Field(default=[])
    ended_because: Literal["closed"] | None = None
