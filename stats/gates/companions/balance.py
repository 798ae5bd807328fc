"""Balance: whether as many users of both arms were known before the canary."""

import math
from dataclasses import replace

from msgspec import structs

from domain.cause import GateCheck
from domain.metric import HISTORY
from stats.counts.closed_cells import ClosedCells
from stats.gates.companions.companion import CompanionGate
from stats.gates.gate import ALARM, Reading, Units
from stats.looks.series import Companion, Series


class Balance(CompanionGate):
    """Users of both arms have a history as often.

    It holds nothing back: a build may bring other users, and that is its effect. The adjustment by
    the history is wrong then, and is not read.
    """

    role = HISTORY
    member = "balance_e"
    title = "Who came was known as often in both arms"
    counts = "known before: {:,} users of treatment and {:,} of control"
    why = "the arms differ in who came"
    step = (
        "The arms differ in who came: either the build brings other users, or it sends some under"
        " a new `user_ref`. Compare what both builds send as `user_ref`."
    )

    def uncounted(self, series: Series, companion: Companion) -> ClosedCells:
        """The users, and of them those who have a history."""
        del series
        return replace(companion.cells, values=None)

    def differs(self, reading: Reading, look: int) -> bool:
        """Whether the arms differ in who came, as of a look."""
        return bool(reading.statistic[look] >= math.log(ALARM))

    def check(self, reading: Reading, look: int, *, holds: bool, units: Units) -> GateCheck:
        """The gate as of a look; it never fails."""
        check = super().check(reading, look, holds=holds, units=units)
        return structs.replace(check, state="differs") if self.differs(reading, look) else check
