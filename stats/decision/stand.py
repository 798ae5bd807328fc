"""The stand of a candidate: its evidence on the better side, beside all that its project judged."""

from dataclasses import dataclass

import numpy as np

from domain.policy import KeepRecord
from stats.counts.cell import Floats
from stats.decision.surplus import Surplus
from stats.looks.series import Series
from stats.looks.trace import Trace
from stats.sequential.harm import log_harm

Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True, kw_only=True)
class Stand:
    """The stand of an experiment, an entry a look.

    Attributes:
        log_e: Logarithm of the evidence that the change is better, the smaller of the test's and
            the line's on that side alone.
        record: The number of the record that each look reads; −1 before the first.
        records: Of the project, in order.
    """

    log_e: Floats
    record: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    records: tuple[KeepRecord, ...]

    @property
    def holds(self) -> Flags:
        """Whether a keep would stand at each look: never before its project judged any."""
        needed = np.array([*(record.needed for record in self.records), np.inf])
        return self.log_e >= np.log(needed)[self.record]


def stand_of(series: Series, looks: Trace, rho: Floats, surplus: Surplus) -> Stand | None:
    """Returns the stand of an experiment; None where a keep has evidence of its own alone.

    Args:
        rho: Precisions (looks, components).
    """
    policy = series.policy
    if policy.keep_when == "alone":
        return None
    side = 1.0 if policy.better == "higher" else -1.0
    S, V = looks.totals.S, looks.totals.V0
    begins = [record.begins_at for record in series.records]
    return Stand(
        log_e=surplus.on_side(side, S).guarded(log_harm(side * S, V, rho)),
        record=np.searchsorted(np.array(begins, dtype=np.int64), looks.at, side="right") - 1,
        records=series.records,
    )
