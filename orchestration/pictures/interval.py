"""The picture of one experiment: its interval narrowing down over time, and its outcome."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domain.measure import Measure, level_of, measure_of, typical_lift
from domain.wording.headline import Headline, headline_of
from domain.wording.looks import (
    Estimate,
    Look,
    clock,
    estimates,
    extent,
    fired_at,
    held_spans,
    looks_of,
    seconds,
    thinned,
)
from orchestration.pictures import svg
from orchestration.pictures.axis import Axis, round_steps, time_steps
from orchestration.pictures.colour import colour_of

WIDTH = 700
# Finer than a pixel shows, and a record of each materialization is kept.
_MOST_POINTS = 120
_MOST_LANES = 4
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


@dataclass(frozen=True, kw_only=True)
class _Scene:
    """The data and axes of a picture."""

    document: Mapping[str, Any]
    measure: Measure
    headline: Headline
    looks: Sequence[Look]
    drawn: Sequence[Estimate]
    fired: float | None
    decided: float | None
    time: Axis
    value: Axis
    top: float

    @property
    def colour(self) -> str:
        return colour_of(self.headline)

    @property
    def bottom(self) -> float:
        return self.top + _PLOT

    @property
    def guardrails(self) -> Sequence[Mapping[str, Any]]:
        """Those that tell most: the breached before the unknown before the unharmed."""
        ranked = sorted(
            self.document["guardrails"],
            key=lambda rail: (rail["breached_at"] is None, rail["non_inferior_at"] is not None),
        )
        return ranked[:_MOST_LANES]


def interval_picture(document: Mapping[str, Any], contract: Mapping[str, Any]) -> str | None:
    """Returns an experiment's evidence as an SVG.

    A band from the interval's lower to its upper end with the estimate in it; the line of no
    difference; where the test fired and where the verdict was decided; hatched where a gate held;
    a lane for each guardrail. What lies beyond the scale is cut off.

    Args:
        document: The evidence document.
        contract: The verdict contract that stands on it.

    Returns:
        None before the first look.
    """
    looks = looks_of(document)
    if not looks:
        return None
    scene = _scene(document, contract, looks)
    below = scene.bottom + 44
    lanes = _lanes(scene, below)
    foot = below + _LANE * len(lanes) + 8
    return svg.picture(
        WIDTH,
        round(foot + 64),
        [_HATCH, *_title(scene, contract), *_plot(scene), *lanes, *_foot(scene, foot)],
    )


def _scene(
    document: Mapping[str, Any], contract: Mapping[str, Any], looks: Sequence[Look]
) -> _Scene:
    drawn = estimates(looks)
    begin, end = looks[0].at, looks[-1].at
    # Of a single look, or two at once: a block's breadth to each side.
    breadth = 150.0 if end == begin else 0.0
    low, high = extent(drawn) if drawn else (-0.01, 0.01)
    top = 84.0 + _LINE * len(_sentence(document))
    decided = contract["power_state"]["decided"]
    return _Scene(
        document=document,
        measure=measure_of(document),
        headline=headline_of(contract, candidate=document.get("candidate") is not None),
        looks=looks,
        drawn=drawn,
        fired=fired_at(document, looks),
        decided=seconds(document["as_of"]) if decided else None,
        time=Axis(low=begin - breadth, high=end + breadth, start=_LEFT, end=_RIGHT),
        value=Axis(low=low, high=high, start=top + _PLOT, end=top),
        top=top,
    )


# --- What it says ------------------------------------------------------------------------------


def _sentence(document: Mapping[str, Any]) -> list[str]:
    return textwrap.wrap(document["sentence"], _MOST_OF_LINE, max_lines=3, placeholder=" …")


def _short(name: str, limit: int) -> str:
    return name if len(name) <= limit else f"{name[: limit - 1]}…"


def _title(scene: _Scene, contract: Mapping[str, Any]) -> list[str]:
    parts = [scene.headline.text, _short(scene.measure.name, _MOST_OF_TITLE)]
    if contract["lift"] is not None:
        parts.append(scene.measure.difference(contract["lift"]))
    return [
        svg.words(12, 24, " · ".join(parts), fill=scene.colour, size=16, bold=True),
        svg.words(WIDTH - 10, 24, contract["experiment_id"], anchor="end", size=10),
        *(
            svg.words(12, 44 + _LINE * row, line, fill=svg.INK, size=12)
            for row, line in enumerate(_sentence(scene.document))
        ),
    ]


def _foot(scene: _Scene, top: float) -> list[str]:
    document, measure = scene.document, scene.measure
    arms = [
        f"{name} {arm['units']:,} ({measure.level(level_of(arm))})"
        for name, arm in document["arms"].items()
        if arm["units"]
    ]
    needed = document["sessions"]["required"]
    units = f"{document['sessions']['accumulated']:,} units: {', '.join(arms) or 'none yet'}"
    if needed is not None and scene.decided is None:
        lift = typical_lift(document["policy"]["rho"]["day"])
        units += f"; about {needed:,.0f} are needed to find a change of {lift}"
    e_value, level = document["totals"]["e_value"], document["policy"]["level"]
    at = document["as_of"].replace("T", " ")[:16]
    fires = f"e-value {e_value:.4g}, the test fires at {1 / level:.4g}; as of {at} UTC"
    return [
        svg.words(12, top + 14, units, fill=svg.INK),
        svg.words(12, top + 14 + _LINE, fires, fill=svg.INK),
        *_legend(top + 38 + _LINE, level),
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
        svg.words(12, scene.top - 32, f"treatment minus control, {scene.measure.per}"),
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
    scale = scene.measure.scale
    steps = round_steps(scene.value.low * scale, scene.value.high * scale, limit=6)
    for step in steps if scene.drawn else [0.0]:
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
    shapes.append(svg.words(_LEFT, scene.bottom + 32, _span(scene.looks)))
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
        for begin, end in held_spans(scene.looks)
    ]


def _band(scene: _Scene) -> list[str]:
    shown = thinned(scene.drawn, _MOST_POINTS)
    if not shown:
        middle = (_LEFT + _RIGHT) / 2
        return [
            svg.words(middle, scene.top + 30, "no block holds units of both arms", anchor="middle")
        ]
    x, y = scene.time.at, scene.value.at
    if len(shown) == 1:
        # A bar where there is no way to go.
        only = shown[0]
        shown = [
            Estimate(at=only.at + side, lift=only.lift, low=only.low, high=only.high)
            for side in (-30.0, 30.0)
        ]
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
    shapes: list[str] = []
    for name, at, height in (("fired", scene.fired, 22), ("decided", scene.decided, 8)):
        if at is None or (name == "decided" and at == scene.fired):
            continue
        x = scene.time.at(at)
        anchor = "end" if x > (_LEFT + _RIGHT) / 2 else "start"
        label = f"fired and decided {clock(at)}" if at == scene.decided == scene.fired else None
        shapes += [
            svg.line(
                (x, scene.top - height + 4),
                (x, scene.bottom),
                id=name,
                stroke=scene.colour,
                stroke_width="1.2",
                stroke_dasharray="2 2" if name == "fired" else "none",
            ),
            svg.words(
                x + (-4 if anchor == "end" else 4),
                scene.top - height + 6,
                label or f"{name} {clock(at)}",
                anchor=anchor,
                fill=scene.colour,
                bold=True,
            ),
        ]
        if (lift := _lift_at(scene, at)) is not None:
            shapes.append(_diamond(x, scene.value.at(lift), scene.colour))
    return shapes


def _lift_at(scene: _Scene, at: float) -> float | None:
    """Returns the estimate at a time, within the drawn span."""
    lift = next((estimate.lift for estimate in reversed(scene.drawn) if estimate.at <= at), None)
    return None if lift is None else min(max(lift, scene.value.low), scene.value.high)


def _diamond(x: float, y: float, colour: str) -> str:
    corners = [(x, y - 6), (x + 5, y), (x, y + 6), (x - 5, y)]
    return svg.path(corners, closed=True, fill=colour, stroke="#ffffff")


def _ends(scene: _Scene) -> list[str]:
    """Returns the labels of the last look, beside its ends."""
    if not scene.drawn:
        return []
    last, measure = scene.drawn[-1], scene.measure
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


def _lanes(scene: _Scene, top: float) -> list[str]:
    lanes = [_gates(scene, top)]
    for number, guardrail in enumerate(scene.guardrails, start=1):
        lanes.append(_guardrail(scene, guardrail, top + _LANE * number))
    return lanes


def _lane(y: float, name: str, state: str, bars: Sequence[str], *, colour: str) -> str:
    return "".join(
        (
            svg.words(_LEFT - 6, y + 9, _short(name, _MOST_OF_NAME), anchor="end"),
            svg.area((_LEFT, y), _RIGHT - _LEFT, 10, fill="#eeeeee"),
            *bars,
            svg.words(_RIGHT + 8, y + 9, state, fill=colour),
        )
    )


def _gates(scene: _Scene, y: float) -> str:
    bars = [
        svg.area(
            (scene.time.at(begin), y),
            max(scene.time.at(end) - scene.time.at(begin), 4.0),
            10,
            fill=_HELD,
        )
        for begin, end in held_spans(scene.looks)
    ]
    return _lane(y, "gates", _gate_standing(scene), bars, colour=svg.QUIET)


def _gate_standing(scene: _Scene) -> str:
    gates = scene.document["gates"]
    if because := gates.get("interacting_because"):
        more = f" +{len(because) - 1}" if len(because) > 1 else ""
        return f"held: {because[0].replace('_', ' ')}{more}"
    if scene.looks[-1].gated:
        vif = gates["vif"]
        return f"held: VIF {vif:.3g}" if isinstance(vif, float) else "held: no contrast"
    return "held before" if any(look.gated for look in scene.looks) else "none holds"


def _guardrail(scene: _Scene, guardrail: Mapping[str, Any], y: float) -> str:
    for member, colour, says in (
        ("breached_at", svg.DEEP_VERMILION, "breached"),
        ("non_inferior_at", svg.DEEP_GREEN, "unharmed"),
    ):
        if (since := guardrail[member]) is not None:
            x = scene.time.at(max(seconds(since), scene.time.low))
            # Of what is known at the last look alone, a sliver.
            bar = svg.area((min(x, _RIGHT - 4), y), max(_RIGHT - x, 4.0), 10, fill=colour)
            state = f"{says} {clock(seconds(since))}"
            return _lane(y, guardrail["metric"], state, [bar], colour=colour)
    return _lane(y, guardrail["metric"], "not known yet", [], colour=svg.QUIET)
