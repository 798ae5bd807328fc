"""The outlook: expected traffic, required sessions, and lifts that are already excluded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from msgspec import structs

from domain.document import moment
from domain.evidence.counts import Sessions
from domain.metric import DAY
from domain.words import Cadence
from stats.counts.cell import Floats, Ints, number_or_none
from stats.decision.surplus import Surplus
from stats.looks.series import Series
from stats.looks.trace import Flags, Trace
from stats.sequential.mixture import Mixture
from stats.sequential.requirement import (
    SurplusLine,
    rate_variance,
    required_sessions,
    smallest_lift,
    smallest_lift_of_mean,
)

MIN_CONTROL_UNITS = 100
WEEK = 7 * DAY


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """An experiment's expected sessions and detectable lift as of a look.

    Attributes:
        cadence: `fast` where the traffic of a day reaches the fast requirement, else `day` where
            the day requirement is reached within the horizon, else None.
        smallest_lift: The smallest rise, relative to control's rate, that the sessions expected
            by the horizon find with 80 % power; None where unknown.
        eligible_per_day: Units a day over the last 7 days, or since the start.
    """

    sessions: Sessions
    cadence: Cadence | None = None
    smallest_lift: float | None = None
    eligible_per_day: float | None = None

    def once_decided(self) -> Self:
        """The same traffic and requirements, with nothing to come."""
        sessions = structs.replace(self.sessions, projected_decision_at=None)
        return replace(self, sessions=sessions, cadence=None, smallest_lift=None)


NO_OUTLOOK = Outlook(
    sessions=Sessions(
        accumulated=0, required=None, required_fast=None, per_day=None, projected_decision_at=None
    )
)


def outlooks(
    series: Sequence[Series], looks: Trace, mixture: Mixture, surplus: Surplus
) -> list[Outlook]:
    """The outlook of each experiment at a look.

    Args:
        looks: A look of each, in the same order.
        surplus: At these looks: answers wait for its line, and requirements count that.
    """
    ends: list[int] = looks.end.tolist()
    per_day = np.array([units_per_day(*pair, DAY) for pair in zip(series, ends, strict=True)])
    per_week = [units_per_day(*pair, WEEK) for pair in zip(series, ends, strict=True)]
    horizon = np.array([experiment.horizon_end for experiment in series], dtype=np.int64)
    remaining = (horizon - looks.end) / DAY
    accumulated = looks.compared.units
    progress = _Progress.of(series, looks, per_day)
    needs = _needs(series, looks, progress.by_the_end(remaining), mixture, _doubt(surplus))
    required, fast = progress.sessions(needs.day), progress.sessions(needs.fast)
    days = _ratio(needs.day - progress.so_far, progress.a_day, where=progress.a_day > 0)
    within = (days > 0) & (days <= remaining)
    return [
        Outlook(
            sessions=Sessions(
                accumulated=int(accumulated[i]),
                required=number_or_none(required[i]),
                required_fast=number_or_none(fast[i]),
                per_day=float(per_day[i]),
                projected_decision_at=(
                    moment(int(looks.at[i]) + math.ceil(days[i] * DAY)) if within[i] else None
                ),
            ),
            cadence=_cadence(
                progress.a_day[i] >= needs.fast[i],
                progress.by_the_end(remaining)[i] >= needs.day[i],
            ),
            smallest_lift=number_or_none(needs.smallest_lift[i]),
            eligible_per_day=per_week[i],
        )
        for i in range(len(series))
    ]


def units_per_day(series: Series, end: int, span: int) -> float:
    """Units a day, both arms and all strata, over the last `span` seconds before `end`.

    Over the time since the start, where that is shorter.
    """
    cells = series.target
    first, stop = np.searchsorted(cells.block, (end - span, end)).tolist()
    units = int(cells.n1[first:stop].sum()) + int(cells.n0[first:stop].sum())
    return units * DAY / min(span, end - series.start)


@dataclass(frozen=True, kw_only=True)
class _Progress:
    """How far the test has come, in sessions of a constant share in a stratum.

    That is in information: W over π(1−π), so that a ramp, thin strata and what stratification
    costs are in it. Before any, sessions count as they come.

    Attributes:
        a_day: Sessions a day of the last 24 hours, or since the start.
        a_session: The same for each session that came then; NaN where none is known.
    """

    accumulated: Ints
    so_far: Floats
    a_day: Floats
    a_session: Floats
    informed: Flags

    @classmethod
    def of(cls, series: Sequence[Series], looks: Trace, per_day: Floats) -> Self:
        accumulated = looks.compared.units
        start = np.array([experiment.start for experiment in series], dtype=np.int64)
        share = _ratio(looks.compared.n1, accumulated, where=accumulated > 0)
        informed = looks.weight > 0
        unit = np.where(informed, share * (1.0 - share), 1.0)
        gained = (looks.weight - looks.weight_before) / unit
        came = (accumulated - looks.units_before).astype(np.float64)
        span = np.minimum(DAY, looks.end - start) / DAY
        return cls(
            informed=informed,
            accumulated=accumulated,
            so_far=np.where(informed, looks.weight / unit, accumulated),
            a_day=np.where(informed, gained / span, per_day),
            a_session=_ratio(gained, came, where=came > 0),
        )

    def sessions(self, needed: Floats) -> Floats:
        """The sessions at which so much is reached, if each brings as much as of late."""
        missing = needed - self.so_far
        to_come = _ratio(missing, self.a_session, where=self.a_session > 0)
        reached = self.accumulated * _ratio(needed, self.so_far, where=self.so_far > 0)
        counted = np.where(missing > 0, self.accumulated + to_come, reached)
        return np.where(self.informed, counted, needed)

    def by_the_end(self, days: Floats) -> Floats:
        """The information or sessions after some more days."""
        return self.so_far + self.a_day * days


@dataclass(frozen=True, kw_only=True)
class _Needs:
    """Sessions that either cadence's lift needs, and the smallest lift the test will detect."""

    day: Floats
    fast: Floats
    smallest_lift: Floats


