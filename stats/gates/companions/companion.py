"""A gate on a companion of the target: outcomes that do not count, more of them in an arm.

They make the rate of that arm look lower, and explain nothing of the other side.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from domain.policy import Numbers
from stats.counts.cell import Floats, Ints
from stats.counts.closed_cells import ClosedCells
from stats.counts.timeline import Timeline, timeline
from stats.gates.gate import ALARM, Flags, Gate, Reading, Units
from stats.looks.series import Companion, Series
from stats.looks.trace import StageLooks
from stats.sequential.mixture import Mixture


@dataclass(frozen=True, kw_only=True)
class CompanionReading(Reading):
    """A reading with its outcomes, which are cumulative.

    Attributes:
        treatment: Outcomes of treatment's units that do not count.
        score: S of units with such an outcome, positive where treatment has more.
    """

    score: Floats
    treatment: Ints
    control: Ints


class CompanionGate(Gate):
    """Outcomes of an arm do not count more often than those of the other.

    It holds back the answer that they explain, and that alone.

    Attributes:
        alone: Of the companion, if any, whose outcomes may show the answer by themselves: then
            nothing is held back.
        counts: The words for such outcomes of treatment, and of control.
    """

    role: str
    alone: str | None = None
    counts: ClassVar[str] = "{:,} of treatment, {:,} of control"

    def uncounted(self, series: Series, companion: Companion) -> ClosedCells:
        """The units that had an outcome which does not count, out of those that it is read of."""
        del series
        return companion.cells

    def explains(self, score: Floats, target: Floats, policy: Numbers) -> Flags:
        """At which looks a score, positive where treatment has more, explains the target's."""
        del policy
        return score * target < 0

    def is_asked(self, series: Series) -> bool:
        """Whether the policy counts these outcomes."""
        return self.role in series.companions

    def detail(self, reading: Reading, look: int, units: Units) -> str | None:
        """How many outcomes of either arm do not count; None where none."""
        del units
        if not isinstance(reading, CompanionReading):
            return None
        treatment, control = int(reading.treatment[look]), int(reading.control[look])
        return self.counts.format(treatment, control) if treatment or control else None

    def alarm_at(self, policy: Numbers) -> float:
        """The evidence at which it alarms."""
        del policy
        return ALARM

    def readings(self, stages: Sequence[StageLooks]) -> Sequence[CompanionReading]:
        """The readings of several experiments, each at all looks of a stage."""
        asked = [looks for looks in stages if self.is_asked(looks.series)]
        if not asked:
            return [_nothing(len(looks.trace)) for looks in stages]
        line = timeline([looks.stream(self._metric(looks.series)) for looks in asked])
        read = iter([self._held(looks, line, number) for number, looks in enumerate(asked)])
        return [
            next(read) if self.is_asked(looks.series) else _nothing(len(looks.trace))
            for looks in stages
        ]

    def _held(self, looks: StageLooks, line: Timeline, number: int) -> CompanionReading:
        """The reading, without the alarms at looks whose answer other outcomes show alone."""
        reading = self._reading(looks, line, number)
        if self.alone is None or not reading.alarm.any():
            return reading
        shown = _shown_by(looks.series.companions[self.alone], looks)
        return replace(reading, alarm=reading.alarm & ~shown)

    def _metric(self, series: Series) -> Companion:
        companion = series.companions[self.role]
        return Companion(
            window_seconds=companion.window_seconds, cells=self.uncounted(series, companion)
        )

    def _reading(self, looks: StageLooks, line: Timeline, number: int) -> CompanionReading:
        row = line.row_at(number, looks.trace.at)
        totals, size = line.events.gathered(row), row.size
        log_e = looks.mixture(size).log_e(totals.S, totals.V0)
        # A unit may have several events of a mean's companion.
        treatment, control = (
            np.append(column, 0)[row].astype(np.int64)
            for column in (line.compared.y1, line.compared.y0)
        )
        # Without a cause it holds nothing back.
        is_high = (log_e >= math.log(self.alarm_at(looks.series.policy))) & bool(self.cause)
        return CompanionReading(
            statistic=log_e,
            alarm=is_high & self.explains(totals.S, looks.trace.totals.S, looks.series.policy),
            score=totals.S,
            treatment=treatment,
            control=control,
        )


def rows_of(cells: ClosedCells, target: ClosedCells) -> Ints:
    """The row of the target's cell, which must have closed, for each cell of a companion."""
    strata = 1 + max(int(target.stratum.max(initial=0)), int(cells.stratum.max(initial=0)))
    known, wanted = target.block * strata + target.stratum, cells.block * strata + cells.stratum
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known[order], wanted)
    if np.any(place >= known.size) or np.any(known[order[place]] != wanted):
        raise ValueError("a companion has cells that the target does not have")
    return order[place]


def lone_outcomes(target: ClosedCells, companion: ClosedCells) -> ClosedCells:
    """The units of a companion that counts more, and of them those without the target's outcome."""
    row = rows_of(companion, target)
    x1, x0 = companion.x1 - target.x1[row], companion.x0 - target.x0[row]
    return replace(companion, x1=x1, x0=x0, values=None)


def _shown_by(companion: Companion, looks: StageLooks) -> Flags:
    """Whether a companion alone shows a difference of the target's side, at each look."""
    line = timeline([looks.stream(companion)])
    row = line.row_at(0, looks.trace.at)
    totals, policy = line.totals.gathered(row), looks.series.policy
    mixture = Mixture(
        rho=np.tile(policy.rho, (row.size, 1)) * np.append(line.factor, 1.0)[row][:, None],
        log_threshold=np.full(row.size, policy.log_threshold),
    )
    return (mixture.excess(totals.S, totals.V0) >= 0) & (totals.S * looks.trace.totals.S > 0)


def _nothing(size: int) -> CompanionReading:
    """The reading of an experiment without such a companion."""
    nothing = np.zeros(size, dtype=np.int64)
    return CompanionReading(
        statistic=np.full(size, np.nan),
        alarm=nothing > 0,
        score=np.zeros(size),
        treatment=nothing,
        control=nothing,
    )
