"""Turnover: whether visitors begin another session more often in either arm."""

import math
from dataclasses import replace

import numpy as np

from domain.cause import Cause
from stats.counts.cell import Floats
from stats.counts.closed_cells import ClosedCells
from stats.gates.companions.companion import CompanionGate, CompanionReading, rows_of
from stats.gates.gate import ALARM, Flags, Reading, Units
from stats.looks.policy import Policy
from stats.looks.series import Companion, Series

# The share of sessions that name a user, below which too few of their visitors are known.
LEAST_NAMED = 0.2


class Turnover(CompanionGate):
    """A session has another of the same user after it, within the window of the target.

    A session that lasts longer has a visitor's second chance for its own arm: fewer others explain
    a higher rate, and hold a `keep` back. A session that is cut has none; but to lose sessions is a
    defect, so that a `rollback` is never held back, but warned of.
    """

    cause = role = Cause.TURNOVER
    member = "turnover_e"
    title = "Visitors begin another session alike"
    why = "sessions last longer in the arm that looks better, whose visitors begin fewer others"
    step = (
        "Sessions of that arm hold a visitor's later visits too: let both arms end a session alike,"
        " or set `unit` to `user`, and register the change again."
    )

    def uncounted(self, series: Series, companion: Companion) -> ClosedCells:
        """All units of the target, and of them the sessions that have another of their user."""
        target, named = series.target, companion.cells
        row = rows_of(named, target)
        x1, x0 = np.zeros_like(target.n1), np.zeros_like(target.n0)
        x1[row], x0[row] = named.x1, named.x0
        return replace(target, x1=x1, x0=x0, values=None)

    def explains(self, score: Floats, target: Floats, policy: Policy) -> Flags:
        """At which looks fewer sessions explain that the arm with the better rate is better."""
        gains = target > 0 if policy.better == "higher" else target < 0
        return super().explains(score, target, policy) & gains

    def detail(self, reading: Reading, look: int, units: Units) -> str | None:
        """How many sessions of either arm have another."""
        del units
        if not isinstance(reading, CompanionReading):
            return None
        return (
            f"another session after {reading.treatment[look]:,} of treatment,"
            f" after {reading.control[look]:,} of control"
        )

    def cuts_sessions(self, reading: Reading, look: int) -> bool:
        """Whether visitors of treatment begin another session more often."""
        return (
            isinstance(reading, CompanionReading)
            and bool(reading.score[look] > 0)
            and bool(reading.statistic[look] >= math.log(ALARM))
        )


def is_unseen(series: Series, at: int) -> bool:
    """Whether too few of the sessions that have closed by a time name a user, if any has."""
    companion = series.companions.get(Cause.TURNOVER)
    if companion is None:
        return False
    named, units = (_units(cells, series.policy, at) for cells in (companion.cells, series.target))
    return named < LEAST_NAMED * units


def _units(cells: ClosedCells, policy: Policy, at: int) -> int:
    closed = cells.block + policy.block_seconds + policy.closes_after <= at
    return int((cells.n1 + cells.n0)[closed].sum())
