"""The mixture: its e-process, and the confidence sequence that inverts it.

Source: Johari, Koomen, Pekelis & Walsh (2017); the average of e-processes is an e-process
(Vovk & Wang, Annals of Statistics 49, 2021).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stats.counts.cell import Floats, Totals
from stats.counts.columns import Columns, Rows
from stats.sequential.boundary import last_inside, widened

LOG_2 = np.log(2.0)
LOG_E_CAP = 300 * np.log(10.0)
TOLERANCE = 1e-12


@dataclass(frozen=True, kw_only=True)
class Mixture(Columns):
    """The precisions of the components and the threshold of the test, a row a look.

    Attributes:
        rho: Precisions (looks, components): of the day cadence, of the fast cadence, and of those
            between; NaN where a look has fewer components than another.
        log_threshold: Logarithm of 1/α.
    """

    rho: Floats
    log_threshold: Floats

    def log_e(self, score: Floats, variance: Floats) -> Floats:
        """Logarithm of E, the mean of its components, for a score and its variance."""
        return log_mean(self.rho, lambda rho: log_component(score, variance, rho))

    def excess(self, score: Floats, variance: Floats) -> Floats:
        """Logarithm of α·E: negative inside the confidence sequence."""
        return self.log_e(score, variance) - self.log_threshold


def precisions(each: Sequence[Sequence[float]]) -> Floats:
    """The precisions of several tests as rows of an array, filled up with NaN."""
    rows = np.full((len(each), max((len(row) for row in each), default=2)), np.nan)
    for number, row in enumerate(each):
        rows[number, : len(row)] = row
    return rows


def log_mean(rho: Floats, log_e: Callable[[Floats], Floats]) -> Floats:
    """Logarithm of the mean over a mixture's components.

    Args:
        rho: Precisions (looks, components); NaN where there is no such component.
        log_e: Of the component with the precisions of each look.
    """
    total = np.logaddexp(log_e(rho[:, 0]), log_e(rho[:, 1]))
    for column in rho.T[2:]:
        missing, more = np.isnan(column), np.logaddexp(total, log_e(column))
        total = np.where(missing, total, more) if missing.any() else more
    return total - _log_components(rho)


def _log_components(rho: Floats) -> Floats:
    """Logarithm of the number of components of each look; an entry where all have as many."""
    missing = np.isnan(rho)
    if not missing.any():
        return np.log(np.array([rho.shape[1]], dtype=np.float64))
    return np.log(np.count_nonzero(~missing, axis=1).astype(np.float64))


def log_component(score: Floats, variance: Floats, rho: Floats) -> Floats:
    """Logarithm of E_ρ = √(ρ/(ρ+V)) · exp(S²/(2(ρ+V)))."""
    total = rho + variance
    # S²/(2(ρ+V)), though S² alone may be beyond the range of doubles.
    standard = score / np.sqrt(total)
    return 0.5 * np.log(rho / total) + 0.5 * standard * standard


def e_value(log_e: Floats) -> Floats:
    """E, capped at 1e300."""
    return np.minimum(1e300, np.exp(np.minimum(log_e, LOG_E_CAP)))


def p_value(log_e: Floats) -> Floats:
    """The always-valid p-value, min(1, 1/E)."""
    return np.minimum(1.0, np.exp(-log_e))


def variance_at(totals: Totals, lift: Floats, delta: Floats) -> Floats:
    """The variance of S − δW where the true lift is δ.

    V(δ) = V₀ + max(0, 2δΣP, min(1, max(0, δ/lift))·(V₁ − V₀)), the last term 0 where lift = 0:
    V₀ under no effect, Sato's V₁ at the measured lift, never less than V₀.

    Args:
        lift: S/W of these totals.
    """
    share = np.divide(delta, lift, out=np.zeros_like(delta), where=lift != 0)
    towards = np.minimum(1.0, np.maximum(0.0, share)) * (totals.sato_variance(lift) - totals.V0)
    return totals.V0 + np.maximum(np.maximum(0.0, 2.0 * delta * totals.P), towards)


def confidence_sequence(totals: Totals, mixture: Mixture) -> Floats:
    """Both ends of {δ : E(δ) < 1/α} at each look.

    Each end is bracketed outward from the lift. Zero is a point of the bracket, so that the
    interval excludes it exactly when E(0) ≥ 1/α. The ends are not cut to [−1, 1].

    Args:
        totals: Sums over cells; W > 0 everywhere.
        mixture: Of the same length.

    Returns:
        An array (looks, 2), accurate to about 1e-12 of the interval's width.
    """
    looks = totals.W.size
    both = np.tile(np.arange(looks), 2)
    sums, mix = totals[both], mixture[both]
    towards = np.repeat((-1.0, 1.0), looks)
    lift = sums.lift

    def excess(delta: Floats, rows: Rows) -> Floats:
        part = sums[rows]
        variance = variance_at(part, lift[rows], delta)
        return mix[rows].excess(part.S - delta * part.W, variance)

    at_zero = mix.excess(sums.S, sums.V0)
    zero_ahead = lift * towards < 0
    inside = np.where(zero_ahead & (at_zero < 0), 0.0, lift)
    step = towards * _width(sums, mix)
    stop = zero_ahead & (at_zero >= 0)
    inside, outside = widened(inside, np.where(stop, 0.0, inside + step), ~stop, excess)
    tolerance = TOLERANCE * np.abs(step) + 4.0 * np.finfo(np.float64).eps * np.abs(lift)
    ends = last_inside(inside, outside, tolerance, excess)
    return np.ascontiguousarray(ends.reshape(2, looks).T)


def _width(totals: Totals, mixture: Mixture) -> Floats:
    """Half the interval's width where the variance were constant and the day component alone."""
    variance = np.maximum(totals.V0, totals.sato_variance(totals.lift))
    rho = mixture.rho[:, 0]
    bits = (
        mixture.log_threshold + _log_components(mixture.rho) + 0.5 * np.log((rho + variance) / rho)
    )
    return np.sqrt(2.0 * (rho + variance) * bits) / totals.W
