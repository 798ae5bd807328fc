"""The results in an evidence document: the test's sums, looks and gates, and each metric's row."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from domain.cause import Cause, GateCheck
from domain.document import Document, Interval, Moment
from domain.policy import KeepRecord
from domain.words import Cadence

EValue = Annotated[
    float | Literal["inf"] | None,
    Meta(description="An e-value; null where nothing could be tested."),
]


class Totals(Document, frozen=True, kw_only=True):
    """The sums of the test over all cells (docs/statistics.md)."""

    S: Annotated[float, Meta(description="The score.")]
    W: Annotated[float, Meta(description="The Mantel-Haenszel weight: the information so far.")]
    V: Annotated[float, Meta(description="The variance of the score under no effect.")]
    lift: Annotated[float | None, Meta(description="S / W.")]
    e_value: Annotated[float, Meta(description="At most 1e300.")]
    p_value: float
    p_running_min: Annotated[
        float, Meta(description="The least p-value over looks that no gate held.")
    ]
    ci: Annotated[Interval | None, Meta(description="Given whenever arms were compared.")]


class YesNo(Document, frozen=True, kw_only=True):
    """Beside a mean, the test of whether units had its event; it decides nothing.

    A unit with an extreme value hides a difference of means, but counts as a unit here.
    """

    lift: Annotated[
        float, Meta(description="The share of treatment's units with the event minus control's.")
    ]
    e_value: float
    ci: Interval


class Adjustment(Document, frozen=True, kw_only=True):
    """The gain of a mean's test from the history of its users before the canary."""

    with_history: Annotated[float, Meta(description="The share of users who have one.")]
    explained: Annotated[
        float, Meta(description="The share of the test's variance that it takes away.")
    ]
    narrower: Annotated[
        float, Meta(description="By what share the interval is narrower than without it.")
    ]
    is_read: Annotated[
        bool, Meta(description="False while the arms differ in who has a history.")
    ] = True
    sentence: str = ""


class Known(Document, frozen=True, kw_only=True):
    """The relative lifts that are excluded already, divided by control's rate."""

    not_worse_than: float | None
    not_better_than: float | None
    smallest_lift_by_horizon: Annotated[
        float | None,
        Meta(
            description="The smallest rise that the traffic expected by the horizon finds in 80 %"
            " of experiments; null once decided."
        ),
    ]
    sentence: str | None


class EvidenceLook(Document, frozen=True, kw_only=True):
    """A look; of more than 500 the first, the last, the crossing and an even selection."""

    at: Moment
    e_value: float
    p_running_min: float
    lift: float | None
    ci: Interval | None
    gated: Annotated[bool, Meta(description="Whether a gate held this look back.")]


class ShareShortfall(Document, frozen=True, kw_only=True):
    """Treatment's share of arrivals, where too few of its units arrived."""

    declared: float
    seen: float
    steady: Annotated[
        bool, Meta(description="Whether a wrong weight explains it as well as a dying build.")
    ]


class EvidenceGates(Document, frozen=True, kw_only=True):
    """The readings of the gates: whether the difference is the change's alone."""

    vif: Annotated[
        EValue, Meta(description="Variance inflation factor; above 10 nothing can be said.")
    ]
    aliased_with: Annotated[
        tuple[str, ...],
        Meta(description="Other changes that the change cannot be separated from, or `time`."),
    ]
    sample_ratio_e: EValue
    draw_e: EValue
    crossover_share: Annotated[
        float | None, Meta(description="The share of units seen in both arms.")
    ]
    lateness_e: EValue
    interaction_e: EValue
    after_window_e: EValue
    visitors_kept: Annotated[
        float | None,
        Meta(
            description="Of sessions: 0 where visitors are drawn anew in each, 1 where all keep"
            " their arm."
        ),
    ]
    turnover_e: Annotated[
        EValue, Meta(description="Whether visitors begin another session more often in either arm.")
    ]
    channels_e: Annotated[
        EValue, Meta(description="Whether the page of an arm loses more of the vouched outcomes.")
    ]
    before_exposure_e: Annotated[
        EValue,
        Meta(description="Whether outcomes come before the exposure more often in either arm."),
    ]
    balance_e: Annotated[
        EValue,
        Meta(
            description="Whether users of both arms were known before the canary as often; from"
            " 100 on the arms differ in who came, and no history is read."
        ),
    ] = None
    control_values: Annotated[
        float | None,
        Meta(
            description="Of a flag whose registration names no control, how many values may be"
            " control's: with several it holds."
        ),
    ]
    unnamed_share: Annotated[
        float | None,
        Meta(
            description="Where users are the units, the share of sessions that name a build and no"
            " user, beside the users who count: above a half it holds."
        ),
    ]
    left_out_e: Annotated[
        dict[str, float], Meta(description="Of each reason for which outcomes are left out.")
    ]
    interacting_because: tuple[Cause, ...]
    held_throughout: Annotated[
        tuple[Cause, ...], Meta(description="The gates that held every look so far.")
    ]
    shortfall: ShareShortfall | None
    checks: Annotated[
        tuple[GateCheck, ...], Meta(description="Each gate in words, as the row of its page.")
    ] = ()


class EvidenceDraw(Document, frozen=True, kw_only=True):
    """Units of the arms, held against the published draw."""

    verified: Annotated[int, Meta(description="Those that have the arm which is drawn for them.")]
    mismatched: Annotated[int, Meta(description="Those that have another.")]


