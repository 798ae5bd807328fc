"""A look: what an evidence document says of one point in time, as pictures read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

# Early intervals are as wide as everything: the last part of the time sets the scale.
_SCALED_FROM = 1 / 3


@dataclass(frozen=True, kw_only=True)
class Look:
    """A look.

    Attributes:
        at: When, in seconds since the epoch.
        lift: The point estimate; None before units of both arms were in one block.
        low: The interval's lower end, None with the lift.
        high: The interval's upper end, None with the lift.
        gated: Whether a gate held the answer back.
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
    """What a look says of the difference, once it can say anything."""

    at: float
    lift: float
    low: float
    high: float


def seconds(timestamp: str) -> float:
    """Returns a document's time in seconds since the epoch."""
    return datetime.fromisoformat(timestamp).timestamp()


def clock(at: float) -> str:
    """Returns a time as a picture tells it, in UTC."""
    return f"{datetime.fromtimestamp(at, tz=UTC):%d %b %H:%M}"


def looks_of(document: Mapping[str, Any]) -> list[Look]:
    """Returns the looks of an evidence document in order, none of one that waits."""
    level = document["policy"]["level"] if document.get("looks") else 1.0
    return [
        Look(
            at=seconds(look["at"]),
            lift=look["lift"],
            low=None if look["ci"] is None else look["ci"][0],
            high=None if look["ci"] is None else look["ci"][1],
            gated=look["gated"],
            reached=look["e_value"] * level,
        )
        for look in document.get("looks") or ()
    ]


def estimates(looks: Sequence[Look]) -> list[Estimate]:
    """Returns what can be drawn: the looks with an interval."""
    return [
        Estimate(at=look.at, lift=look.lift, low=look.low, high=look.high)
        for look in looks
        if look.lift is not None and look.low is not None and look.high is not None
    ]


def thinned(found: Sequence[Estimate], most: int) -> list[Estimate]:
    """Returns so many estimates at most, the first and the last among them."""
    if len(found) <= most:
        return list(found)
    return [found[round(place * (len(found) - 1) / (most - 1))] for place in range(most)]


def fired_at(document: Mapping[str, Any], looks: Sequence[Look]) -> float | None:
    """Returns when the test fired: the candidate's time, else the first crossing outside a gate."""
    if (candidate := document.get("candidate")) is not None:
        return seconds(candidate["at"])
    return next((look.at for look in looks if look.fires), None)


def extent(found: Sequence[Estimate]) -> tuple[float, float]:
    """Returns the differences between which a picture is informative, zero among them."""
    since = found[0].at + _SCALED_FROM * (found[-1].at - found[0].at)
    late = [one for one in found if one.at >= since]
    low = min(0.0, *(one.low for one in late))
    high = max(0.0, *(one.high for one in late))
    margin = 0.06 * (high - low) or 0.01
    return low - margin, high + margin


def held_spans(looks: Sequence[Look]) -> list[tuple[float, float]]:
    """Returns from when to when gates held, from look to look; the last may last on."""
    spans: list[tuple[float, float]] = []
    for look, after in zip(looks, [*looks[1:], looks[-1]], strict=True):
        if not look.gated:
            continue
        if spans and spans[-1][1] >= look.at:
            spans[-1] = (spans[-1][0], after.at)
        else:
            spans.append((look.at, after.at))
    return spans
