"""The effect: the number to train on, and the number of the units after a decision alone."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from domain.document import Document, Interval, Moment

Basis = Literal["open", "at_decision", "at_reward"]
FollowUpState = Literal["running", "stopped", "final"]
Stopped = Literal["closed", "withdrawn", "promoted", "superseded", "nothing_to_compare"]

# The relative error up to which a likelihood's posterior mean hardly depends on who stopped it.
PRECISE = 0.05


class AfterDecision(Document, frozen=True, kw_only=True):
    """The effect of the units alone that were exposed after a decision, while both arms are served.

    Of a stopped experiment's the interval alone is given.
    """

    state: Annotated[
        FollowUpState,
        Meta(description="final at the planned end; stopped where an arm was gone before it."),
    ]
    begins_at: Annotated[Moment, Meta(description="The first block after the deciding look.")]
    ends_at: Annotated[Moment, Meta(description="The planned end of exposure.")]
    estimate: float | None
    standard_error: float | None
    interval: Interval | None
    relative: float | None
    value_per_day: float | None
    value_interval: Interval | None
    units: int
    as_of: Moment | None


class Likelihood(Document, frozen=True, kw_only=True):
    """The normal likelihood of the units alone, for a learner that has a prior of its own."""

    estimate: Annotated[
        float,
        Meta(
            description="The lift over both arms' rate or mean; in the metric's unit where"
            " `relative` is null. Multiply it into a prior once, and never the effect too."
        ),
    ]
    standard_error: float
    trainable: Annotated[bool, Meta(description="Once it is final.")]


class Effect(Document, frozen=True, kw_only=True):
    """The best estimate of a change's effect: the number to train on.

    The numbers are null where nothing was compared, and where what differs between the arms is not
    the change alone.
    """

    estimate: Annotated[
        float | None,
        Meta(description="Treatment minus control: the posterior mean by the policy's prior."),
    ]
    standard_error: Annotated[
        float | None, Meta(description="The estimate's. Make no interval of it.")
    ]
    interval: Annotated[
        Interval | None, Meta(description="The always-valid interval of the difference.")
    ]
    relative: Annotated[
        float | None,
        Meta(description="The estimate over control's rate or mean; null where it has none."),
    ]
    likelihood: Annotated[
        Likelihood | None,
        Meta(description="These units without a prior; null of a retrospective experiment."),
    ]
    value_per_day: Annotated[
        float | None,
        Meta(
            description="Dollars a day once every unit has the change; null without a value per"
            " conversion."
        ),
    ]
    value_interval: Interval | None
    basis: Annotated[
        Basis,
        Meta(
            description="The moment of the estimate: the last look, the look that decided, or"
            " reward_at."
        ),
    ]
    units: Annotated[int, Meta(description="Units of both arms that were compared.")]
    final: Annotated[bool, Meta(description="Whether it can change no more.")]
    trainable: Annotated[
        bool,
        Meta(description="From `reward_at` on: final, and its likelihood's error is at most 0.05."),
    ]
    stopped: Annotated[
        Stopped | None,
        Meta(
            description="The event that ended the comparison before a decision and reward_at, or"
            " null."
        ),
    ]
    reward_at: Annotated[
        Moment, Meta(description="When it is final, or the deciding look where that is later.")
    ]
    as_of: Moment | None
    after_decision: Annotated[
        AfterDecision | UnsetType | None,
        Meta(
            description="Only units exposed after the deciding look, for people to compare; null"
            " while open, and after an end without an answer."
        ),
    ] = UNSET
    harm: Annotated[
        float | None,
        Meta(
            description="The probability that the change harms, by its likelihood and the prior of"
            " `prior_of`, or else the policy's; null where the likelihood is."
        ),
    ] = None
    no_effect: Annotated[
        float | None, Meta(description="The probability that it does nothing, by the same.")
    ] = None
    learned: Annotated[float | None, Meta(description="By the learned prior.")] = None
    credible: Annotated[Interval | None, Meta(description="Its 95 % interval.")] = None
    prior_of: str | None = None
