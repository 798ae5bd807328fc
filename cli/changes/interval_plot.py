"""The plot of an interval over time: how the lift narrowed down, for a terminal."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from domain.measure import measure_of_policy
from domain.wording.looks import Estimate, estimates, extent, fired_at, looks_of

if TYPE_CHECKING:
    from rich.text import Text

WIDTH, MOST_ROWS = 60, 14
_STEPS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0)
_LABEL_WIDTH = 10
_STYLES = {"░": "cyan", "·": "yellow", "━": "bold", "─": "bright_black", "◆": "bold green"}


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


def interval_plot(document: Mapping[str, Any]) -> "Text | None":
    """Returns the plot of an evidence document's looks.

    A band from the interval's lower to its upper end, the lift in it, the line of no difference,
    and the look at which the test fired. The band of a look that a gate held is dotted. What lies
    beyond the scale is cut at the edge.

    Returns:
        None where there are not two looks with an interval.
    """
    looks = looks_of(document)
    drawn = estimates(looks)
    if len(drawn) < 2:
        return None
    fired = fired_at(document, looks)
    gated = {look.at for look in looks if look.gated}
    columns = _columns(drawn, gated, fired)
    measure = measure_of_policy(document["policy"], control=None)
    scale = measure.scale
    low, high = extent(drawn)
    step = _step((high - low) * scale) / scale
    from rich.text import Text  # noqa: PLC0415 - a wait without a report does without

    plot = Text()
    plot.append(f"Treatment minus control, {measure.per}\n", style="italic")
    for row in range(math.ceil(high / step), math.floor(low / step) - 1, -1):
        plot.append(_label(row * step * scale) if row % 2 == 0 else " " * _LABEL_WIDTH)
        plot.append("┤" if row % 2 == 0 else "│")
        for column in columns:
            mark = column.mark(row, step)
            plot.append(mark, style=_STYLES.get(mark, ""))
        plot.append("\n")
    plot.append(_axis(drawn))
    plot.append(_legend(columns, fired))
    return plot


def _columns(
    drawn: Sequence[Estimate], gated: Collection[float], fired: float | None
) -> list[Column]:
    width = (drawn[-1].at - drawn[0].at) / (WIDTH - 1) or 1.0
    columns: list[Column] = []
    number = -1
    for place in range(WIDTH):
        first = number + 1
        while number + 1 < len(drawn) and drawn[number + 1].at < drawn[0].at + width * (
            place + 0.5
        ):
            number += 1
        fresh = drawn[first : number + 1]
        # The look that fired is shown, though later ones may share its column.
        shown = next((estimate for estimate in fresh if estimate.at == fired), drawn[number])
        columns.append(
            Column(
                low=shown.low,
                high=shown.high,
                lift=shown.lift,
                gated=shown.at in gated,
                fired=bool(fresh) and shown.at == fired,
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


def _axis(drawn: Sequence[Estimate]) -> str:
    first, last = (f"{_time(estimate.at):%m-%d %H:%M}" for estimate in (drawn[0], drawn[-1]))
    indent = " " * _LABEL_WIDTH
    return f"{indent}└{'─' * WIDTH}\n{indent} {first}{f'{last} UTC'.rjust(WIDTH - len(first))}\n"


def _legend(columns: Sequence[Column], fired: float | None) -> str:
    parts = ["░ interval", "━ lift", "─ no difference"]
    if any(column.gated for column in columns):
        parts.append("· a gate held")
    lines = ["   ".join(parts)]
    if fired is not None:
        lines.append(f"◆ fired {_time(fired):%Y-%m-%d %H:%M} UTC")
    return "".join(f"{' ' * _LABEL_WIDTH} {line}\n" for line in lines)


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, tz=UTC)
