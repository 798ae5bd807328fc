"""The traffic below a drawing: the units of each arm over time, and the steps of the ramp."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from domain.drawing.axis import Axis
from domain.drawing.shapes import Place, line, window

HEIGHT = 90.0
_LABEL, _LINES = 16.0, 46.0
# Steps that have so much room say their share.
_LEAST_APART = 80.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a ramp."""

    at: datetime
    share: float


@dataclass(frozen=True, kw_only=True)
class Ramp:
    """The steps of an experiment's treatment, and the units of each arm over time.

    Attributes:
        at: When each period's units were complete, in order: its end, the window and the grace.
        steps: The latest steps up to the look, in order.
    """

    at: Sequence[datetime]
    control: Sequence[int]
    treatment: Sequence[int]
    steps: Sequence[Step]


def traffic_strip(
    ramp: Ramp, time: Axis, top: float, unit: str, text: Callable[..., str]
) -> list[str]:
    """Returns the strip: a stepped line and a count for each arm, and the ramp's steps.

    Args:
        ramp: With at least a period.
    """
    largest = max(*ramp.control, *ramp.treatment, 1)
    upper, lower = top + _LABEL, top + _LABEL + _LINES
    count = Axis(low=0.0, high=1.05 * largest, start=lower, end=upper)
    lines = [
        line("control", *_stepped(ramp.at, ramp.control, time, count)),
        line("treatment", *_stepped(ramp.at, ramp.treatment, time, count)),
    ]
    counts = f"{ramp.treatment[-1]:,} {unit}s of treatment, {ramp.control[-1]:,} of control"
    return [
        window(time, (upper, _LINES), lines),
        *_steps(ramp, time, (top, lower), text),
        text((time.start, lower + 13), counts),
    ]


def _stepped(at: Sequence[datetime], units: Sequence[int], time: Axis, count: Axis) -> list[Place]:
    places: list[Place] = []
    for moment, number in zip(at, units, strict=True):
        x, y = time.at(moment.timestamp()), count.at(float(number))
        if places:
            places.append((x, places[-1][1]))
        places.append((x, y))
    return [*places, (time.end, places[-1][1])]


def _steps(
    ramp: Ramp, time: Axis, heights: tuple[float, float], text: Callable[..., str]
) -> Iterator[str]:
    begin = time.low
    moments = [(step.at.timestamp(), step.share) for step in ramp.steps]
    # The step before the axis begins holds at its left edge.
    shown = [step for step in moments if step[0] <= begin][-1:]
    shown += [step for step in moments if begin < step[0] <= time.high]
    free = time.start
    for at, share in shown:
        x = time.at(max(at, begin))
        if at > begin:
            yield line("step", (x, heights[0]), (x, heights[1]))
        if x >= free:
            yield text((x + 3, heights[0] + 11), f"share {100 * share:g} %")
            free = x + _LEAST_APART
