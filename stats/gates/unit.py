"""The unit: whether the router keeps visitors in an arm, while sessions are counted."""

from dataclasses import dataclass

import numpy as np

from domain.cause import FEWEST_RETURNING, KEPT_HALF_WAY, MANY_RETURNING, Cause
from stats.counts.cell import Floats
from stats.gates.gate import Gate, Reading, Units, no_reading
from stats.looks.series import Series
from stats.looks.trace import StageLooks

# At a share π under a tenth fewer than FEWEST_RETURNING are beyond chance: 100·π/(1−π), but 3. A
# lottery reaches it there at some look in less than 0.002 of runs.
LEAST_RETURNING = 3
SOME_RETURNING = 100
# Users with a second session, by the arm of their first; `kept_` have it in the same arm.
_AGAIN = ("again_treatment", "again_control")


@dataclass(frozen=True, kw_only=True)
class UnitReading(Reading):
    """Which of the users whose first session was in the smaller arm came back to it.

    The statistic is (kept − expected) / (users − expected): 0 of a lottery, 1 of a router that
    keeps everybody; NaN before there are enough users.

    Attributes:
        users: Those with a second session.
        kept: Those of them whose second is in the same arm.
    """

    users: Floats
    kept: Floats
    expected: Floats


class Unit(Gate):
    """The router keeps visitors, and their sessions are counted as if each were drawn alone.

    It reads exposures alone. Of each span without a deploy, it reads the arm that is smaller there.
    """

    cause = Cause.UNIT
    member = "visitors_kept"
    title = "Each session is drawn anew"
    why = (
        "the router keeps visitors in their arm, and their sessions count as if each were drawn"
        " alone"
    )
    step = (
        "The router keeps visitors, not sessions: set the project's `unit` to `user`, send"
        " `user_ref` with every event, close this experiment, and register the change again."
    )

    def reading(self, looks: StageLooks) -> Reading:
        """How many came back to the smaller arm, at all looks of a stage."""
        policy, at = looks.series.policy, looks.trace.at
        if (units := looks.series.counted(*_AGAIN)) is None:
            return no_reading(looks)
        users, kept, expected = np.zeros((3, at.size))
        epoch = np.searchsorted(
            np.array(looks.series.cuts, dtype=np.int64), units.block, side="right"
        )
        returned = sum(units.columns[name] for name in _AGAIN)
        for number in np.unique(epoch[returned > 0]):
            n1, n0, again1, again0, kept1, kept0 = units.sums(
                *("treatment", "control", *_AGAIN, "kept_treatment", "kept_control"),
                at=at,
                policy=policy,
                inside=epoch == number,
            )
            smaller, total = np.minimum(n1, n0), np.maximum(n1 + n0, 1)
            again = np.where(n1 <= n0, again1, again0)
            users += again
            kept += np.where(n1 <= n0, kept1, kept0)
            expected += again * smaller / total
        odds = expected / np.maximum(users - expected, 1e-9)
        fewest = np.clip(SOME_RETURNING * odds, LEAST_RETURNING, FEWEST_RETURNING)
        known = users >= np.maximum(fewest, MANY_RETURNING * odds)
        share = np.full(at.size, np.nan)
        np.divide(kept - expected, users - expected, out=share, where=known)
        return UnitReading(
            statistic=share,
            alarm=known & (np.nan_to_num(share) >= KEPT_HALF_WAY),
            users=users,
            kept=kept,
            expected=expected,
        )

    def is_asked(self, series: Series) -> bool:
        """Whether any user has come back."""
        return series.counted(*_AGAIN) is not None

    def text(self, value: float) -> str:
        """The share of the way from a lottery."""
        return f"{100 * value:.0f} %"

    def detail(self, reading: Reading, look: int, units: Units) -> str | None:
        """How many users came back to the smaller arm, and how many would by lot."""
        del units
        if not isinstance(reading, UnitReading):
            return None
        users, kept, expected = (
            float(column[look]) for column in (reading.users, reading.kept, reading.expected)
        )
        return (
            f"{kept:,.0f} of {users:,.0f} visitors of the smaller arm began their second session"
            f" there; by lot {expected:,.0f} would"
        )
