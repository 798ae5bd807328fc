"""Channels: whether the page of an arm loses more of the outcomes that came another way too."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from domain.cause import Cause
from stats.counts.closed_cells import ClosedCells
from stats.counts.timeline import Timeline, timeline
from stats.gates.companion import CompanionGate, CompanionReading, rows_of
from stats.gates.gate import Flags, Reading, Units
from stats.looks.series import Companion, Series
from stats.looks.trace import StageLooks
from stats.sequential.mixture import Mixture

VOUCHED = "vouched"


class Channels(CompanionGate):
    """Of the outcomes that came with the write key, or signed, a page sent fewer in an arm.

    What that page loses of these it loses of the others too, which nobody else counts. It holds
    nothing back where the vouched outcomes alone show the answer.
    """

    cause = role = Cause.CHANNELS
    member = "channels_e"
    title = "Pages send their outcomes alike"
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

    def detail(self, reading: Reading, look: int, units: Units) -> str | None:
        """How many outcomes of either arm the page did not send."""
        missed = super().detail(reading, look, units)
        return None if missed is None else f"not sent by the page: {missed}"

    def readings(self, stages: Sequence[StageLooks]) -> Sequence[CompanionReading]:
        """The readings of several experiments, each at all looks of a stage."""
        return [
            replace(reading, alarm=reading.alarm & ~_holds_alone(looks))
            if reading.alarm.any()
            else reading
            for looks, reading in zip(stages, super().readings(stages), strict=True)
        ]

    def _reading(self, looks: StageLooks, line: Timeline, number: int) -> CompanionReading:
        """The reading; none before the first vouched outcome."""
        reading = super()._reading(looks, line, number)
        row = line.row_at(number, looks.trace.at)
        known = np.append(line.n1 + line.n0, 0)[row] > 0
        return replace(reading, statistic=np.where(known, reading.statistic, np.nan))


def _holds_alone(looks: StageLooks) -> Flags:
    """Whether the vouched outcomes alone show a difference of the target's side, at each look."""
    line = timeline([looks.stream(looks.series.companions[VOUCHED])])
    row = line.row_at(0, looks.trace.at)
    totals, policy = line.totals.gathered(row), looks.series.policy
    mixture = Mixture(
        rho=np.tile(policy.rho, (row.size, 1)) * np.append(line.factor, 1.0)[row][:, None],
        log_threshold=np.full(row.size, policy.log_threshold),
    )
    return (mixture.excess(totals.S, totals.V0) >= 0) & (totals.S * looks.trace.totals.S > 0)
