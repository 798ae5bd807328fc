"""Turnover: whether visitors begin another session more often in either arm."""

import math
from dataclasses import replace

import numpy as np

from domain.cause import Cause
from domain.policy import Numbers
from stats.counts.cell import Floats, Ints, terms
from stats.counts.closed_cells import ClosedCells
from stats.counts.timeline import AnalysisCells, Timeline, timeline
from stats.gates.companions.companion import CompanionGate, CompanionReading, rows_of
from stats.gates.gate import ALARM, Flags, Reading
from stats.gates.lateness import SCORE, VARIANCE
from stats.looks.series import Companion, Series
from stats.looks.trace import StageLooks

# The share of sessions that name a user, below which too few of their visitors are known.
LEAST_NAMED = 0.2


class Turnover(CompanionGate):
    """A session has another of the same user after it, within the window of the target.

    A session that lasts longer has a visitor's second chance for its own arm: fewer others explain
    a higher rate, and hold a `keep` back. A session that is cut has none; but to lose sessions is a
    defect, so that a `rollback` is never held back, but warned of.

    Of all sessions fewer have another where fewer visitors log in, too; of those that name a user,
    where such log in as come back less. So both must show it: at looks at which all sessions
    alarm, the smaller of both is the statistic. A user's further sessions are drawn anew: those
    that name a user are counted without as many of them as fall into each arm.
    """

    cause = role = Cause.TURNOVER
    member = "turnover_e"
    title = "Visitors come back as often in both arms"
    counts = "{:,} sessions of treatment and {:,} of control were followed by another"
    why = "sessions last longer in the arm that looks better, whose visitors begin fewer others"
    step = (
        "Sessions of that arm hold a visitor's later visits too: let both arms end a session alike,"
        " or set `unit` to `user`, and register the change again."
    )

    def uncounted(self, series: Series, companion: Companion) -> ClosedCells:
        """All units of the target, and of them the sessions that have another of their user."""
        _, x1, _, x0 = _aligned(companion.cells, series.target)
        return replace(series.target, x1=x1, x0=x0, values=None)

    def _held(self, looks: StageLooks, line: Timeline, number: int) -> CompanionReading:
        """The reading, where it is high the smaller of those of all and of named sessions."""
        reading = self._reading(looks, line, number)
        is_high = reading.statistic >= math.log(ALARM)
        if not is_high.any():
            return reading
        score, variance = _of_named(looks, line.cells.of_streams(number, number + 1))
        log_e = looks.mixture(score.size).log_e(score, variance)
        both = np.where(reading.score * score > 0, np.minimum(reading.statistic, log_e), 0.0)
        statistic = np.where(is_high, both, reading.statistic)
        alarm = reading.alarm & (statistic >= math.log(ALARM))
        return replace(reading, statistic=statistic, alarm=alarm)

    def explains(self, score: Floats, target: Floats, policy: Numbers) -> Flags:
        """At which looks fewer sessions explain that the arm with the better rate is better."""
        gains = target > 0 if policy.better == "higher" else target < 0
        return super().explains(score, target, policy) & gains

    def cuts_sessions(self, reading: Reading, look: int) -> bool:
        """Whether visitors of treatment begin another session more often."""
        return (
            isinstance(reading, CompanionReading)
            and bool(reading.score[look] > 0)
            and bool(reading.statistic[look] >= math.log(ALARM))
        )


def _aligned(named: ClosedCells, target: ClosedCells) -> Ints:
    """The n₁, x₁, n₀ and x₀ of named sessions in each cell of the target: an array (4, cells)."""
    counts = np.zeros((4, target.block.size), dtype=np.int64)
    counts[:, rows_of(named, target)] = (named.n1, named.x1, named.n0, named.x0)
    return counts


def _of_named(looks: StageLooks, units: AnalysisCells) -> tuple[Floats, Floats]:
    """Score and variance at each look: those who begin another, of first sessions of a user.

    Args:
        units: All units, whose shares are those of further sessions.
    """
    companion = looks.series.companions[Cause.TURNOVER]
    target = looks.series.target
    n1, x1, n0, x0 = _aligned(companion.cells, target)
    named = replace(target, n1=n1, x1=x1, n0=n0, x0=x0, values=None)
    line = timeline([looks.stream(replace(companion, cells=named))])
    cells, again = line.cells, line.cells.x1 + line.cells.x0
    share = units.n1 / np.maximum(units.n1 + units.n0, 1)
    first = terms(cells.n1 - again * share, cells.x1, cells.n0 - again * (1 - share), cells.x0)
    stop = np.searchsorted(cells.row, line.row_at(0, looks.trace.at), side="right")
    sums = np.cumsum(np.pad(first, ((0, 0), (1, 0))), axis=1)[:, stop]
    return sums[SCORE], np.maximum(sums[VARIANCE], 0.0)


def is_unseen(series: Series, at: int) -> bool:
    """Whether too few of the sessions that have closed by a time name a user, if any has."""
    companion = series.companions.get(Cause.TURNOVER)
    if companion is None:
        return False
    named, units = (_units(cells, series.policy, at) for cells in (companion.cells, series.target))
    return named < LEAST_NAMED * units


def _units(cells: ClosedCells, policy: Numbers, at: int) -> int:
    closed = cells.block + policy.block_seconds + policy.closes_after <= at
    return int((cells.n1 + cells.n0)[closed].sum())
