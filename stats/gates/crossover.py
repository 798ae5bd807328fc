"""Crossover: units that were exposed to both arms without a deploy in between."""

import numpy as np

from domain.cause import MIN_CROSSINGS, MOST_CROSSED, Cause
from stats.counts.cell import Ints
from stats.counts.finding import counted_from
from stats.gates.gate import Gate, Reading, Units, no_reading
from stats.looks.trace import StageLooks


class Crossover(Gate):
    """The router cannot be sticky: 10 units crossed, and more than 5 % of all.

    The statistic is the share of units that crossed; NaN without units.
    """

    cause = Cause.CROSSOVER
    member = "crossover_share"
    is_sticky = True
    title = "Units stay in their arm"
    why = "units move between the arms"
    step = (
        "Units move between the arms: make the router sticky, so that a session stays with the"
        " build that it first saw."
    )

    def reading(self, looks: StageLooks) -> Reading:
        """The share of units that crossed, at all looks of a stage."""
        if looks.series.crossings is None:
            return no_reading(looks)
        crossed, units = _crossed(looks), looks.trace.n1 + looks.trace.n0
        share = np.divide(crossed, units, out=np.full(units.size, np.nan), where=units > 0)
        alarm = (crossed >= MIN_CROSSINGS) & (crossed > MOST_CROSSED * units)
        return Reading(statistic=share, alarm=alarm)

    def text(self, value: float) -> str:
        """The share as people read it."""
        return f"{100 * value:.2f} %"

    def detail(self, reading: Reading, look: int, units: Units) -> str | None:
        """The share in words."""
        del units
        share = self.served(float(reading.statistic[look]))
        return None if share is None else f"{self.text(share)} of units were seen in both"


def _crossed(looks: StageLooks) -> Ints:
    """How many units of closed cells are known to have crossed, at each look."""
    crossings, line, rows = looks.series.crossings, looks.line, looks.closings
    if crossings is None or not crossings.at.size:
        return np.zeros(len(looks.trace), dtype=np.int64)
    ends = looks.stage.blocks.end_of(crossings.stratum, crossings.block)
    row = np.searchsorted(line.end[rows], ends)
    counted = counted_from(row, crossings.at, closings=line.at[rows])
    return np.searchsorted(np.sort(counted), looks.trace.at, side="right")
