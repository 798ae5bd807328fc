"""The plot of an experiment: the numbers from which the script draws its interval over time."""

from collections.abc import Mapping
from typing import Any

from domain.measure import measure_of
from domain.wording.looks import (
    estimates,
    extent,
    fired_at,
    held_spans,
    looks_of,
    seconds,
    thinned,
)

# Finer than a screen shows.
MOST_POINTS = 400


def plot_of(document: Mapping[str, Any], contract: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the numbers of a plot, differences in the measure's units.

    Returns:
        None where there are not two looks with an interval.
    """
    looks = looks_of(document)
    drawn = estimates(looks)
    if len(drawn) < 2:
        return None
    measure = measure_of(document)
    fired = fired_at(document, looks)
    shown = thinned(drawn, MOST_POINTS, fired=fired)
    decided = contract["power_state"]["decided"]
    return {
        "at": [int(estimate.at) for estimate in shown],
        "low": [estimate.low * measure.scale for estimate in shown],
        "lift": [estimate.lift * measure.scale for estimate in shown],
        "high": [estimate.high * measure.scale for estimate in shown],
        "held": [(int(begin), int(end)) for begin, end in held_spans(looks)],
        "fired": None if fired is None else int(fired),
        "decided": int(seconds(document["as_of"])) if decided else None,
        "range": [end * measure.scale for end in extent(drawn)],
        "unit": measure.per,
        "signed": 4 if measure.mean else 2,
    }
