"""The plot of an interval over time: how the lift narrowed down, for a terminal."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from domain.drawing.axis import round_step
from domain.evidence.document import Evidence
from domain.measure import measure_of
from domain.wording.looks import Estimate, estimates, extent, fired_at, looks_of

if TYPE_CHECKING:
    from rich.text import Text

WIDTH, MOST_ROWS = 60, 14
_LABEL_WIDTH = 10
_STYLES = {"░": "cyan", "·": "yellow", "━": "bold", "─": "bright_black", "◆": "bold green"}


def interval_plot(evidence: Evidence) -> "Text | None":
    """Returns the plot of a document's looks; None where not two of them have an interval.

    A band from the interval's lower to its upper end, the lift in it, the line of no difference,
    and the look at which the test fired. The band of a look that a gate held is dotted. What lies
    beyond the scale is cut at the edge.
    """
    looks = looks_of(evidence)
    drawn = estimates(looks)
    if len(drawn) < 2:
        return None
    fired = fired_at(evidence, looks)
    gated = {look.at for look in looks if look.gated}
    columns, firing = _columns(drawn, fired)
    measure = measure_of(evidence)
    scale = measure.scale
    low, high = extent(drawn)
    # Both ends are rounded outward, and zero has a row of its own.
    step = round_step(max((high - low) * scale, 1e-9) / (MOST_ROWS - 3)) / scale
    from rich.text import Text  # noqa: PLC0415 - a wait without a report does without

    plot = Text()
    plot.append(f"Treatment minus control, {measure.per}\n", style="italic")
    for row in range(math.ceil(high / step), math.floor(low / step) - 1, -1):
        label = f"{row * step * scale:+.4g} " if row else "0 "
        plot.append(("" if row % 2 else label).rjust(_LABEL_WIDTH))
        plot.append("┤" if row % 2 == 0 else "│")
        for place, estimate in enumerate(columns):
            band = "·" if estimate.at in gated else "░"
            mark = _mark(estimate, row, step, band=band, lift="◆" if place == firing else "━")
            plot.append(mark, style=_STYLES.get(mark, ""))
        plot.append("\n")
    first, last = (f"{_time(estimate.at):%m-%d %H:%M}" for estimate in (drawn[0], drawn[-1]))
    indent = " " * _LABEL_WIDTH
    plot.append(
        f"{indent}└{'─' * WIDTH}\n{indent} {first}{f'{last} UTC'.rjust(WIDTH - len(first))}\n"
    )
    plot.append(_legend(fired, is_gated=any(estimate.at in gated for estimate in columns)))
    return plot


def _columns(drawn: Sequence[Estimate], fired: float | None) -> tuple[list[Estimate], int | None]:
    """Returns the last estimate by the time of each column, and the column that shows the firing.

    The look that fired is shown, though later ones may share its column.
    """
    first, times = drawn[0].at, [estimate.at for estimate in drawn]
    width = (drawn[-1].at - first) / (WIDTH - 1) or 1.0
    columns = [
        drawn[max(bisect_left(times, first + width * (place + 0.5)) - 1, 0)]
        for place in range(WIDTH)
    ]
    if fired is None:
        return columns, None
    firing = min(max(round((fired - first) / width), 0), WIDTH - 1)
    columns[firing] = drawn[max(bisect_right(times, fired) - 1, 0)]
    return columns, firing


def _mark(estimate: Estimate, row: int, step: float, *, band: str, lift: str) -> str:
    """Returns a column's character at the row that stands for `row · step`."""
    if round(estimate.lift / step) == row:
        return lift
    if row == 0:
        return "─"
    return band if round(estimate.low / step) <= row <= round(estimate.high / step) else " "


def _legend(fired: float | None, *, is_gated: bool) -> str:
    parts = ["░ interval", "━ lift", "─ no difference", *(["· a gate held"] if is_gated else [])]
    lines = ["   ".join(parts)]
    if fired is not None:
        lines.append(f"◆ fired {_time(fired):%Y-%m-%d %H:%M} UTC")
    return "".join(f"{' ' * _LABEL_WIDTH} {line}\n" for line in lines)


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, tz=UTC)
