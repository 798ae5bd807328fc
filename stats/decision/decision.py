"""The decision: a ruling with the numbers that the verdict contract carries."""

from dataclasses import dataclass
from typing import Any, Self

from domain.words import AbstainReason, Cadence, EndedBecause, Verdict
from stats.decision.ruling import Ruling
from stats.looks.trace import Trace

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The verdict with its numbers; lift, confidence and interval are None in every abstention.

    Attributes:
        abstain_reason: Set exactly where the verdict is `abstain`.
        ended_because: Set exactly where it is final and `abstain`.
        at: The look, epoch seconds; before any look None, or when it was closed by hand.
        cadence: The component with the larger evidence when the test first held; while open, the
            a lift that the traffic suffices for.
        confidence: 1 minus the running minimum of the p-value, at that look.
        ci: The always-valid interval of the lift at that look; of rates cut to [−1, 1].
        value_at_risk: Dollars a day, signed; None without a value per conversion.
    """

    verdict: Verdict
    abstain_reason: AbstainReason | None
    decided: bool
    ended_because: EndedBecause | None
    at: int | None
    cadence: Cadence | None = None
    lift: float | None = None
    confidence: float | None = None
    ci: Interval | None = None
    value_at_risk: float | None = None
    guardrail_breaches: tuple[str, ...] = ()

    @classmethod
    def of(cls, ruling: Ruling, *, at: int | None, **numbers: Any) -> Self:  # noqa: ANN401 - members
        """The decision of a ruling, with the numbers that it has."""
        return cls(
            verdict=ruling.verdict,
            abstain_reason=ruling.abstain_reason,
            decided=ruling.decided,
            ended_because=ruling.ended_because,
            at=at,
            **numbers,
        )


def cadence_fired(trace: Trace, look: int) -> Cadence:
    """The component that had the larger evidence at a look."""
    is_day = bool(trace.log_day[look] >= trace.log_fast[look])
    return Cadence.DAY if is_day else Cadence.FAST
