"""The plot of the evidence: how far each experiment's e-value has come towards its threshold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domain.wording.looks import looks_of
from orchestration.pictures import svg
from orchestration.pictures.axis import Axis, round_steps

_COLOURS = (svg.BLUE, svg.VERMILION, svg.GREEN, svg.PURPLE, svg.ORANGE, svg.SKY)
MOST_CURVES = len(_COLOURS)
_MOST_POINTS = 100

_WIDTH, _HEIGHT = 700, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 524, 34, 256
# In decades of e-value to threshold. What lies beyond is drawn at the edge.
_LOWEST, _HIGHEST = -3.0, 2.0
_HOUR, _DAY = 3600.0, 86_400.0


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The looks at one experiment.

    Attributes:
        name: Of the experiment.
        seconds: Since its first look, of each look.
        decades: log₁₀ of the e-value to the threshold: at 0 the test fires.
    """

    name: str
    seconds: list[float]
    decades: list[float]


def curve(document: Mapping[str, Any]) -> Curve | None:
    """Returns the curve of an evidence document, None of one without looks."""
    looks = looks_of(document)
    if not looks:
        return None
    looks = [*looks[: -1 : max(1, len(looks) // _MOST_POINTS)], looks[-1]]
    return Curve(
        name=document["experiment_id"],
        seconds=[look.at - looks[0].at for look in looks],
        decades=[math.log10(max(look.reached, 1e-300)) for look in looks],
    )


def evidence_plot(documents: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns the plot as an SVG text: the curves that came nearest to their thresholds.

    Returns:
        None where no document has a look.
    """
    curves = [drawn for document in documents if (drawn := curve(document)) is not None]
    nearest = sorted(curves, key=lambda drawn: (-drawn.decades[-1], drawn.name))[:MOST_CURVES]
    if not nearest:
        return None
    longest = max(drawn.seconds[-1] for drawn in nearest) or _HOUR
    time = Axis(low=0.0, high=longest, start=_LEFT, end=_RIGHT)
    drawn = [
        _curve(drawn, _COLOURS[number], time=time, row=number)
        for number, drawn in enumerate(nearest)
    ]
    return svg.picture(_WIDTH, _HEIGHT, [*_grid(), *_axis(time), *drawn])


_DECADES = Axis(low=_LOWEST, high=_HIGHEST, start=_BOTTOM, end=_TOP)


def _grid() -> list[str]:
    shapes = [svg.words(12, _TOP - 16, "e-value, as a multiple of the one at which the test fires")]
    for decade in range(int(_LOWEST), int(_HIGHEST) + 1):
        y, fires = _DECADES.at(decade), decade == 0
        label = "fires" if fires else f"{10.0**decade:g} ×"
        dashes = {"stroke_dasharray": "5 3"} if fires else {}
        stroke = svg.INK if fires else svg.FAINT
        shapes.append(svg.line((_LEFT, y), (_RIGHT, y), stroke=stroke, **dashes))
        shapes.append(svg.words(_LEFT - 6, y + 4, label, anchor="end", bold=fires))
    return shapes


def _axis(time: Axis) -> list[str]:
    unit, name = (_DAY, "days") if time.high > 2 * _DAY else (_HOUR, "hours")
    ticks = [
        svg.words(time.at(step * unit), _BOTTOM + 16, f"{step:g}", anchor="middle")
        for step in round_steps(0.0, time.high / unit, limit=6)
    ]
    middle = (_LEFT + _RIGHT) / 2
    return [
        *ticks,
        svg.words(middle, _BOTTOM + 34, f"{name} since the first look", anchor="middle"),
    ]


def _curve(curve: Curve, colour: str, *, time: Axis, row: int) -> str:
    points = [
        (time.at(seconds), _DECADES.at(min(max(decades, _LOWEST), _HIGHEST)))
        for seconds, decades in zip(curve.seconds, curve.decades, strict=True)
    ]
    x, y = points[-1]
    # Of a single look the dot alone is seen.
    return (
        svg.path(
            [points[0], *points], class_="curve", fill="none", stroke=colour, stroke_width="1.8"
        )
        + f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
        + f'<circle cx="{_RIGHT + 16}" cy="{_TOP + 8 + 16 * row}" r="3.5" fill="{colour}"/>'
        + svg.words(_RIGHT + 26, _TOP + 12 + 16 * row, curve.name, fill=svg.INK)
    )
