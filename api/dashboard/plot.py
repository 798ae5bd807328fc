"""The plot of an experiment: what the script draws, its interval narrowing down over time."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from domain.measure import measure_of

# Finer than a screen shows.
MOST_POINTS = 400
# Early intervals are as wide as everything: the last part of the time sets the scale.
_SCALED_FROM = 1 / 3

Look = Mapping[str, Any]


def _seconds(told: str) -> int:
    return int(datetime.fromisoformat(told).timestamp())


def plot_of(document: Mapping[str, Any], contract: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the numbers of a plot, differences in the measure's units.

    Returns:
        None where there are not two looks with an interval.
    """
    looks = document.get("looks") or []
    drawn = [look for look in looks if look["ci"] is not None]
    if len(drawn) < 2:
        return None
    measure = measure_of(document)
    fired = fired_at(document)
    shown = _thinned(drawn, fired)
    decided = contract["power_state"]["decided"]
    return {
        "at": [_seconds(look["at"]) for look in shown],
        "low": [look["ci"][0] * measure.scale for look in shown],
        "lift": [look["lift"] * measure.scale for look in shown],
        "high": [look["ci"][1] * measure.scale for look in shown],
        "held": held_spans(looks),
        "fired": None if fired is None else _seconds(fired),
        "decided": _seconds(document["as_of"]) if decided else None,
        "range": [end * measure.scale for end in _extent(drawn)],
        "unit": measure.per,
        "signed": 4 if measure.mean else 2,
    }


def fired_at(document: Mapping[str, Any]) -> str | None:
    """Returns when the test fired: the candidate's time, else the first crossing outside a gate."""
    if (candidate := document.get("candidate")) is not None:
        return candidate["at"]
    level = document["policy"]["level"]
    crossings = (
        look["at"]
        for look in document["looks"]
        if not look["gated"] and look["e_value"] * level >= 1
    )
    return next(crossings, None)


def held_spans(looks: Sequence[Look]) -> list[tuple[int, int]]:
    """Returns from when to when gates held, from look to look; the last may last on."""
    spans: list[tuple[int, int]] = []
    for look, after in zip(looks, [*looks[1:], looks[-1]], strict=True):
        if not look["gated"]:
            continue
        begin, end = _seconds(look["at"]), _seconds(after["at"])
        if spans and spans[-1][1] >= begin:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((begin, end))
    return spans


def _thinned(looks: Sequence[Look], fired: str | None) -> list[Look]:
    """Returns so many looks at most, with the first, the last and the one that fired."""
    last = len(looks) - 1
    if last < MOST_POINTS:
        return list(looks)
    places = {round(place * last / (MOST_POINTS - 2)) for place in range(MOST_POINTS - 1)}
    places |= {place for place, look in enumerate(looks) if look["at"] == fired}
    return [looks[place] for place in sorted(places)]


def _extent(looks: Sequence[Look]) -> tuple[float, float]:
    """Returns the differences between which the plot is informative, zero among them."""
    late = looks[int(len(looks) * _SCALED_FROM) :]
    low = min(0.0, *(look["ci"][0] for look in late))
    high = max(0.0, *(look["ci"][1] for look in late))
    margin = 0.08 * (high - low) or 0.01
    return low - margin, high + margin
