"""A chart: lines with their Monte-Carlo intervals over an axis, as an SVG text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# Okabe and Ito's colours, which the colour-blind can tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 170, 30, 44


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of points.

    Attributes:
        name: What the legend says.
        x: Where the points stand; at equal distances where the chart has labels.
        y: Their heights.
        intervals: The interval of each height; empty where none is drawn.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    intervals: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines, their axes and the bound that they are held against.

    Attributes:
        title: What is shown.
        lines: Six at most.
        ticks: Labels of the horizontal axis and where they stand.
        across: What the horizontal axis counts.
        top: The height of the vertical axis, which begins at 0.
        bound: Drawn dashed; None where there is none.
    """

    title: str
    lines: Sequence[Line]
    ticks: Sequence[tuple[float, str]]
    across: str
    top: float
    bound: float | None = None

    def svg(self) -> str:
        drawn = "".join(self._line(one, number) for number, one in enumerate(self.lines))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
            f' width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="11">\n'
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>\n'
            f"{_text(_LEFT, 16, self.title)}{self._grid()}{drawn}</svg>\n"
        )

    def _x(self, x: float) -> float:
        left, right = self.ticks[0][0], self.ticks[-1][0]
        return _LEFT + 12 + (_WIDTH - _LEFT - _RIGHT - 24) * (x - left) / (right - left)

    def _y(self, y: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * min(y / self.top, 1.0)

    def _grid(self) -> str:
        end = _WIDTH - _RIGHT
        parts: list[str] = []
        for step in range(6):
            height = self.top * step / 5
            y = self._y(height)
            parts.append(f'<path d="M{_LEFT} {y:.1f}H{end}" stroke="#dddddd"/>\n')
            parts.append(_text(_LEFT - 6, y + 4, f"{height:.3g}", anchor="end"))
        if self.bound is not None:
            y = self._y(self.bound)
            parts.append(
                f'<path d="M{_LEFT} {y:.1f}H{end}" stroke="#222222" stroke-dasharray="5 3"/>\n'
            )
        for x, label in self.ticks:
            parts.append(_text(self._x(x), _HEIGHT - _BOTTOM + 16, label, anchor="middle"))
        middle = (_LEFT + end) / 2
        parts.append(_text(middle, _HEIGHT - 8, self.across, anchor="middle"))
        return "".join(parts)

    def _line(self, one: Line, number: int) -> str:
        colour = _COLOURS[number]
        points = [
            (self._x(x), self._y(y))
            for x, y in zip(one.x, one.y, strict=True)
            if math.isfinite(x) and math.isfinite(y)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        bars = "".join(
            f'<path d="M{x + 2 * number:.1f} {self._y(low):.1f}V{self._y(high):.1f}"'
            f' stroke="{colour}" opacity="0.6"/>\n'
            for (x, _), (low, high) in zip(points, one.intervals, strict=False)
        )
        legend = _text(_WIDTH - _RIGHT + 14, _TOP + 12 + 16 * number, one.name, fill=colour)
        return (
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>\n'
            f"{bars}{legend}"
        )


def _text(x: float, y: float, words: str, *, anchor: str = "start", fill: str = "#444444") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">'
        f"{escape(words)}</text>\n"
    )
