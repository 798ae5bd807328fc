"""The outlook: expected traffic, required sessions, and lifts that are already excluded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from stats.counts.cell import Floats, Ints, number_or_none
from stats.looks.policy import DAY
from stats.looks.series import Series
from stats.looks.trace import Flags, Trace
from stats.looks.words import Cadence
from stats.sequential.mixture import Mixture
from stats.sequential.requirement import (
    required_sessions,
    required_sessions_of_mean,
    smallest_lift,
    smallest_lift_of_mean,
)

MIN_CONTROL_UNITS = 100
WEEK = 7 * DAY


@dataclass(frozen=True, kw_only=True)
class Sessions:
    """Expected traffic and required sessions.

    Attributes:
        accumulated: Units in closed cells.
        required: Units for the day cadence's lift (20 % by default) at 80 % power; None before
            100 control units and both arms, without conversions, or while a mean has no test.
        required_fast: Units for the fast cadence's lift (50 % by default).
        per_day: Units a day over the last 24 hours, or since the start.
        projected_decision_at: When `required` is reached at this traffic, epoch seconds; None
            where that is unknown, past, beyond the horizon, or the experiment decided.
    """

    accumulated: int
    required: float | None
    required_fast: float | None
    per_day: float | None
    projected_decision_at: int | None


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """An experiment's expected sessions and detectable lift as of one look.

    Attributes:
        sessions: Expected traffic and required sessions.
        cadence: `fast` where the traffic of a day reaches the fast requirement, else `day` where
            the day requirement is reached within the horizon, else None.
        smallest_lift: The smallest rise, relative to control's rate, that the sessions expected
            by the horizon find with 80 % power; None where unknown.
        eligible_per_day: Units a day over the last 7 days, or since the start.
    """

    sessions: Sessions
    cadence: Cadence | None
    smallest_lift: float | None
    eligible_per_day: float | None

    def once_decided(self) -> Self:
        """The same traffic and requirements, with nothing to come."""
        sessions = replace(self.sessions, projected_decision_at=None)
        return replace(self, sessions=sessions, cadence=None, smallest_lift=None)


NO_OUTLOOK = Outlook(
    sessions=Sessions(
        accumulated=0,
        required=None,
        required_fast=None,
        per_day=None,
        projected_decision_at=None,
    ),
    cadence=None,
    smallest_lift=None,
    eligible_per_day=None,
)


def outlooks(series: Sequence[Series], looks: Trace, mixture: Mixture) -> list[Outlook]:
    """The outlook of each experiment at one look.

    Args:
        series: The experiments.
        looks: One look of each, in the same order.
        mixture: Of the same length.
    """
    ends: list[int] = looks.end.tolist()
    per_day = np.array([units_per_day(*pair, DAY) for pair in zip(series, ends, strict=True)])
    per_week = [units_per_day(*pair, WEEK) for pair in zip(series, ends, strict=True)]
    horizon = np.array([experiment.horizon_end for experiment in series], dtype=np.int64)
    remaining = (horizon - looks.end) / DAY
    accumulated = looks.n1 + looks.n0
    expected = accumulated + per_day * remaining
    needs = _needs(series, looks, expected, mixture)
    required, fast = needs.day, needs.fast
    days = np.divide(
        required - accumulated, per_day, out=np.full(per_day.shape, np.nan), where=per_day > 0
    )
    within = (days > 0) & (days <= remaining)
    return [
        Outlook(
            sessions=Sessions(
                accumulated=int(accumulated[i]),
                required=number_or_none(required[i]),
                required_fast=number_or_none(fast[i]),
                per_day=float(per_day[i]),
                projected_decision_at=(
                    int(looks.at[i]) + math.ceil(days[i] * DAY) if within[i] else None
                ),
            ),
            cadence=_cadence(per_day[i] >= fast[i], expected[i] >= required[i]),
            smallest_lift=number_or_none(needs.smallest_lift[i]),
            eligible_per_day=per_week[i],
        )
        for i in range(len(series))
    ]


def units_per_day(series: Series, end: int, span: int) -> float:
    """Units a day, both arms and all strata, over the last `span` seconds before `end`.

    Over the time since the start, where that is shorter.
    """
    rows = slice(*np.searchsorted(series.block, (end - span, end)).tolist())
    units = int(series.n1[rows].sum()) + int(series.n0[rows].sum())
    return units * DAY / min(span, end - series.start)


@dataclass(frozen=True, kw_only=True)
class _Needs:
    """Sessions that either cadence's lift needs, and the smallest lift the test will detect."""

    day: Floats
    fast: Floats
    smallest_lift: Floats


def _needs(series: Sequence[Series], looks: Trace, expected: Floats, mixture: Mixture) -> _Needs:
    known = (looks.n0 >= MIN_CONTROL_UNITS) & (looks.n1 > 0)
    means = np.array([experiment.values is not None for experiment in series], dtype=np.bool_)
    share = _ratio(looks.n1, looks.n1 + looks.n0, where=known)
    rate = _ratio(looks.x0, looks.n0, where=known & ~means)
    mean = np.where(known & means, looks.totals.control_rate, np.nan)
    variance = _ratio(looks.totals.V0, looks.totals.W, where=known & means & (looks.totals.W > 0))

    def needed(precisions: list[float]) -> Floats:
        lift = 1.0 / np.sqrt(precisions)
        return np.where(
            means,
            required_sessions_of_mean(mean, variance, share, lift, mixture),
            required_sessions(rate, share, lift, mixture),
        )

    smallest = np.where(
        means,
        _ratio(
            smallest_lift_of_mean(variance, share, expected, mixture),
            np.abs(mean),
            where=np.abs(mean) > 0,
        ),
        _ratio(smallest_lift(rate, share, expected, mixture), rate, where=rate > 0),
    )
    return _Needs(
        day=needed([experiment.policy.rho_day for experiment in series]),
        fast=needed([experiment.policy.rho_fast for experiment in series]),
        smallest_lift=smallest,
    )


def _ratio(part: Floats | Ints, whole: Floats | Ints, *, where: Flags) -> Floats:
    """Part divided by whole; NaN elsewhere."""
    return np.divide(part, whole, out=np.full(part.shape, np.nan), where=where)


def _cadence(fast: np.bool_, day: np.bool_) -> Cadence | None:
    if fast:
        return Cadence.FAST
    return Cadence.DAY if day else None
