"""Channels: whether the page of an arm loses more of the outcomes that came another way too."""

from dataclasses import replace

import numpy as np

from domain.cause import Cause
from stats.counts.closed_cells import ClosedCells
from stats.counts.timeline import Timeline
from stats.gates.companions.companion import CompanionGate, CompanionReading, rows_of
from stats.looks.series import Companion, Series
from stats.looks.trace import StageLooks

VOUCHED = "vouched"


class Channels(CompanionGate):
    """An arm's page sent fewer of the outcomes that servers vouch for.

    What that page loses of these it loses of the others too, which nobody else counts. It holds
    nothing back where the vouched outcomes alone show the answer.
    """

    cause = role = Cause.CHANNELS
    member = "channels_e"
    alone = VOUCHED
    title = "Pages report outcomes as often in both arms"
    counts = "not sent by the page: {:,} of treatment, {:,} of control"
    why = "the page of the arm that looks lower sends fewer of the outcomes that servers know"
    step = (
        "The page of that arm loses outcomes: send the metric from your servers, with the write"
        " key, for all of your users; or mend the page's events, and register the change again."
    )

    def uncounted(self, series: Series, companion: Companion) -> ClosedCells:
        """The vouched outcomes, and of them those that the page did not send.

        An outcome is the target's where it came either way: those that the page did not send are
        the target's without the page's.
        """
        vouched, target = series.companions[VOUCHED].cells, series.target
        row, by_page = rows_of(vouched, target), rows_of(vouched, companion.cells)
        missed1 = target.x1[row] - companion.cells.x1[by_page]
        missed0 = target.x0[row] - companion.cells.x0[by_page]
        return replace(
            vouched,
            n1=vouched.x1,
            x1=np.clip(missed1, 0, vouched.x1),
            n0=vouched.x0,
            x0=np.clip(missed0, 0, vouched.x0),
            values=None,
        )

    def is_asked(self, series: Series) -> bool:
        """Whether outcomes come both ways."""
        return super().is_asked(series) and VOUCHED in series.companions

    def _reading(self, looks: StageLooks, line: Timeline, number: int) -> CompanionReading:
        """The reading; none before the first vouched outcome."""
        reading = super()._reading(looks, line, number)
        row = line.row_at(number, looks.trace.at)
        known = np.append(line.n1 + line.n0, 0)[row] > 0
        return replace(reading, statistic=np.where(known, reading.statistic, np.nan))
