"""The plot of the evidence: how far each experiment's e-value has come towards its threshold."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

# Okabe and Ito's colours, which the colour-blind can tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MOST_CURVES = len(_COLOURS)
_MOST_POINTS = 100

_WIDTH, _HEIGHT = 760, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 190, 16, 44
# In decades of e-value to threshold. What lies beyond is drawn at the edge.
_LOWEST, _HIGHEST = -3.0, 2.0


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The looks at one experiment.

    Attributes:
        name: Of the experiment.
        days: Since its first look, of each look.
        decades: log₁₀ of the e-value to the threshold: at 0 the test fires.
    """

    name: str
    days: list[float]
    decades: list[float]


def curve(document: Mapping[str, Any]) -> Curve | None:
    """Returns the curve of an evidence document, None of one without looks."""
    looks = document.get("looks") or ()
    if not looks:
        return None
    looks = [*looks[: -1 : max(1, len(looks) // _MOST_POINTS)], looks[-1]]
    first = datetime.fromisoformat(looks[0]["at"])
    level = document["policy"]["level"]
    return Curve(
        name=document["experiment_id"],
        days=[
            (datetime.fromisoformat(one["at"]) - first).total_seconds() / 86_400 for one in looks
        ],
        decades=[math.log10(max(one["e_value"], 1e-300) * level) for one in looks],
    )


def evidence_plot(documents: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns the plot as an SVG text: the curves that came nearest to their thresholds.

    Returns:
        None where no document has a look.
    """
    curves = [found for document in documents if (found := curve(document)) is not None]
    nearest = sorted(curves, key=lambda one: (-one.decades[-1], one.name))[:MOST_CURVES]
    if not nearest:
        return None
    longest = max(one.days[-1] for one in nearest) or 1.0
    drawn = "".join(
        _curve(one, _COLOURS[number], longest=longest, row=number)
        for number, one in enumerate(nearest)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="11">'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>'
        f"{_grid()}{_axis(longest)}{drawn}</svg>"
    )


def as_markdown(svg: str) -> str:
    """Returns an SVG as an image inside of Markdown: no file, no address."""
    return f"![evidence](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def _x(days: float, longest: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * days / longest


def _y(decades: float) -> float:
    share = (min(max(decades, _LOWEST), _HIGHEST) - _LOWEST) / (_HIGHEST - _LOWEST)
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share


def _text(x: float, y: float, words: str, *, anchor: str = "start", fill: str = "#444444") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{escape(words)}</text>'
    )


def _grid() -> str:
    lines: list[str] = []
    for decade in range(int(_LOWEST), int(_HIGHEST) + 1):
        y, fires = _y(decade), decade == 0
        stroke = 'stroke="#222222" stroke-dasharray="5 3"' if fires else 'stroke="#dddddd"'
        label = "fires" if fires else f"{10.0**decade:g} ×"
        lines.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" {stroke}/>')
        lines.append(_text(_LEFT - 6, y + 4, label, anchor="end"))
    return "".join(lines)


def _axis(longest: float) -> str:
    y = _HEIGHT - _BOTTOM + 16
    ticks = "".join(
        _text(_x(longest * share, longest), y, f"{longest * share:.3g}", anchor="middle")
        for share in (0.0, 0.5, 1.0)
    )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    return ticks + _text(
        middle, y + 18, "days since the first look; e-value ÷ threshold", anchor="middle"
    )


def _curve(one: Curve, colour: str, *, longest: float, row: int) -> str:
    points = " ".join(
        f"{_x(days, longest):.1f},{_y(decades):.1f}"
        for days, decades in zip(one.days, one.decades, strict=True)
    )
    end = points.rsplit(" ", 1)[-1].split(",")
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        f'<circle cx="{end[0]}" cy="{end[1]}" r="3" fill="{colour}"/>'
        + _text(_WIDTH - _RIGHT + 14, _TOP + 12 + 16 * row, one.name, fill=colour)
    )
