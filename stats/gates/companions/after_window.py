"""After the window: whether outcomes come after it more often in either arm."""

import numpy as np

from domain.cause import Cause
from domain.policy import Numbers
from stats.counts.closed_cells import ClosedCells
from stats.gates.companions.companion import CompanionGate, rows_of
from stats.looks.series import Companion, Series

LONG_WINDOW = "long_window"


class AfterWindow(CompanionGate):
    """Outcomes come after the window more often in the arm whose rate that makes look lower.

    It is read of the outcomes that the target's window misses, out of all within four windows.
    """

    cause = Cause.AFTER_WINDOW
    member = "after_window_e"
    role = LONG_WINDOW
    title = "As many outcomes miss the window in both arms"
    why = "outcomes come after the window more often in the arm with the lower rate"
    step = "The arm with the lower rate converts later: give the metric a longer window."

    def uncounted(self, series: Series, companion: Companion) -> ClosedCells:
        """The outcomes that the window misses, out of all of them."""
        return missed_outcomes(series.target, companion.cells)

    def alarm_at(self, policy: Numbers) -> float:
        """The evidence that a policy froze."""
        return policy.after_window_at


def missed_outcomes(target: ClosedCells, long: ClosedCells) -> ClosedCells:
    """The outcomes that the target's window misses, out of all within four windows.

    A payment of a user with several sessions may count for another of them in the longer window:
    such a cell has missed none.

    Returns:
        Cells with n_a = x_a + after_a and x_a = after_a.
    """
    row = rows_of(long, target)
    x1, x0 = target.x1[row], target.x0[row]
    n1, n0 = np.maximum(long.x1, x1), np.maximum(long.x0, x0)
    return ClosedCells(block=long.block, stratum=long.stratum, n1=n1, x1=n1 - x1, n0=n0, x0=n0 - x0)