def _doubt(surplus: Surplus) -> SurplusLine:
    """I and B of the line by weight, as the units so far have them; 0 where none is asked."""
    line, asked = surplus.line, surplus.is_asked & (surplus.line.totals.W > 0)
    return SurplusLine(
        information=np.where(asked, _ratio(line.information, line.totals.W, where=asked), 0.0),
        spread=np.where(asked, _ratio(line.spread, line.totals.W, where=asked), 0.0),
    )


def _needs(
    series: Sequence[Series], looks: Trace, expected: Floats, mixture: Mixture, doubt: SurplusLine
) -> _Needs:
    units = looks.compared
    known = (units.n0 >= MIN_CONTROL_UNITS) & (units.n1 > 0)
    means = np.array(
        [experiment.target.values is not None for experiment in series], dtype=np.bool_
    )
    share = _ratio(units.n1, units.units, where=known)
    rate = _ratio(units.x0, units.n0, where=known & ~means)
    mean = np.where(known & means, looks.totals.control_rate, np.nan)
    variance = _ratio(looks.totals.V0, looks.totals.W, where=known & means & (looks.totals.W > 0))

    def needed(precisions: list[float]) -> Floats:
        lift = 1.0 / np.sqrt(precisions)
        of_unit = np.where(means, variance, rate_variance(rate, share, lift))
        level = np.where(means, mean, rate)
        return required_sessions(level, share, lift, mixture, doubt=doubt, variance=of_unit)

    smallest = np.where(
        means,
        _ratio(
            smallest_lift_of_mean(variance, share, expected, mixture, doubt),
            np.abs(mean),
            where=np.abs(mean) > 0,
        ),
        _ratio(smallest_lift(rate, share, expected, mixture, doubt), rate, where=rate > 0),
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
