"""An entry of the ledger: an experiment that was judged, and its claim."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from domain.document import Document, Moment

Standing = Literal["yes", "not_yet", "no"]


class ListedChange(Document, frozen=True, kw_only=True):
    """An experiment, and the effects of its change, relative to control."""

    experiment_id: str
    metric: str
    treatment_commit: str | None
    title: Annotated[str | None, Meta(description="The first line of the commit's message.")]
    actor: str | None
    log_e: Annotated[
        float | None,
        Meta(description="Logarithm of the e-value, the units after the decision included."),
    ]
    claimed: Annotated[float | None, Meta(description="The contract's lift.")]
    at_decision: Annotated[float | None, Meta(description="The effect at the decision.")]
    after_decision: Annotated[
        float | None,
        Meta(description="The effect after the decision; null before the follow-up is final."),
    ]
    harm: Annotated[float | None, Meta(description="As its effect says: the chance of harm.")]
    no_effect: Annotated[float | None, Meta(description="The chance that it does nothing.")]


class LedgerKeep(ListedChange, frozen=True, kw_only=True):
    """A keep, with its effects relative to control."""

    decided_at: Moment
    stands: Annotated[
        Standing,
        Meta(
            description="not_yet: no follow-up ran to its end, and the test stopped where it"
            " crossed."
        ),
    ]


class Entry(ListedChange, frozen=True, kw_only=True):
    """An experiment that had a look within the ledger's days; only a keep has numbers.

    Attributes:
        level: The level that it was tested at: of a change without an effect the chance of any
            answer.
        followed: The state of its follow-up; None where there is none.
    """

    verdict: str
    at: Moment
    level: float
    followed: str | None
    measured_error: float | None
    asked_at: datetime
    decided: bool
    changes: int
    outcome: str | None
    units: int | None
    retrospective: bool = False

    @property
    def answered(self) -> bool:
        """Whether it has a verdict, or a loss beyond the accepted share was excluded."""
        return self.verdict != "abstain" or self.outcome == "harmless"

    @property
    def hours(self) -> float:
        """Hours until its last look."""
        return (self.at - self.asked_at).total_seconds() / 3600

    def keep(self, stands: Standing) -> LedgerKeep:
        """Returns a keep as the ledger lists it."""
        members = {name: getattr(self, name) for name in ListedChange.__struct_fields__}
        return LedgerKeep(**members, decided_at=self.at, stands=stands)
