"""SVG: the shapes that pictures are drawn of, and a picture as an image inside of Markdown."""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

# Okabe and Ito's colours, which the colour-blind can tell apart.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
)
# Darker ones of the same, whose words can be read on white.
DEEP_GREEN, DEEP_VERMILION, DEEP_ORANGE = "#00734f", "#b34a00", "#8f6200"
INK, QUIET, FAINT = "#222222", "#666666", "#dddddd"

Point = tuple[float, float]


def picture(width: int, height: int, shapes: Iterable[str]) -> str:
    """Returns a whole SVG on white ground, so that it reads on a dark page as well."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" font-family="sans-serif" font-size="11">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{"".join(shapes)}</svg>'
    )


def words(
    x: float,
    y: float,
    text: str,
    *,
    anchor: Literal["start", "middle", "end"] = "start",
    fill: str = QUIET,
    size: int | None = None,
    bold: bool = False,
) -> str:
    """Returns a line of text whose baseline is at y; what could be markup in it is not."""
    more = f' font-size="{size}"' if size else ""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"{more}{weight}>'
        f"{escape(text)}</text>"
    )


def path(points: Sequence[Point], *, closed: bool = False, **attributes: str) -> str:
    """Returns lines through points, or the area within them; `_` in a name stands for `-`."""
    steps: list[str] = []
    x = y = 0.0
    for point in points:
        # Relative to the last point as it was written, so that rounding does not add up.
        dx, dy = round(point[0] - x, 1), round(point[1] - y, 1)
        x, y = x + dx, y + dy
        steps.append(f"{dx:g} {dy:g}")
    drawn = f"M{steps[0]}l{' '.join(steps[1:])}{'z' if closed else ''}"
    return f'<path d="{drawn}"{_written(attributes)}/>'


def line(start: Point, end: Point, **attributes: str) -> str:
    """Returns a straight line."""
    return path([start, end], closed=False, **attributes)


def area(corner: Point, width: float, height: float, **attributes: str) -> str:
    """Returns a rectangle."""
    return (
        f'<rect x="{corner[0]:.1f}" y="{corner[1]:.1f}" width="{max(width, 0.0):.1f}"'
        f' height="{max(height, 0.0):.1f}"{_written(attributes)}/>'
    )


def window(corner: Point, width: float, height: float, shapes: Iterable[str]) -> str:
    """Returns shapes, placed as elsewhere, of which is seen what lies within a rectangle."""
    x, y = corner
    return (
        f'<svg x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        f' viewBox="{x:.1f} {y:.1f} {width:.1f} {height:.1f}">{"".join(shapes)}</svg>'
    )


def as_markdown(svg: str, *, alt: str) -> str:
    """Returns an SVG as an image inside of Markdown: no file, no address."""
    return f"![{alt}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def _written(attributes: dict[str, str]) -> str:
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
    )
