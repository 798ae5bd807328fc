"""The picture of one experiment: its interval narrowing down over time, and its outcome."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from domain.wording.looks import Look, clock, thinned
from domain.wording.picture import Lane, Mark, Picture, picture_of
from orchestration.pictures import svg
from orchestration.pictures.axis import Axis, round_steps, time_steps
from orchestration.pictures.colour import colour_of
from orchestration.pictures.traffic import HEIGHT, traffic_strip
from storage.views.ramp import Ramp

WIDTH = 700
# Finer than a pixel shows, and a record of each materialization is kept.
_MOST_POINTS = 120
_LEFT, _RIGHT, _PLOT = 84, 552, 190
_LANE, _LINE = 18, 16
# What fits a place, by the breadth of a letter.
_MOST_OF_NAME, _MOST_OF_TITLE, _MOST_OF_LINE = 12, 24, 112
_HATCH = (
    '<defs><pattern id="held" width="6" height="6" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(45)"><rect width="6" height="6" fill="#eeeeee"/>'
    '<rect width="2" height="6" fill="#999999"/></pattern></defs>'
)
_HELD = "url(#held)"
_TONES = {
    "held": (_HELD, svg.QUIET),
    "fault": (svg.DEEP_VERMILION, svg.DEEP_VERMILION),
    "ok": (svg.DEEP_GREEN, svg.DEEP_GREEN),
    "unknown": (svg.QUIET, svg.QUIET),
}


@dataclass(frozen=True, kw_only=True)
class _Scene:
    """A picture, and the axes on which it is drawn."""

    picture: Picture
    time: Axis
    value: Axis
    top: float

    @property
    def colour(self) -> str:
        return colour_of(self.picture.headline)

    @property
    def bottom(self) -> float:
        return self.top + _PLOT


def interval_picture(
    document: Mapping[str, Any], contract: Mapping[str, Any], ramp: Ramp | None = None
) -> str | None:
    """Returns an experiment's evidence as an SVG.

    A band from the interval's lower to its upper end with the estimate in it; the line of no
    difference; where the test fired and where the verdict was decided; hatched where a gate held;
    a lane for each guardrail. What lies beyond the scale is cut off.

    Args:
        contract: The verdict contract that stands on it.
        ramp: The units over time and the steps of the ramp; None where they are not known.

    Returns:
        None before the first look.
    """
    picture = picture_of(document, contract)
    if picture is None:
        return None
    sentence = textwrap.wrap(document["sentence"], _MOST_OF_LINE, max_lines=3, placeholder=" …")
    scene = _scene(picture, top=84.0 + _LINE * len(sentence))
    below, traffic = scene.bottom + 44, list[str]()
    if ramp is not None and ramp.at:
        traffic = traffic_strip(ramp, scene.time, top=below, unit=picture.measure.unit)
        below += HEIGHT + 8
    lanes = [_lane(scene, lane, below + _LANE * row) for row, lane in enumerate(picture.lanes)]
    foot = below + _LANE * len(lanes) + 8
    at = document["as_of"].replace("T", " ")[:16]
    says = [picture.counts, f"{picture.evidence}; as of {at} UTC"]
    return svg.picture(
        WIDTH,
        round(foot + 64),
        [
            _HATCH,
            *_title(scene, contract, sentence),
            *_plot(scene),
            *traffic,
            *lanes,
            *_foot(says, foot),
            *_legend(foot + 38 + _LINE, document["policy"]["level"]),
        ],
    )


def _scene(picture: Picture, *, top: float) -> _Scene:
    begin, end = picture.looks[0].at, picture.looks[-1].at
    # Of a single look, or two at once: a block's breadth to each side.
    breadth = 150.0 if end == begin else 0.0
    low, high = picture.extent
    return _Scene(
        picture=picture,
        time=Axis(low=begin - breadth, high=end + breadth, start=_LEFT, end=_RIGHT),
        value=Axis(low=low, high=high, start=top + _PLOT, end=top),
        top=top,
    )


# --- What it says ------------------------------------------------------------------------------


def _short(name: str, limit: int) -> str:
    return name if len(name) <= limit else f"{name[: limit - 1]}…"


def _title(scene: _Scene, contract: Mapping[str, Any], sentence: Sequence[str]) -> list[str]:
    measure = scene.picture.measure
    parts = [scene.picture.headline.text, _short(measure.name, _MOST_OF_TITLE)]
    if contract["lift"] is not None:
        parts.append(measure.difference(contract["lift"]))
    return [
        svg.words(12, 24, " · ".join(parts), fill=scene.colour, size=16, bold=True),
        svg.words(WIDTH - 10, 24, contract["experiment_id"], anchor="end", size=10),
        *(
            svg.words(12, 44 + _LINE * row, line, fill=svg.INK, size=12)
            for row, line in enumerate(sentence)
        ),
    ]


def _foot(lines: Sequence[str], top: float) -> list[str]:
    return [
        svg.words(12, top + 14 + _LINE * row, line, fill=svg.INK) for row, line in enumerate(lines)
    ]


def _legend(y: float, level: float) -> list[str]:
    return [
        svg.area((12, y - 9), 18, 10, fill=svg.BLUE, fill_opacity="0.25"),
        svg.words(34, y, f"{100 * (1 - level):.4g} % interval, however often one looks"),
        svg.line((272, y - 4), (290, y - 4), stroke=svg.BLUE, stroke_width="2"),
        svg.words(294, y, "estimate"),
        svg.line((356, y - 4), (374, y - 4), stroke=svg.INK, stroke_dasharray="4 3"),
        svg.words(378, y, "no difference"),
        svg.area((466, y - 9), 18, 10, fill=_HELD),
        svg.words(488, y, "a gate holds"),
        _diamond(568, y - 4, svg.INK),
        svg.words(578, y, "the test fired"),
    ]


# --- What it shows -----------------------------------------------------------------------------


def _plot(scene: _Scene) -> list[str]:
    corner, width = (_LEFT, scene.top), _RIGHT - _LEFT
    return [
        svg.words(12, scene.top - 32, f"treatment minus control, {scene.picture.measure.per}"),
        *_grid(scene),
        svg.window(corner, width, _PLOT, [*_held(scene), *_band(scene)]),
        svg.line(
            (_LEFT, scene.value.at(0.0)),
            (_RIGHT, scene.value.at(0.0)),
            id="no-difference",
            stroke=svg.INK,
            stroke_dasharray="4 3",
        ),
        *_marks(scene),
        *_ends(scene),
    ]


def _grid(scene: _Scene) -> list[str]:
    shapes: list[str] = []
    scale = scene.picture.measure.scale
    steps = round_steps(scene.value.low * scale, scene.value.high * scale, limit=6)
    for step in steps if scene.picture.drawn else [0.0]:
        y = scene.value.at(step / scale)
        shapes.append(svg.line((_LEFT, y), (_RIGHT, y), stroke=svg.FAINT))
        label = f"{step:+.6g}" if step else "0"
        shapes.append(svg.words(_LEFT - 6, y + 4, label, anchor="end", bold=not step))
    for at, label in time_steps(scene.time.low, scene.time.high, limit=7):
        x = scene.time.at(at)
        shapes.append(svg.line((x, scene.bottom), (x, scene.bottom + 4), stroke=svg.QUIET))
        shapes.append(svg.words(x, scene.bottom + 16, label, anchor="middle"))
    shapes.append(
        svg.line((_LEFT, scene.bottom), (_RIGHT, scene.bottom), stroke=svg.QUIET),
    )
    shapes.append(svg.words(_LEFT, scene.bottom + 32, _span(scene.picture.looks)))
    return shapes


def _span(looks: Sequence[Look]) -> str:
    if len(looks) == 1:
        return f"1 look, {clock(looks[0].at)} UTC"
    return f"{len(looks)} looks, {clock(looks[0].at)} to {clock(looks[-1].at)} UTC"


def _held(scene: _Scene) -> list[str]:
    return [
        svg.area(
            (scene.time.at(begin), scene.top),
            max(scene.time.at(end) - scene.time.at(begin), 4.0),
            _PLOT,
            fill=_HELD,
            opacity="0.45",
        )
        for begin, end in scene.picture.held
    ]


def _band(scene: _Scene) -> list[str]:
    shown = thinned(scene.picture.drawn, _MOST_POINTS)
    if not shown:
        middle = (_LEFT + _RIGHT) / 2
        return [
            svg.words(middle, scene.top + 30, "no block holds units of both arms", anchor="middle")
        ]
    x, y = scene.time.at, scene.value.at
    if len(shown) == 1:
        # A bar where there is no way to go.
        only = shown[0]
        shown = [replace(only, at=only.at + side) for side in (-30.0, 30.0)]
    band = [(x(estimate.at), y(estimate.high)) for estimate in shown]
    band += [(x(estimate.at), y(estimate.low)) for estimate in reversed(shown)]
    return [
        svg.path(band, closed=True, id="interval", fill=svg.BLUE, fill_opacity="0.25"),
        svg.path(
            [(x(estimate.at), y(estimate.lift)) for estimate in shown],
            id="estimate",
            fill="none",
            stroke=svg.BLUE,
            stroke_width="2",
        ),
    ]


def _marks(scene: _Scene) -> list[str]:
    return [shape for mark in scene.picture.marks for shape in _mark(scene, mark)]


def _mark(scene: _Scene, mark: Mark) -> list[str]:
    x = scene.time.at(mark.at)
    name = mark.words.partition(" ")[0]
    height = 22 if name == "fired" else 8
    is_late = x > (_LEFT + _RIGHT) / 2
    shapes = [
        svg.line(
            (x, scene.top - height + 4),
            (x, scene.bottom),
            id=name,
            stroke=scene.colour,
            stroke_width="1.2",
            stroke_dasharray="2 2" if name == "fired" else "none",
        ),
        svg.words(
            x + (-4 if is_late else 4),
            scene.top - height + 6,
            f"{mark.words} {clock(mark.at)}",
            anchor="end" if is_late else "start",
            fill=scene.colour,
            bold=True,
        ),
    ]
    if mark.lift is not None:
        within = min(max(mark.lift, scene.value.low), scene.value.high)
        shapes.append(_diamond(x, scene.value.at(within), scene.colour))
    return shapes


def _diamond(x: float, y: float, colour: str) -> str:
    corners = [(x, y - 6), (x + 5, y), (x, y + 6), (x - 5, y)]
    return svg.path(corners, closed=True, fill=colour, stroke="#ffffff")


def _ends(scene: _Scene) -> list[str]:
    """Returns the labels of the last look, beside its ends."""
    if not scene.picture.drawn:
        return []
    last, measure = scene.picture.drawn[-1], scene.picture.measure
    values = [last.high, last.lift, last.low]
    heights = _apart([scene.value.at(value) for value in values], scene.top, scene.bottom)
    return [
        svg.words(
            _RIGHT + 8,
            y + 4,
            f"{measure.short(value)} {measure.relative(value)}".strip(),
            fill=svg.INK if value == last.lift else svg.QUIET,
            bold=value == last.lift,
        )
        for value, y in zip(values, heights, strict=True)
    ]


def _apart(heights: Sequence[float], top: float, bottom: float, gap: float = 15.0) -> list[float]:
    """Returns three heights, top first, moved apart so that none covers another."""
    middle = min(max(heights[1], top + gap), bottom - gap)
    return [min(heights[0], middle - gap), middle, max(heights[2], middle + gap)]


# --- What else is watched ----------------------------------------------------------------------


def _lane(scene: _Scene, lane: Lane, y: float) -> str:
    bar, words = _TONES[lane.tone]
    state = lane.state if lane.since is None else f"{lane.state} {clock(lane.since)}"
    return "".join(
        (
            svg.words(_LEFT - 6, y + 9, _short(lane.name, _MOST_OF_NAME), anchor="end"),
            svg.area((_LEFT, y), _RIGHT - _LEFT, 10, fill="#eeeeee"),
            *(_span_of_lane(scene, *span, y=y, fill=bar) for span in lane.spans),
            svg.words(_RIGHT + 8, y + 9, state, fill=words),
        )
    )


def _span_of_lane(scene: _Scene, begin: float, end: float, *, y: float, fill: str) -> str:
    """Returns a span of time in a lane; a sliver of one that began at the last look."""
    left = scene.time.at(max(begin, scene.time.low))
    width = max(scene.time.at(end) - left, 4.0)
    return svg.area((min(left, _RIGHT - 4), y), width, 10, fill=fill)
