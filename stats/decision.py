"""The decision: a ruling with the numbers that the verdict contract carries."""

from dataclasses import dataclass

from stats.outlook import Outlook
from stats.policy import Policy
from stats.trace import Trace
from stats.verdict import AbstainReason, Cadence, EndedBecause, Ruling, Verdict

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The verdict with its numbers; lift, confidence and interval are None in every abstention.

    Attributes:
        verdict: What to do.
        abstain_reason: Set exactly where the verdict is `abstain`.
        decided: Whether it is final.
        ended_because: Set exactly where it is final and `abstain`.
        at: The look, epoch seconds; before any look None, or when it was closed by hand.
        cadence: The component that fired; while open, the one that the traffic suffices for.
        lift: Treatment's rate minus control's.
        confidence: 1 minus the running minimum of the p-value.
        ci: The always-valid interval of the lift, cut to [−1, 1].
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


def abstention(ruling: Ruling, *, at: int | None, cadence: Cadence | None) -> Decision:
    """The decision of a ruling without an answer."""
    return Decision(
        verdict=ruling.verdict,
        abstain_reason=ruling.abstain_reason,
        decided=ruling.decided,
        ended_because=ruling.ended_because,
        at=at,
        cadence=cadence,
    )


def answer(
    ruling: Ruling,
    trace: Trace,
    *,
    policy: Policy,
    outlook: Outlook,
    lift: float,
    ci: Interval,
    p_running_min: float,
) -> Decision:
    """The decision of a ruling that a crossing made; its numbers freeze at this look."""
    look = ruling.look
    is_day = bool(trace.log_day[look] >= trace.log_fast[look])
    value, traffic = policy.value_per_conversion, outlook.eligible_per_day
    return Decision(
        verdict=ruling.verdict,
        abstain_reason=None,
        decided=ruling.decided,
        ended_because=None,
        at=int(trace.at[look]),
        cadence=Cadence.DAY if is_day else Cadence.FAST,
        lift=lift,
        confidence=1.0 - p_running_min,
        ci=ci,
        value_at_risk=None if value is None or traffic is None else lift * traffic * value,
    )
