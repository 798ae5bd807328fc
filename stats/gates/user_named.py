"""Whether sessions name the users whom they are of, where users are the units."""

import numpy as np

from domain.cause import Cause
from domain.wording.left_out import CURES, UNIT_OF_SESSIONS, UNKNOWN_USER
from stats.gates.gate import Gate, Reading, no_reading
from stats.gates.sample_ratio import closed_blocks
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
        users, policy, at = looks.series.named, looks.series.policy, looks.trace.at
        if users is None:
            return no_reading(looks)
        closed = closed_blocks(
            users, at=at, block_seconds=policy.block_seconds, grace_seconds=policy.grace_seconds
        )
        counts = np.stack((users.unnamed, users.unnamed + users.treatment + users.control))
        unnamed, sessions = np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0)))[:, closed]
        share = np.divide(unnamed, sessions, out=np.full(at.size, np.nan), where=unnamed > 0)
        return Reading(statistic=share, alarm=share > MOST_UNNAMED)

    def text(self, value: float) -> str:
        """The share of sessions without a user."""
        return f"{100 * value:.3g} % name none"
