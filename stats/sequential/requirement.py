"""Requirements: the sessions that a lift needs, and the lift that some sessions can close."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from stats.counts.cell import Floats, Totals
from stats.counts.columns import Columns, Rows
from stats.sequential.boundary import last_inside, widened
from stats.sequential.line import HEAVIEST, Line
from stats.sequential.mixture import TOLERANCE, Mixture

Z_POWER = 0.8416  # the normal quantile of 80 % power


@dataclass(frozen=True, kw_only=True)
class SurplusLine(Columns):
    """The information in counts of units, and the variance by chance of S, by weight; 0 unasked.

    At W = 1 they are I and B of the line that an answer waits for.
    """

    information: Floats
    spread: Floats

    @classmethod
    def none(cls, looks: int) -> Self:
        """No line, so many times over."""
        return cls(information=np.zeros(looks), spread=np.zeros(looks))


def required_sessions(
    level: Floats,
    share: Floats,
    relative_lift: Floats,
    mixture: Mixture,
    *,
    doubt: SurplusLine | None = None,
    variance: Floats | None = None,
) -> Floats:
    """Sessions, of both arms, that detect a lift with 80 % power.

    Solves δW − z·√V = u(V) with V = W·σ² for W, where u(V) is the positive root of E(u) = 1/α, σ²
    the variance of a unit and N = W/(π(1−π)). With c = δ/σ² the equation reads
    E(cV − z·√V) = 1/α at variance V: a single unknown.

    Args:
        level: Control's rate p, or its mean μ; NaN where unknown.
        share: Treatment's share π of the units; NaN where unknown.
        relative_lift: |δ|/p, or |δ|/|μ|.
        mixture: Of the same length; of a mean its precisions ρ/c², as its test runs on S.
        doubt: Of the line that an answer waits for, of the same length.
        variance: σ² of a unit's value; NaN where unknown. By default that of a rate.

    Returns:
        Sessions, not rounded; NaN where a number is unknown or admits no lift.
    """
    if variance is None:
        variance = rate_variance(level, share, relative_lift)
    needed = np.full(level.shape, np.nan)
    rows = np.flatnonzero((np.abs(level) > 0) & (variance > 0) & (share > 0) & (share < 1))
    pi = share[rows]
    lift = relative_lift[rows] * np.abs(level[rows])
    weight = _weight(
        lift, variance[rows], mixture[rows], (doubt or SurplusLine.none(share.size))[rows]
    )
    needed[rows] = weight / (pi * (1.0 - pi))
    return needed


def rate_variance(rate: Floats, share: Floats, relative_lift: Floats) -> Floats:
    """The variance p̄q̄ of a unit's outcome, p̄ = π(p+δ) + (1−π)p the rate over both arms.

    The lift rises, and falls only where a rate above 1 would result.
    """
    lift = relative_lift * rate
    return _unit_variance(rate, np.where(rate + lift > 1, -lift, lift), share)


def smallest_lift(
    rate: Floats,
    share: Floats,
    sessions: Floats,
    mixture: Mixture,
    doubt: SurplusLine | None = None,
) -> Floats:
    """The smallest rise that a number of sessions detects with 80 % power.

    Args:
        rate: Control's rate p; NaN where unknown.
        share: Treatment's share π of the units; NaN where unknown.
        sessions: Sessions of both arms.
        mixture: Of the same length.

    Returns:
        δ, absolute; NaN where p or π is unknown or even a rise to 1 would not be detected.
    """
    smallest = np.full(rate.shape, np.nan)
    rows = np.flatnonzero((rate > 0) & (rate < 1) & (share > 0) & (share < 1) & (sessions > 0))
    p, pi, mix, own = (
        rate[rows],
        share[rows],
        mixture[rows],
        (doubt or SurplusLine.none(share.size))[rows],
    )
    weight = sessions[rows] * pi * (1.0 - pi)

    def excess(lift: Floats, part: Rows) -> Floats:
        total = weight[part] * _unit_variance(p[part], lift, pi[part])
        return _excess(mix[part], own[part], lift * weight[part], total, weight[part])

    reachable = excess(1.0 - p, slice(None)) >= 0
    inside = np.zeros(rows.size)
    outside = np.where(reachable, 1.0 - p, 0.0)
    lift = last_inside(inside, outside, TOLERANCE * (1.0 - p), excess)
    smallest[rows[reachable]] = lift[reachable]
    return smallest


def smallest_lift_of_mean(
    variance: Floats,
    share: Floats,
    sessions: Floats,
    mixture: Mixture,
    doubt: SurplusLine | None = None,
) -> Floats:
    """The smallest rise of a mean that a number of sessions detects with 80 % power.

    Args:
        variance: σ² of a unit's value; NaN where unknown.
        share: Treatment's share π of the units; NaN where unknown.
        mixture: As the test runs on S, its precisions ρ/c² of this mean; of the same length.

    Returns:
        δ, in the metric's own unit; NaN where σ² or π is unknown.
    """
    smallest = np.full(variance.shape, np.nan)
    rows = np.flatnonzero((variance > 0) & (share > 0) & (share < 1) & (sessions > 0))
    pi, mix, own = share[rows], mixture[rows], (doubt or SurplusLine.none(share.size))[rows]
    weight = sessions[rows] * pi * (1.0 - pi)
    total = weight * variance[rows]

    def excess(lift: Floats, part: Rows) -> Floats:
        return _excess(mix[part], own[part], lift * weight[part], total[part], weight[part])

    start = Z_POWER * np.sqrt(total) / weight
    inside, outside = widened(start, 2.0 * start, slice(None), excess)
    smallest[rows] = last_inside(inside, outside, TOLERANCE * outside, excess)
    return smallest


def _weight(lift: Floats, variance: Floats, mixture: Mixture, doubt: SurplusLine) -> Floats:
    """The weight W that detects the lift, where a unit of it has this variance."""
    slope = lift / variance

    def excess(total: Floats, part: Rows) -> Floats:
        weight = total / variance[part]
        return _excess(mixture[part], doubt[part], slope[part] * total, total, weight)

    start = (Z_POWER / slope) ** 2
    inside, outside = widened(start, 2.0 * start, slice(None), excess)
    return last_inside(inside, outside, TOLERANCE * outside, excess) / variance


def _unit_variance(rate: Floats, lift: Floats, share: Floats) -> Floats:
    mean = share * (rate + lift) + (1.0 - share) * rate
    return mean * (1.0 - mean)


def _excess(
    mixture: Mixture, doubt: SurplusLine, drift: Floats, total: Floats, weight: Floats
) -> Floats:
    """Logarithm of α·E at the score that is reached with 80 % power, the units as declared."""
    information, spread = doubt.information * weight, doubt.spread * weight
    line = Line(
        rho=mixture.rho,
        totals=Totals.from_rows(np.zeros((8, total.size))),
        surplus=np.zeros_like(total),
        information=information,
        moved=np.zeros_like(total),
        spread=spread,
    )
    deviation = np.sqrt(total + line.doubt(HEAVIEST) ** 2 * spread)
    return line.log_ratio(np.maximum(0.0, drift - Z_POWER * deviation), total) - (
        mixture.log_threshold
    )
