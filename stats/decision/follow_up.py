"""A follow-up: the units that were exposed after the deciding look, as a sequence of their own.

A lift that is read where the test crosses is lucky. Units that come afterwards know nothing
of that luck: their lift, read at an end that was set before, is unbiased. The effect is
estimated of them and of the units before the decision.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from domain.metric import DAY
from stats.counts.cell import Floats
from stats.decision.effect import Effect, effect_at
from stats.decision.ruling import decide
from stats.decision.surplus import surpluses
from stats.gates.readings import gate_readings
from stats.looks.series import Series
from stats.looks.stratification import stratified
from stats.looks.trace import Batch, traced
from stats.sequential.mixture import confidence_sequence


@dataclass(frozen=True, kw_only=True)
class FollowUp:
    """The sequence of the units that were exposed after a decision, at its last look.

    Attributes:
        as_of: The look; None before the first.
        lift: Treatment minus control; None where nothing was compared, or a gate holds.
        per_day: Units of both arms a day since the decision; None before the first look.
        log_e: Logarithm of the e-value of the whole experiment, units before the decision
            included, at the last look at which no gate holds, and of the line beside it where
            that is asked, whichever is smaller; None where there is none.
        effect: The effect by all of these units, at the last such look until it was due; None
            where nothing was compared.
    """

    as_of: int | None = None
    ended: bool = False
    stopped: bool = False
    units: int = 0
    lift: float | None = None
    standard_error: float | None = None
    relative: float | None = None
    interval: tuple[float, float] | None = None
    per_day: float | None = None
    log_e: float | None = None
    effect: Effect | None = None
    final: bool = False


def follow_up(series: Series, *, begin: int, end: int, stop: int | None = None) -> FollowUp:
    """Returns the follow-up of a decided experiment.

    Args:
        begin: The first block after the deciding look, epoch seconds.
        stop: When an arm was declared to be served no longer; None where none was.
    """
    if stop is not None:
        end = max(min(end, stop - stop % series.policy.block_seconds), begin)
    fresh = series.between(begin, end)
    batch, gated = _looked(fresh)
    look, gone = len(batch.trace) - 1, np.flatnonzero(batch.trace.contrast_gone)
    if gone.size:
        look = int(gone[0])
    ended = bool(gone.size) or series.as_of >= end + series.policy.closes_after
    due = max(series.start + series.policy.reward_seconds, begin)
    whole = replace(
        _of_all_units(series.between(series.begin, end), due),
        ended=ended,
        final=ended or series.as_of >= due,
    )
    if look < 0:
        return replace(whole, stopped=ended)
    trace = batch.trace
    units, exposed = int(trace.n1[look] + trace.n0[look]), int(trace.end[look]) - begin
    known = replace(
        whole,
        as_of=int(trace.at[look]),
        stopped=ended and (stop is not None or bool(gone.size) or _faded(batch, look, fresh, end)),
        units=units,
        per_day=units * DAY / exposed if exposed > 0 else None,
    )
    if gated[look] or not trace.totals.W[look] > 0:
        return known
    return _estimated(known, batch, look, is_rate=series.target.values is None)


def _looked(series: Series) -> tuple[Batch, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """The looks at a series, and at which of them a gate holds."""
    batch = traced([stratified(series)])
    ruling = decide(
        batch.trace,
        gates=gate_readings(batch)[0],
        watches=(),
        policy=series.policy,
        horizon_end=series.horizon_end,
        closed_at=None,
    )
    return batch, ruling.gated


def _estimated(known: FollowUp, batch: Batch, look: int, *, is_rate: bool) -> FollowUp:
    totals = batch.trace.totals[look : look + 1]
    lift, level = float(totals.lift[0]), abs(float(totals.control_rate[0]))
    variance = max(float(totals.V0[0]), float(totals.sato_variance(totals.lift)[0]))
    ends: Floats = confidence_sequence(totals, batch.mixture[look : look + 1])[0]
    low, high = (np.clip(ends, -1.0, 1.0) if is_rate else ends).tolist()
    return replace(
        known,
        lift=lift,
        standard_error=math.sqrt(variance) / float(totals.W[0]),
        relative=lift / level if level > 0 else None,
        interval=(low, high),
    )


def _faded(batch: Batch, look: int, series: Series, end: int) -> bool:
    """Whether nothing was compared over the contrast time before the planned end."""
    trace = batch.trace
    if look < 0 or not trace.weight[look] > 0:
        return True
    before = int(np.searchsorted(trace.end, end - series.policy.contrast_seconds, side="right"))
    return before > 0 and bool(trace.weight[look] <= trace.weight[before - 1])


def _of_all_units(series: Series, due: int) -> FollowUp:
    """The e-process of all units, run on past the decision, and their effect until it was due."""
    batch, gated = _looked(series)
    trace = batch.trace
    fair = np.flatnonzero(~gated & (trace.totals.W > 0))
    if not fair.size:
        return FollowUp()
    (surplus,) = surpluses(batch)
    log_e = float(surplus.guarded(trace.log_e)[fair[-1]])
    in_time = fair[trace.at[fair] <= due]
    is_rate = series.target.values is None
    effect = None
    if in_time.size:
        row = int(in_time[-1])
        own = surplus[row : row + 1]
        effect = effect_at(batch, row, series.policy, is_rate=is_rate, surplus=own)
    return FollowUp(log_e=log_e, effect=effect)
