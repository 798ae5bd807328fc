"""The traffic below a picture: the units of each arm over time, and the steps of the ramp."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from orchestration.pictures import svg
from orchestration.pictures.axis import Axis
from storage.views.ramp import Ramp

HEIGHT = 64
_LABEL = 14
# Where steps come faster, those that have room say their share.
_LEAST_APART = 66.0


def traffic_strip(ramp: Ramp, time: Axis, *, top: float, unit: str) -> list[str]:
    """Returns the strip: a stepped line for each arm, its count beside it, and the ramp's steps.

    Args:
        ramp: With at least one period.
        time: The axis of the picture above.
        top: The upper edge.
        unit: The randomization unit.
    """
    largest = max(*ramp.control, *ramp.treatment, 1)
    count = Axis(low=0.0, high=1.05 * largest, start=top + HEIGHT, end=top + _LABEL)
    width = time.end - time.start
    arms = (("control", ramp.control, svg.QUIET), ("treatment", ramp.treatment, svg.BLUE))
    lines = [
        svg.path(_stepped(ramp.at, units, time, count), id=name, fill="none", stroke=colour)
        for name, units, colour in arms
    ]
    above = sorted(arms, key=lambda arm: -arm[1][-1])
    middle = top + (_LABEL + HEIGHT) / 2
    return [
        svg.words(time.start - 6, middle + 4, f"{unit}s", anchor="end"),
        svg.window((time.start, top), width, HEIGHT, lines),
        *_steps(ramp, time, top),
        *(
            svg.words(time.end + 8, middle - 2 + 14 * row, f"{units[-1]:,} {name}", fill=colour)
            for row, (name, units, colour) in enumerate(above)
        ),
    ]


def _stepped(
    at: Sequence[datetime], units: Sequence[int], time: Axis, count: Axis
) -> list[svg.Point]:
    points: list[svg.Point] = []
    for moment, number in zip(at, units, strict=True):
        x, y = time.at(moment.timestamp()), count.at(float(number))
        if points:
            points.append((x, points[-1][1]))
        points.append((x, y))
    points.append((time.end, points[-1][1]))
    return points


def _steps(ramp: Ramp, time: Axis, top: float) -> Iterator[str]:
    begin = time.low
    moments = [(step.at.timestamp(), step.share) for step in ramp.steps]
    # The step before the axis begins holds at its left edge.
    shown = [*[step for step in moments if step[0] <= begin][-1:]]
    shown += [step for step in moments if begin < step[0] <= time.high]
    free = time.start
    for at, share in shown:
        x = time.at(max(at, begin))
        if at > begin:
            ends = ((x, top), (x, top + HEIGHT))
            yield svg.line(*ends, stroke=svg.QUIET, stroke_dasharray="1 3")
        if x >= free:
            yield svg.words(x + 3, top + 9, f"share {100 * share:g} %")
            free = x + _LEAST_APART
