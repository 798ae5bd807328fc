"""Whether sessions name the users whom they are of, where users are the units."""

import numpy as np

from domain.cause import Cause
from domain.wording.left_out import CURES, UNIT_OF_SESSIONS, UNKNOWN_USER
from stats.gates.gate import Gate, Reading, no_reading
from stats.looks.series import Series
from stats.looks.trace import StageLooks

MOST_UNNAMED = 0.5


class UserNamed(Gate):
    """More sessions name a build and no user than there are users, who alone count."""

    cause = Cause.USER_UNNAMED
    member = "unnamed_share"
    title = "Sessions name their users"
    why = "more sessions name a build and no user than there are users who count"
    step = f"{CURES[UNKNOWN_USER]} {UNIT_OF_SESSIONS}"

    def is_asked(self, series: Series) -> bool:
        """Never: a session that came after a look would tell of itself at it."""
        del series
        return False

    def reading(self, looks: StageLooks) -> Reading:
        """Those sessions' share of them and the users, at all looks of a stage."""
        policy, at = looks.series.policy, looks.trace.at
        if (units := looks.series.counted("unnamed")) is None:
            return no_reading(looks)
        unnamed, *users = units.sums("unnamed", "treatment", "control", at=at, policy=policy)
        known = unnamed > 0
        share = np.divide(unnamed, unnamed + sum(users), out=np.full(at.size, np.nan), where=known)
        return Reading(statistic=share, alarm=share > MOST_UNNAMED)

    def text(self, value: float) -> str:
        """The share of sessions without a user."""
        return f"{100 * value:.3g} % name none"
