"""The shapes that drawings are made of, as SVG; their colours come from their class."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Literal

from domain.drawing.axis import Axis

Place = tuple[float, float]


def text(
    place: Place,
    words: str,
    *,
    name: str = "",
    anchor: Literal["start", "middle", "end"] = "start",
    write: Callable[[str], str] = str,
) -> str:
    """Returns a line of text whose baseline is at a place; what could be markup in it is not."""
    return (
        f'<text x="{place[0]:.1f}" y="{place[1]:.1f}" class="{name}" text-anchor="{anchor}">'
        f"{escape(write(words))}</text>"
    )


def steps(places: Sequence[Place]) -> str:
    """Returns lines through places, as the steps of a path."""
    steps: list[str] = []
    x = y = 0.0
    for place in places:
        # Steps are relative to the last place as it was written, so that rounding does not add up.
        dx, dy = round(place[0] - x, 1), round(place[1] - y, 1)
        x, y = x + dx, y + dy
        steps.append(f"{dx:g} {dy:g}")
    return f"M{steps[0]}l{' '.join(steps[1:])}"


def line(name: str, *places: Place) -> str:
    """Returns straight lines through places."""
    return f'<path class="{name}" d="{steps(places)}"/>'


def area(name: str, corner: Place, width: float, height: float, inside: str = "") -> str:
    """Returns a rectangle."""
    return (
        f'<rect class="{name}" x="{corner[0]:.1f}" y="{corner[1]:.1f}"'
        f' width="{max(width, 0.0):.1f}" height="{height:.1f}">{inside}</rect>'
    )


def window(time: Axis, heights: tuple[float, float], shapes: Iterable[str]) -> str:
    """Returns shapes clipped to the space between two axes; their coordinates stay."""
    box = f"{time.start:.1f} {heights[0]:.1f} {time.end - time.start:.1f} {heights[1]:.1f}"
    x, y, width, height = box.split()
    return (
        f'<svg x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{box}">'
        f"{''.join(shapes)}</svg>"
    )
