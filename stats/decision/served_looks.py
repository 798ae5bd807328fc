"""The looks that an evidence document serves: thinned, with intervals cut to possible lifts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stats.counts.cell import Floats, Ints
from stats.decision.ruling import Ruling
from stats.looks.policy import Policy
from stats.looks.trace import Batch, Trace
from stats.sequential.mixture import confidence_sequence, e_value, p_value

MOST_LOOKS = 500


@dataclass(frozen=True, kw_only=True)
class Looks:
    """The looks, an entry each; above 500 every ⌈n/500⌉-th, the first, last and crossing kept.

    Attributes:
        e_value: E(0), capped at 1e300.
        p_running_min: The running minimum of the p-value over ungated looks.
        lift: Treatment's rate minus control's; NaN where W = 0.
        ci: Array (looks, 2), of a conversion cut to [−1, 1]; NaN where W = 0.
    """

    at: Ints
    e_value: Floats
    p_running_min: Floats
    lift: Floats
    ci: Floats
    gated: NDArray[np.bool_]

    def number_at(self, at: int) -> int:
        """The number of the look that was taken at a moment."""
        return int(np.searchsorted(self.at, at))

    @classmethod
    def of(cls, trace: Trace, ruling: Ruling, rows: Ints, ci: Floats) -> "Looks":
        """The given looks of an experiment's trace.

        Args:
            ci: The intervals of these.
        """
        p = np.where(ruling.gated, 1.0, p_value(trace.log_e))
        return cls(
            at=trace.at[rows],
            e_value=e_value(trace.log_e[rows]),
            p_running_min=np.minimum.accumulate(p)[rows],
            lift=trace.totals[rows].lift,
            ci=ci,
            gated=ruling.gated[rows],
        )


def served_rows(trace: Trace, ruling: Ruling, policy: Policy) -> Ints:
    """The numbers of the looks to serve: up to the ruling's, about 500 at most."""
    count = ruling.look + 1
    step = -(-count // MOST_LOOKS)
    if step <= 1:
        return np.arange(count)
    crossed = (trace.log_e[:count] >= policy.log_threshold) & ~ruling.gated[:count]
    chosen = (np.arange(0, count, step), np.flatnonzero(crossed)[:1], [ruling.fired, count - 1])
    return np.unique(np.concatenate(chosen))


def served_intervals(batch: Batch, rows: Sequence[Ints]) -> list[Floats]:
    """The confidence sequence at the looks to serve; NaN where W = 0.

    It is cut to [−1, 1] where the target is a conversion.

    Returns:
        For each experiment an array (looks to serve, 2).
    """
    own_first = batch.first[:-1].tolist()
    number = np.concatenate([own + first for own, first in zip(rows, own_first, strict=True)])
    intervals = np.full((number.size, 2), np.nan)
    informed = batch.trace.totals.W[number] > 0
    chosen = number[informed]
    intervals[informed] = confidence_sequence(batch.trace.totals[chosen], batch.mixture[chosen])
    rates = np.repeat(batch.rates, [own.size for own in rows])
    intervals[rates] = np.clip(intervals[rates], -1.0, 1.0)
    return np.split(intervals, np.cumsum([own.size for own in rows])[:-1])