class FlagUnits(Document, frozen=True, kw_only=True):
    """Units that carry a value of the flag under test, where its control is not named."""

    value: str
    units: Annotated[int, Meta(description="Of blocks that have closed.")]
    taken_for: Annotated[
        Literal["treatment", "control", "unclear", "left_out"],
        Meta(
            description="Its arm. Of several values that may be control's `unclear`: nothing is"
            " answered then. A value of less than 1 % of the units is left out."
        ),
    ]


class EvidenceSplit(Document, frozen=True, kw_only=True):
    """A flag or segment that the strata are split by, since the arms share it unequally."""

    by: str
    e_value: float
    since: Moment | None


class EvidenceGuardrail(Document, frozen=True, kw_only=True):
    """A guardrail's test of harm alone."""

    metric: str
    e_value: float
    threshold: Annotated[float, Meta(description="The e-value at which it is breached.")]
    breached_at: Moment | None
    non_inferior_at: Annotated[Moment | None, Meta(description="When it was shown unharmed.")]
    lift: float | None


class Stand(Document, frozen=True, kw_only=True):
    """The stand of a candidate beside the changes that its project judged in 30 days."""

    e_value: Annotated[float, Meta(description="The evidence on the better side, line included.")]
    needed: Annotated[
        float | None, Meta(description="10·judged/max(kept, 1); null before any was judged.")
    ]
    record: Annotated[KeepRecord | None, Meta(description="The row that the look read.")]
    holds: Annotated[bool, Meta(description="Whether it stands at this look.")]
    until: Annotated[Moment, Meta(description="Then its wait ends, without an answer.")]


class Candidate(Document, frozen=True, kw_only=True):
    """A target that is better already, and waits for its guardrails."""

    at: Annotated[
        Moment, Meta(description="The first look at which the test held on the better side.")
    ]
    lift: float
    confidence: float
    ci: Interval
    cadence: Cadence
    holds: Annotated[bool, Meta(description="Whether the target's test still holds at this look.")]
    waits_for: Annotated[
        tuple[str, ...], Meta(description="Guardrails that are not shown unharmed.")
    ]
    stand: Annotated[Stand | None, Meta(description="Where a keep has to stand.")] = None


class Surplus(Document, frozen=True, kw_only=True):
    """Treatment's units beyond its declared share, and the test beside them.

    An answer waits for it too: units of a single arm that do nothing move a rate, and hardly this.
    """

    e_value: Annotated[float, Meta(description="The evidence, on either side.")]
    holds: Annotated[
        bool, Meta(description="Whether it reaches the test's threshold, on the test's side.")
    ]
    suspected: Annotated[
        bool, Meta(description="Whether the test alone says that treatment is worse: to pause it.")
    ]
    declared: Annotated[
        float, Meta(description="Treatment's declared share of the units that are compared.")
    ]
    served: Annotated[float, Meta(description="Its share of them.")]
    units: int


class QuantileLevels(Document, frozen=True, kw_only=True):
    """A quantile of both arms, read between the thresholds."""

    control: float
    treatment: float
    low: Annotated[
        float | None,
        Meta(description="The least that treatment's may be; null where below all thresholds."),
    ]
    high: Annotated[float | None, Meta(description="The most; null where beyond all thresholds.")]


class Threshold(Document, frozen=True, kw_only=True):
    """A threshold of a guardrail: the share of units of each arm whose first value exceeds it."""

    over: float
    quantile: Annotated[
        str | None, Meta(description="Which quantile of the 28 days before the start it was.")
    ]
    control: float | None
    treatment: float | None
    difference: float | None
    interval: Interval | None
    e_value: float
    levels: Annotated[
        QuantileLevels | None,
        Meta(description="That quantile now; null where it lies beyond all thresholds."),
    ]


def shown_threshold(thresholds: Sequence[Threshold]) -> Threshold:
    """Returns the threshold with the most evidence, and first a quantile of both arms."""
    return max(
        thresholds,
        key=lambda each: (
            each.levels is not None
            and each.interval is not None
            # It excludes 0, on the harmful side.
            and each.interval[0] * each.interval[1] > 0
            and each.e_value > 1,
            each.e_value,
        ),
    )


State = Literal["better", "worse", "unfair", "not_known", "breached", "unharmed", "fewer_so_far"]


class MetricRow(Document, frozen=True, kw_only=True):
    """The results of both arms by a metric."""

    metric: Annotated[str, Meta(description="Its name.")]
    role: Annotated[
        Literal["target", "so_far", "guardrail"],
        Meta(
            description="The target comes first; `so_far` is the target after a quarter of its"
            " window, where that is long."
        ),
    ]
    control: Annotated[float | None, Meta(description="The rate, or the mean; null of `arrival`.")]
    treatment: Annotated[float | None, Meta(description="Treatment's.")]
    difference: Annotated[
        float | None,
        Meta(
            description="Treatment minus control, compared block by block: not simply the"
            " difference of the two."
        ),
    ]
    interval: Annotated[
        Interval | None, Meta(description="Where the true difference lies, however often you look.")
    ]
    state: Annotated[
        State,
        Meta(
            description="Of the target better, worse, unfair or not_known; of a guardrail breached,"
            " unharmed or not_known."
        ),
    ]
    thresholds: Annotated[
        tuple[Threshold, ...],
        Meta(
            description="Of a guardrail with thresholds each of them; the row's numbers are of the"
            " threshold with the most evidence."
        ),
    ] = ()
    picked: Annotated[
        bool,
        Meta(
            description="Whether the thresholds are of an event of each unit that was picked by"
            " chance, by which it is breached rather than by its first."
        ),
    ] = False
