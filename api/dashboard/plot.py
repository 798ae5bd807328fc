"""The plot of an experiment: the numbers and words from which the script draws its picture."""

from collections.abc import Mapping, Sequence
from typing import Any

from api.dashboard.page.figures import percent, signs
from domain.wording.looks import fired_at, thinned
from domain.wording.picture import Lane, Mark, picture_of
from storage.views.ramp import Ramp

# Finer than a screen shows.
MOST_POINTS = 400


def plot_of(
    document: Mapping[str, Any], contract: Mapping[str, Any], ramp: Ramp | None = None
) -> dict[str, Any] | None:
    """Returns the numbers and words of a plot: differences in the measure's units, seconds.

    Args:
        contract: The verdict contract that stands on it.
        ramp: The units over time and the steps of the ramp; None where they are not known.

    Returns:
        None where there are not two looks with an interval.
    """
    picture = picture_of(document, contract)
    if picture is None or len(picture.drawn) < 2:
        return None
    measure = picture.measure
    fired = fired_at(document, picture.looks)
    shown = thinned(picture.drawn, MOST_POINTS, fired=fired)
    control = measure.control
    return {
        "at": [int(estimate.at) for estimate in shown],
        "low": [estimate.low * measure.scale for estimate in shown],
        "lift": [estimate.lift * measure.scale for estimate in shown],
        "high": [estimate.high * measure.scale for estimate in shown],
        "reached": [float(f"{estimate.reached:.3g}") for estimate in shown],
        "held": _spans(picture.held),
        # The e-value at which the test fires.
        "fires": 1 / document["policy"]["level"],
        "fired": None if fired is None else int(fired),
        "marks": [_mark(mark, measure.scale) for mark in picture.marks],
        "range": [end * measure.scale for end in picture.extent],
        "unit": measure.per,
        "signed": 4 if measure.mean else 2,
        # Of which a difference is a percentage.
        "control": abs(control) * measure.scale if control else None,
        "lanes": [_lane(lane) for lane in picture.lanes],
        "says": [signs(picture.counts), picture.evidence],
        "unit_of_traffic": measure.unit,
        "units": None if ramp is None or not ramp.at else _units(ramp),
        "steps": [] if ramp is None else _steps(ramp),
    }


def _spans(spans: Sequence[tuple[float, float]]) -> list[tuple[int, int]]:
    return [(int(begin), int(end)) for begin, end in spans]


def _mark(mark: Mark, scale: float) -> dict[str, Any]:
    lift = None if mark.lift is None else mark.lift * scale
    return {"words": mark.words, "at": int(mark.at), "lift": lift}


def _lane(lane: Lane) -> dict[str, Any]:
    since = None if lane.since is None else int(lane.since)
    return {
        "name": lane.name,
        "state": lane.state,
        "since": since,
        "tone": lane.tone,
        "spans": _spans(lane.spans),
    }


def _units(ramp: Ramp) -> dict[str, list[int]]:
    return {
        "at": [int(at.timestamp()) for at in ramp.at],
        "control": list(ramp.control),
        "treatment": list(ramp.treatment),
    }


def _steps(ramp: Ramp) -> list[tuple[int, str]]:
    return [(int(step.at.timestamp()), percent(step.share)) for step in ramp.steps]
