"""The counts in an evidence document: units, outcomes and traffic, as of its look."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from domain.document import Document, Moment


class Arm(Document, frozen=True, kw_only=True):
    """The units of an arm in closed blocks, of the strata that hold both arms."""

    units: int
    conversions: int
    rate: Annotated[float | None, Meta(description="Conversions divided by units.")]
    total: Annotated[
        float | None,
        Meta(
            description="Of a mean the sum of all values, capped; of a ratio the events that count."
        ),
    ] = None
    per: Annotated[
        float | None, Meta(description="Of a ratio alone: the events that `total` is divided by.")
    ] = None
    mean: Annotated[
        float | UnsetType | None,
        Meta(description="Of a mean the value a unit, of a ratio `total` for each of `per`."),
    ] = UNSET
    late: Annotated[int, Meta(description="Units whose outcome came after their block had closed.")]

    @property
    def level(self) -> float | None:
        """The rate, or the mean where it has a mean."""
        return self.rate if self.mean is UNSET else self.mean


class Arms(Document, frozen=True, kw_only=True):
    """Both arms."""

    control: Arm
    treatment: Arm


class Sessions(Document, frozen=True, kw_only=True):
    """Traffic so far, and the traffic that a verdict needs."""

    accumulated: Annotated[
        int, Meta(description="Units compared so far, of blocks that have closed.")
    ]
    required: Annotated[
        float | None,
        Meta(
            description="Units that find the smallest typical lift in 80 % of experiments; null"
            " before 100 control units and both arms."
        ),
    ]
    required_fast: Annotated[
        float | None, Meta(description="The same of the largest typical lift.")
    ]
    per_day: Annotated[
        float | None, Meta(description="Units of all builds in the last 24 hours, or a day so far.")
    ]
    projected_decision_at: Annotated[
        Moment | None,
        Meta(
            description="When `required` is reached; null where that is unknown, past, or beyond"
            " the horizon, and once decided."
        ),
    ]


class TippingPoint(Document, frozen=True, kw_only=True):
    """How many invented sessions would explain the lift."""

    sessions: Annotated[
        int,
        Meta(description="Converting units that explain it, added to the arm that does better."),
    ]
    unseen: Annotated[
        int | None,
        Meta(
            description="About how many the sample ratio lets pass; null at undeclared shares: any."
        ),
    ]


class Vouched(Document, frozen=True, kw_only=True):
    """The outcomes that came with the write key, or signed: those that cannot be invented."""

    conversions: Annotated[int, Meta(description="Units with such an outcome.")]
    of: Annotated[int, Meta(description="Units with any outcome.")]
    e_value: Annotated[float, Meta(description="E(0) of them alone.")]
    holds: Annotated[bool, Meta(description="Whether they alone show the same answer.")]

    @property
    def in_part(self) -> bool:
        """Whether some outcomes are vouched for, and others are not."""
        return 0 < self.conversions < self.of


class LeftOut(Document, frozen=True, kw_only=True):
    """The units that an arm served, or outcomes of counted units, that do not count."""

    reason: Annotated[
        str,
        Meta(
            description="Of units as in `counts`: `in_flight`, `excluded`, `warming`,"
            " `compared_with_none`, `late`, `unmatched_route`, `unknown_user`. Of outcomes: `late`,"
            " `other_currency`, `no_value`, `not_vouched`, `empty`."
        ),
    ]
    of: Literal["units", "outcomes"]
    control: int
    treatment: int


class Counts(Document, frozen=True, kw_only=True):
    """Units as of the look.

    From `in_cells` to `partial`, with `excluded` and `warming`, they add up to the units with an
    event on the experiment's routes.
    """

    in_cells: Annotated[int, Meta(description="Compared: those of `arms`.")]
    compared_with_none: Annotated[
        int, Meta(description="Of builds with a single arm: a third build, or a hold-back.")
    ] = 0
    open: Annotated[int, Meta(description="Exposed, and their outcomes are still waited for.")]
    late: Annotated[
        int, Meta(description="Exposed by an event that came after its block had closed.")
    ]
    in_flight: Annotated[int, Meta(description="Seen before the start already, so in neither arm.")]
    unknown_commit: Annotated[int, Meta(description="Of commits that no deploy names.")]
    unknown_build: Annotated[
        int, Meta(description="Of events alone that name no commit: nobody knows what served them.")
    ] = 0
    unknown_user: Annotated[
        int, Meta(description="Sessions of a build that name no user, where users are the units.")
    ] = 0
    ambiguous_commit: Annotated[
        int, Meta(description="Of commit ids so short that they begin several commits.")
    ]
    partial: Annotated[int, Meta(description="Served some changes of the treatment, and not all.")]
    crossover: Annotated[int, Meta(description="Seen in both arms within their window.")]
    excluded: Annotated[int, Meta(description="Of strata beyond those that are compared.")]
    warming: Annotated[int, Meta(description="Of the first minutes, as `warmup_minutes` says.")]
    unmatched_route: Annotated[int, Meta(description="Of paths that are not in the static graph.")]
    unsigned: Annotated[
        int | None,
        Meta(description="Without the router's signature, where signatures are asked for."),
    ] = None
