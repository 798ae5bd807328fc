"""The looks that an evidence document serves: thinned, with intervals cut to possible lifts."""

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from domain.document import moment
from domain.evidence.results import EvidenceLook
from domain.policy import Numbers
from stats.counts.cell import Floats, Ints
from stats.decision.ruling import Ruling
from stats.decision.surplus import Surplus
from stats.looks.trace import Batch, Trace
from stats.sequential.mixture import e_value, p_value

MOST_LOOKS = 500


def served_looks(trace: Trace, ruling: Ruling, rows: Ints, ci: Floats) -> tuple[EvidenceLook, ...]:
    """The given looks of an experiment's trace.

    Args:
        rows: Their numbers, as `served_rows` returns them.
        ci: Array (looks, 2): their intervals, as `served_intervals` returns them.
    """
    p = np.where(ruling.gated, 1.0, p_value(trace.log_e))
    # Column by column: there may be hundreds of each of thousands of experiments.
    columns = (
        trace.at[rows],
        e_value(trace.log_e[rows]),
        np.minimum.accumulate(p)[rows],
        trace.totals[rows].lift,
        ci,
        ruling.gated[rows],
    )
    return tuple(
        EvidenceLook(
            at=moment(at),
            e_value=e,
            p_running_min=p_running_min,
            lift=None if math.isnan(lift) else lift,
            ci=None if math.isnan(low) or math.isnan(high) else (low, high),
            gated=gated,
        )
        for at, e, p_running_min, lift, (low, high), gated in zip(
            *(column.tolist() for column in columns), strict=True
        )
    )


def served_rows(trace: Trace, ruling: Ruling, policy: Numbers) -> Ints:
    """The numbers of the looks to serve: up to the ruling's, about 500 at most."""
    count = ruling.look + 1
    step = -(-count // MOST_LOOKS)
    if step <= 1:
        return np.arange(count)
    crossed = (trace.log_e[:count] >= policy.log_threshold) & ~ruling.gated[:count]
    candidate = ruling.look if ruling.candidate is None else ruling.candidate
    chosen = (np.arange(0, count, step), np.flatnonzero(crossed)[:1], [candidate, count - 1])
    return np.unique(np.concatenate(chosen))


def served_intervals(
    batch: Batch, rows: Sequence[Ints], surpluses: Sequence[Surplus]
) -> list[Floats]:
    """The intervals at the looks to serve, an array (looks, 2) each; NaN where W = 0.

    It is cut to [−1, 1] where the target is a conversion.
    """
    own_first = batch.first[:-1].tolist()
    number = np.concatenate([own + first for own, first in zip(rows, own_first, strict=True)])
    intervals = np.full((number.size, 2), np.nan)
    informed = batch.trace.totals.W[number] > 0
    chosen, surplus = number[informed], reduce(Surplus.then, surpluses)
    trace = batch.trace[chosen]
    intervals[informed] = surplus[chosen].intervals(
        trace.totals, batch.mixture[chosen], trace.history
    )
    rates = np.repeat(batch.rates, [own.size for own in rows])
    intervals[rates] = np.clip(intervals[rates], -1.0, 1.0)
    return np.split(intervals, np.cumsum([own.size for own in rows])[:-1])
