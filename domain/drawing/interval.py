"""The drawing of an experiment: its interval over the looks, as SVG, and as a thumbnail."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from itertools import pairwise

from domain.drawing.axis import Axis, round_steps, time_steps
from domain.drawing.shapes import Place, area, line, steps, text, window
from domain.drawing.traffic import HEIGHT, Ramp, traffic_strip
from domain.wording.headline import Tone
from domain.wording.looks import Estimate, clock, e_value_text, thinned
from domain.wording.picture import Lane, Mark, Picture

# A pointer finds no finer look.
MOST_POINTS = 160
# A phone has no pointer, and titles are half of a drawing's bytes.
_PHONE = 500
_LEFT, _RIGHT, _TOP, _PLOT, _LANE = 56.0, 12.0, 34.0, 240.0, 34.0
# Dagster's pages show Markdown of fewer letters than 1,000 in place: a thumbnail must fit.
_SMALL = (240, 44)
_MOST_SMALL_POINTS = 11
# These colours of Okabe and Ito, which the colour-blind can tell apart, read well on white.
_COLOURS: dict[Tone, str] = {
    "keep": "#00734f",
    "rollback": "#b34a00",
    "iterate": "#8f6200",
    "waiting": "#222",
    "fault": "#222",
    "none": "#666",
}


@dataclass(frozen=True, kw_only=True)
class _Scene:
    """A picture, and the axes on which it is drawn."""

    picture: Picture
    time: Axis
    value: Axis
    text: Callable[..., str]

    @property
    def estimates(self) -> list[Estimate]:
        """The estimates that are drawn, also where the test fired."""
        fired = next((mark.at for mark in self.picture.marks if _fires(mark)), None)
        return thinned(self.picture.drawn, MOST_POINTS, fired=fired)


def interval_drawing(
    picture: Picture, *, width: int, ramp: Ramp | None = None, write: Callable[[str], str] = str
) -> str:
    """Returns a picture as an SVG whose colours are those of the page that holds it, by class.

    A band from the interval's lower to its upper end with the estimate in it; the line of no
    difference; where the test fired and where the verdict was decided; where a gate held; a lane
    for the gates and for each guardrail. The numbers of a look are its title, which a pointer
    shows. What lies beyond the scale is cut off.

    Args:
        width: In pixels. Letters keep their size, so a phone needs a drawing of its own.
        ramp: The units of each arm over time; None where they are not known.
    """
    scene = _scene(picture, width, partial(text, write=write))
    below, traffic = _TOP + _PLOT + 30, list[str]()
    if ramp is not None and ramp.at:
        traffic = traffic_strip(ramp, scene.time, below, picture.measure.unit, scene.text)
        below += HEIGHT
    height = below + _LANE * len(picture.lanes)
    held = (_span(scene, "held", span, _TOP, _PLOT) for span in picture.held)
    shapes = [
        *_grid(scene),
        window(scene.time, (_TOP, _PLOT), [*held, *_band(scene)]),
        line("zero", (scene.time.start, y := scene.value.at(0.0)), (scene.time.end, y)),
        *(shape for mark in picture.marks for shape in _mark(scene, mark)),
        *traffic,
        *(
            shape
            for row, lane in enumerate(picture.lanes)
            for shape in _lane(scene, lane, below + _LANE * row)
        ),
        *(_titles(scene, write) if width > _PHONE else ()),
    ]
    return (
        f'<svg viewBox="0 0 {width} {height:.0f}" role="img"'
        f' aria-label="The interval over time: {escape(look_words(picture))}">'
        f"{''.join(shapes)}</svg>"
    )


def thumbnail(picture: Picture) -> str | None:
    """Returns a small SVG of the interval over time; None where fewer than two looks have it."""
    if len(picture.drawn) < 2:
        return None
    width, height = _SMALL
    (low, high), size = picture.extent, picture.extent[1] - picture.extent[0]
    first, last = picture.drawn[0].at, picture.drawn[-1].at
    time = Axis(low=first, high=last, start=0, end=width)
    value = Axis(low=low, high=high, start=height, end=0)
    # Whole pixels take fewer letters; what lies beyond the scale is cut by the picture's edge.
    upper, estimate, lower = (
        [(round(x), round(value.at(min(max(end, low - size), high + size)))) for x, end in ends]
        for ends in _ends(thinned(picture.drawn, _MOST_SMALL_POINTS), time)
    )
    colour = _COLOURS[picture.headline.tone]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" fill="none">'
        f'<path d="{steps([*upper, *lower[::-1]])}z" fill="#bddcec"/>'
        f'<path d="M0 {round(value.at(0.0))}h{width}" stroke="#222"/>'
        f'<path d="{steps(estimate)}" stroke="{colour}" stroke-width="2"/></svg>'
    )


def look_words(picture: Picture, look: Estimate | None = None) -> str:
    """Returns the numbers of a look in words: by default of the last look with an interval."""
    if look is None and not picture.drawn:
        return "no block holds units of both arms"
    look, measure = look or picture.drawn[-1], picture.measure
    fired = any(_fires(mark) and mark.at == look.at for mark in picture.marks)
    held = any(begin <= look.at <= end for begin, end in picture.held)
    relative = f" ({percent})" if (percent := measure.relative(look.lift)) else ""
    reached, fires = (e_value_text(value * picture.fires) for value in (look.reached, 1.0))
    low = measure.short(measure.possible(look.low))
    words = [
        f"{clock(look.at)} UTC: {measure.difference(look.lift)}{relative}",
        f"between {low} and {measure.difference(look.high)}",
        f"e-value {reached}, the test fires at {fires}",
    ]
    if fired:
        words.append("the test fired")
    elif held:
        words.append("a check held the answer back")
    return "; ".join(words)


def _fires(mark: Mark) -> bool:
    return mark.words.startswith("fired")


def _scene(picture: Picture, width: int, text: Callable[..., str]) -> _Scene:
    begin, end = picture.looks[0].at, picture.looks[-1].at
    # A single look, or two at once, get a block's breadth to each side.
    breadth = 150.0 if end == begin else 0.0
    low, high = picture.extent
    return _Scene(
        picture=picture,
        time=Axis(low=begin - breadth, high=end + breadth, start=_LEFT, end=width - _RIGHT),
        value=Axis(low=low, high=high, start=_TOP + _PLOT, end=_TOP),
        text=text,
    )


def _ends(
    estimates: Sequence[Estimate], time: Axis
) -> tuple[list[Place], list[Place], list[Place]]:
    """Returns the upper ends, the estimates and the lower ends: their places, their differences."""
    return (
        [(time.at(estimate.at), estimate.high) for estimate in estimates],
        [(time.at(estimate.at), estimate.lift) for estimate in estimates],
        [(time.at(estimate.at), estimate.low) for estimate in estimates],
    )


# --- The plot ------------------------------------------------------------------------------------


def _grid(scene: _Scene) -> list[str]:
    shapes: list[str] = []
    scale, bottom = scene.picture.measure.scale, scene.value.start
    round_values = round_steps(scene.value.low * scale, scene.value.high * scale, limit=6)
    for step in round_values if scene.picture.drawn else [0.0]:
        y = scene.value.at(step / scale)
        shapes.append(line("grid", (_LEFT, y), (scene.time.end, y)))
        shapes.append(scene.text((_LEFT - 6, y + 4), f"{step:+.6g}" if step else "0", anchor="end"))
    # Names of times need some room each.
    limit = round((scene.time.end - _LEFT) / 80)
    for at, label in time_steps(scene.time.low, scene.time.high, limit=limit):
        shapes.append(scene.text((scene.time.at(at), bottom + 18), label, anchor="middle"))
    return shapes


def _span(scene: _Scene, name: str, span: tuple[float, float], top: float, height: float) -> str:
    """Returns a span of time; a sliver of a span that began at the last look."""
    left = scene.time.at(max(span[0], scene.time.low))
    width = max(scene.time.at(span[1]) - left, 4.0)
    return area(name, (min(left, scene.time.end - 4), top), width, height)


def _band(scene: _Scene) -> list[str]:
    shown = scene.estimates
    if not shown:
        middle = (_LEFT + scene.time.end) / 2
        return [scene.text((middle, _TOP + 30), look_words(scene.picture), anchor="middle")]
    if len(shown) == 1:
        # A single look is drawn as a bar.
        shown = [replace(shown[0], at=shown[0].at + side) for side in (-30.0, 30.0)]
    upper, estimate, lower = (
        [(x, scene.value.at(end)) for x, end in ends] for ends in _ends(shown, scene.time)
    )
    return [
        f'<path class="band" d="{steps([*upper, *lower[::-1]])}z"/>',
        f'<path class="estimate" d="{steps(estimate)}"/>',
    ]


def _mark(scene: _Scene, mark: Mark) -> list[str]:
    x, name = scene.time.at(mark.at), mark.words.partition(" ")[0]
    height = 18 if name == "fired" else 4
    is_late = x > (_LEFT + scene.time.end) / 2
    shapes = [
        line(name, (x, _TOP - height), (x, scene.value.start)),
        scene.text(
            (x + (-5 if is_late else 5), _TOP - height + 4),
            f"{mark.words} {clock(mark.at)}",
            name="moment",
            anchor="end" if is_late else "start",
        ),
    ]
    if mark.lift is not None:
        y = scene.value.at(min(max(mark.lift, scene.value.low), scene.value.high))
        corners = [(x, y - 6), (x + 5, y), (x, y + 6), (x - 5, y)]
        shapes.append(f'<path class="diamond" d="{steps(corners)}z"/>')
    return shapes


def _lane(scene: _Scene, lane: Lane, top: float) -> list[str]:
    since = "" if lane.since is None else f" {clock(lane.since)}"
    return [
        scene.text((_LEFT, top + 10), f"{lane.name}: {lane.state}{since}", name=lane.tone),
        area("lane", (_LEFT, top + 15), scene.time.end - _LEFT, 8),
        *(_span(scene, lane.tone, span, top + 15, 8) for span in lane.spans),
    ]


def _titles(scene: _Scene, write: Callable[[str], str]) -> list[str]:
    """Returns, over each look that is drawn, an area whose title tells its numbers."""
    estimates = scene.estimates
    places = [scene.time.at(estimate.at) for estimate in estimates]
    middles = [(place + after) / 2 for place, after in pairwise(places)]
    edges = pairwise([scene.time.start, *middles, scene.time.end])
    titles = [escape(write(look_words(scene.picture, estimate))) for estimate in estimates]
    return [
        area("look", (left, _TOP), right - left, _PLOT, f"<title>{title}</title>")
        for title, (left, right) in zip(titles, edges, strict=False)
    ]
