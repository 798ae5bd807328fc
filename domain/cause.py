"""The causes of a lift that is not the change's: their words, limits and checks."""

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from domain.document import Document


class Cause(StrEnum):
    """The cause of a lift that is not the change's."""

    SAMPLE_RATIO = "sample_ratio"
    DRAW = "draw"
    CROSSOVER = "crossover"
    LATENESS = "lateness"
    INTERACTION = "interaction"
    AFTER_WINDOW = "after_window"
    OTHER_CURRENCY = "other_currency"
    NO_VALUE = "no_value"
    NOT_VOUCHED = "not_vouched"
    EMPTY = "empty"
    UNIT = "unit"
    TURNOVER = "turnover"
    CHANNELS = "channels"
    BEFORE_EXPOSURE = "before_exposure"
    CONTROL_UNNAMED = "control_unnamed"
    USER_UNNAMED = "user_unnamed"


# The reasons for which means leave outcomes out, and those for which any metric does.
LEFT_OUT_OF_MEANS = (Cause.OTHER_CURRENCY, Cause.NO_VALUE)
LEFT_OUT = (*LEFT_OUT_OF_MEANS, Cause.NOT_VOUCHED, Cause.EMPTY)

# So many units that were served both arms, and more than such a share of all: no router is sticky.
MIN_CROSSINGS = 10
MOST_CROSSED = 0.05
# How many visitors of an arm must have come back before a router is judged by them: 30 at a share
# of a half, and 30·π/(1−π) at a share π, where half of the way from a lottery to a router that
# keeps all is as far beyond chance; 10 at least. Looks are many: a lottery reaches it at some look
# in less than 0.01 of runs at any share; with 20 at a share of a half it did in 0.025.
FEWEST_RETURNING = 10
MANY_RETURNING = 30
KEPT_HALF_WAY = 0.5


class GateCheck(Document, frozen=True, kw_only=True):
    """A gate as of a look, in the words of its row on pages."""

    name: Annotated[str, Meta(description="What must hold for a comparison to be fair.")]
    state: Literal["holds", "fails", "differs", "not_known"]
    number: Annotated[str | None, Meta(description="The gate's number as people read it.")]
    detail: Annotated[str | None, Meta(description="More of what it is about, in words.")]
    cause: Annotated[
        Cause | None, Meta(description="The word in `interacting_because` where it fails.")
    ]
    step: Annotated[str, Meta(description="What to do where it fails.")]
    stays: Annotated[
        bool, Meta(description="Whether a failure stays, so that only a new experiment helps.")
    ]

    def word(self, *, is_final: bool) -> str:
        """Its state as people read it; once a verdict is final, no look will know more."""
        said = {"holds": "passes", "fails": "fails", "differs": "differs"}
        return said.get(self.state, "cannot be known" if is_final else "not known yet")
