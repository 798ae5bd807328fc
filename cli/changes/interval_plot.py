"""The plot of an interval over time: how the lift narrowed down, for a terminal."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.text import Text

from domain.measure import measure_of_policy

WIDTH, MOST_ROWS = 60, 14
# Early intervals are as wide as everything: the last part of the time sets the scale.
_SCALED_FROM = WIDTH // 3
_STEPS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0)
_LABEL_WIDTH = 10
_STYLES = {"░": "cyan", "·": "yellow", "━": "bold", "─": "bright_black", "◆": "bold green"}

Look = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Column:
    """The last look that had come by the time that one column stands for."""

    low: float
    high: float
    lift: float
    gated: bool
    fired: bool

    def mark(self, row: int, step: float) -> str:
        """Returns the character at the row that stands for `row · step`."""
        if round(self.lift / step) == row:
            return "◆" if self.fired else "━"
        if row == 0:
            return "─"
        if round(self.low / step) <= row <= round(self.high / step):
            return "·" if self.gated else "░"
        return " "


def interval_plot(document: Mapping[str, Any]) -> Text | None:
    """Returns the plot of an evidence document's looks.

    A band from the interval's lower to its upper end, the lift in it, the line of no difference,
    and the look at which the test fired. The band of a look that a gate held is dotted. What lies
    beyond the scale is cut at the edge.

    Returns:
        None where there are not two looks with an interval.
    """
    looks = [look for look in document.get("looks") or () if look["ci"] is not None]
    if len(looks) < 2:
        return None
    fired = _fired(looks, level=document["policy"]["level"])
    columns = _columns(looks, fired)
    measure = measure_of_policy(document["policy"], control=None)
    scale = measure.scale
    low = min(0.0, *(column.low for column in columns[_SCALED_FROM:]))
    high = max(0.0, *(column.high for column in columns[_SCALED_FROM:]))
    step = _step((high - low) * scale) / scale
    plot = Text()
    plot.append(f"Treatment minus control, {measure.per}\n", style="italic")
    for row in range(math.ceil(high / step), math.floor(low / step) - 1, -1):
        plot.append(_label(row * step * scale) if row % 2 == 0 else " " * _LABEL_WIDTH)
        plot.append("┤" if row % 2 == 0 else "│")
        for column in columns:
            mark = column.mark(row, step)
            plot.append(mark, style=_STYLES.get(mark, ""))
        plot.append("\n")
    plot.append(_axis(looks))
    plot.append(_legend(columns, fired))
    return plot


def _fired(looks: Sequence[Look], *, level: float) -> Look | None:
    """Returns the first ungated look at which E reached 1/level."""
    crossing = (look for look in looks if not look["gated"] and look["e_value"] * level >= 1)
    return next(crossing, None)


def _columns(looks: Sequence[Look], fired: Look | None) -> list[Column]:
    times = [_time(look).timestamp() for look in looks]
    width = (times[-1] - times[0]) / (WIDTH - 1) or 1.0
    columns: list[Column] = []
    number = -1
    for place in range(WIDTH):
        first = number + 1
        while number + 1 < len(looks) and times[number + 1] < times[0] + width * (place + 0.5):
            number += 1
        fresh = looks[first : number + 1]
        # The look that fired is shown, though later ones may share its column.
        shown = fired if fired is not None and any(one is fired for one in fresh) else looks[number]
        columns.append(
            Column(
                low=shown["ci"][0],
                high=shown["ci"][1],
                lift=shown["lift"],
                gated=shown["gated"],
                fired=shown is fired and bool(fresh),
            )
        )
    return columns


def _step(extent: float) -> float:
    """Returns the smallest round number by which the rows hold an extent."""
    # Both ends are rounded outward, and zero has a row of its own.
    least = max(extent, 1e-9) / (MOST_ROWS - 3)
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least * (1 - 1e-9))


def _label(value: float) -> str:
    return f"{value:+.4g} ".rjust(_LABEL_WIDTH) if value else "0 ".rjust(_LABEL_WIDTH)


def _axis(looks: Sequence[Look]) -> str:
    first, last = (f"{_time(look):%m-%d %H:%M}" for look in (looks[0], looks[-1]))
    indent = " " * _LABEL_WIDTH
    return f"{indent}└{'─' * WIDTH}\n{indent} {first}{f'{last} UTC'.rjust(WIDTH - len(first))}\n"


def _legend(columns: Sequence[Column], fired: Look | None) -> str:
    parts = ["░ interval", "━ lift", "─ no difference"]
    if any(column.gated for column in columns):
        parts.append("· a gate held")
    lines = ["   ".join(parts)]
    if fired is not None:
        lines.append(f"◆ fired {_time(fired):%Y-%m-%d %H:%M} UTC")
    return "".join(f"{' ' * _LABEL_WIDTH} {line}\n" for line in lines)


def _time(look: Look) -> datetime:
    return datetime.fromisoformat(look["at"])
