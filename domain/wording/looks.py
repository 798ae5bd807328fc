"""The looks of an evidence document as pictures show them, and the scale that they share."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from domain.evidence.document import Evidence

# Early intervals are as wide as everything: the last part of the time sets the scale.
_SCALED_FROM = 1 / 3
_BEYOND_DOUBT = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Look:
    """A look.

    Attributes:
        at: When, in seconds since the epoch.
        lift: The point estimate; None before units of both arms were in a block.
        low: The interval's lower end, None with the lift.
        high: The interval's upper end, None with the lift.
        reached: The e-value by the threshold: at 1 the test fires.
    """

    at: float
    lift: float | None
    low: float | None
    high: float | None
    gated: bool
    reached: float

    @property
    def fires(self) -> bool:
        """Whether the test fires at this look, were it the first to."""
        return self.reached >= 1 and not self.gated


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The estimate of a look, its interval, and its e-value by the threshold."""

    at: float
    lift: float
    low: float
    high: float
    reached: float


def clock(at: float) -> str:
    """Returns a time as pictures write it, in UTC."""
    return f"{datetime.fromtimestamp(at, tz=UTC):%d %b %H:%M}"


def e_value_text(value: float) -> str:
    """Returns an e-value as people read it: three digits, or that it is over a million."""
    if value > _BEYOND_DOUBT:
        return f"over {_BEYOND_DOUBT:,}"
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if value >= 100 else digits


def looks_of(evidence: Evidence) -> list[Look]:
    """Returns the looks of an evidence document in order."""
    return [
        Look(
            at=look.at.timestamp(),
            lift=look.lift,
            low=None if look.ci is None else look.ci[0],
            high=None if look.ci is None else look.ci[1],
            gated=look.gated,
            reached=look.e_value * evidence.policy.level,
        )
        for look in evidence.looks
    ]


def estimates(looks: Sequence[Look]) -> list[Estimate]:
    """Returns the looks that have an interval, which alone can be drawn."""
    return [
        Estimate(at=look.at, lift=look.lift, low=look.low, high=look.high, reached=look.reached)
        for look in looks
        if look.lift is not None and look.low is not None and look.high is not None
    ]


def thinned(drawn: Sequence[Estimate], limit: int, *, fired: float | None = None) -> list[Estimate]:
    """Returns at most `limit` estimates: the first, the last, and where the test fired.

    Args:
        drawn: The estimates in order.
    """
    if len(drawn) <= limit:
        return list(drawn)
    # An estimate is of the look that fired.
    last, count = len(drawn) - 1, limit - 1
    places = {round(number * last / (count - 1)) for number in range(count)}
    places |= {place for place, estimate in enumerate(drawn) if estimate.at == fired}
    return [drawn[place] for place in sorted(places)]


def fired_at(evidence: Evidence, looks: Sequence[Look]) -> float | None:
    """Returns when the test fired: the candidate's time, else the first crossing outside a gate."""
    if evidence.candidate is not None:
        return evidence.candidate.at.timestamp()
    return next((look.at for look in looks if look.fires), None)


def extent(drawn: Sequence[Estimate]) -> tuple[float, float]:
    """Returns the differences between which a picture is informative, zero among them."""
    since = drawn[0].at + _SCALED_FROM * (drawn[-1].at - drawn[0].at)
    late = [estimate for estimate in drawn if estimate.at >= since]
    low = min(0.0, *(estimate.low for estimate in late))
    high = max(0.0, *(estimate.high for estimate in late))
    margin = 0.06 * (high - low) or 0.01
    return low - margin, high + margin


def held_spans(looks: Sequence[Look]) -> list[tuple[float, float]]:
    """Returns the spans of time in which gates held, from look to look."""
    spans: list[tuple[float, float]] = []
    for look, after in zip(looks, [*looks[1:], looks[-1]], strict=True):
        if not look.gated:
            continue
        if spans and spans[-1][1] >= look.at:
            spans[-1] = (spans[-1][0], after.at)
        else:
            spans.append((look.at, after.at))
    return spans
