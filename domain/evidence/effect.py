"""The effect: the number to train on, of the verdict and of the units that came after it."""

from datetime import datetime
from typing import Annotated, Literal, Self

from msgspec import UNSET, Meta, UnsetType, structs

from domain.document import Document, Interval, Moment

Basis = Literal["open", "at_decision", "after_decision"]
FollowUpState = Literal["running", "stopped", "final"]


class AfterDecision(Document, frozen=True, kw_only=True):
    """The effect of the units that were exposed after a decision, while both arms are served.

    Its numbers are those of an effect; of a stopped experiment's the interval alone is given.
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
    basis: Basis
    units: int
    final: bool
    as_of: Moment | None


class Effect(Document, frozen=True, kw_only=True):
    """The best estimate of a change's effect: the number to train on.

    The numbers are null where nothing was compared, and where what differs between the arms is not
    the change alone.
    """

    estimate: Annotated[
        float | None,
        Meta(
            description="Treatment minus control: shrunk by as much as the test doubts it while"
            " open and at the decision, unbiased once measured afresh."
        ),
    ]
    standard_error: Annotated[
        float | None,
        Meta(description="The estimate's standard deviation. Make no interval of it."),
    ]
    interval: Annotated[
        Interval | None, Meta(description="The always-valid interval of the difference.")
    ]
    relative: Annotated[
        float | None, Meta(description="The estimate divided by control's rate or mean.")
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
            description="The moment of the estimate: the last look, the one that decided, or the"
            " end of the week after it."
        ),
    ]
    units: Annotated[int, Meta(description="Units of both arms that were compared.")]
    final: Annotated[
        bool,
        Meta(
            description="Whether the estimate can change no more; one at the decision may be"
            " replaced once, by a fresh one, a week after the decision."
        ),
    ]
    as_of: Moment | None
    after_decision: Annotated[
        AfterDecision | UnsetType | None,
        Meta(
            description="Units that were exposed after the deciding look alone; null while open,"
            " and after an end without an answer."
        ),
    ] = UNSET

    def served(self, after: AfterDecision | None) -> Self:
        """Returns the number to train on: after a decision the fresh effect, once it is final.

        Before its planned end the fresh estimate is a number to watch: an experiment that is
        stopped on good news would show a lucky effect.

        Args:
            after: The units after the decision; None where the experiment is open or ended
                without an answer.
        """
        if after is None or not after.final or after.estimate is None:
            return structs.replace(self, after_decision=after)
        fresh = {name: getattr(after, name) for name in _NUMBERS}
        return structs.replace(self, **fresh, after_decision=after)


_NUMBERS = [name for name in Effect.__struct_fields__ if name != "after_decision"]
_NO_EFFECT = Effect(
    estimate=None,
    standard_error=None,
    interval=None,
    relative=None,
    value_per_day=None,
    value_interval=None,
    basis="after_decision",
    units=0,
    final=False,
    as_of=None,
)


def after_decision(
    state: FollowUpState, begins_at: datetime, ends_at: datetime, effect: Effect | None
) -> AfterDecision:
    """Returns the units after a decision.

    Args:
        effect: The effect that they give; None before their first look.
    """
    known = effect or _NO_EFFECT
    numbers = {name: getattr(known, name) for name in _NUMBERS}
    return AfterDecision(state=state, begins_at=begins_at, ends_at=ends_at, **numbers)
