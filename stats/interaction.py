"""Interaction: whether the relative effect differs between strata."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from stats.cell import Floats, Ints
from stats.mixture import Mixture
from stats.timeline import AnalysisCells

MIN_CONVERSIONS = 10
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True, kw_only=True)
class Interaction:
    """Evidence of interaction, one entry a closing.

    Attributes:
        log_e: Logarithm of the largest evidence of one stratum against the rest, divided by the
            number of strata where there are more than two; NaN before two can be compared.
        rises: Whether treatment does better in every stratum that can be compared.
        falls: Whether it does worse in each.
    """

    log_e: Floats
    rises: Flags
    falls: Flags

    def gathered(self, rows: Ints) -> Self:
        """What is known at the given closings; at −1, before any."""
        return type(self)(
            log_e=np.append(self.log_e, np.nan)[rows],
            rises=np.append(self.rises, False)[rows],
            falls=np.append(self.falls, False)[rows],
        )


def interaction(cells: AnalysisCells, *, first_row: int, mixture: Mixture) -> Interaction:
    """The interaction between the strata of one experiment.

    Per stratum R₁ = Σx₁n₀/n, R₀ = Σx₀n₁/n, g = log(R₁/R₀) and v = Σ(m·n₁n₀/n² − x₁x₀/n)/(R₁R₀)
    (Greenland & Robins, Biometrics 41, 1985), once each arm has 10 conversions in it. For one
    stratum against the rest, pooled, D = g_a − g_b and V_D = v_a + v_b; the mixture is taken on
    the score D/V_D with variance 1/V_D. On this relative scale a constant relative lift over
    unequal baselines is no interaction.

    Args:
        cells: The closed cells of its target.
        first_row: The number of its first closing.
        mixture: Precisions and threshold, one entry a closing.
    """
    closings = mixture.rho_day.size
    sums = _sums(cells, cells.row - first_row, closings)
    R1, R0, _, x1, x0 = sums
    enough = (x1 >= MIN_CONVERSIONS) & (x0 >= MIN_CONVERSIONS)
    parts = np.where(enough, sums[:3], 0.0)
    rest = parts.sum(axis=1, keepdims=True) - parts
    g, v = _log_ratio(*parts)
    g_rest, v_rest = _log_ratio(*rest)
    difference, variance = g - g_rest, v + v_rest
    count = enough.sum(axis=0)
    told = enough & (count >= 2) & (variance > 0)
    information = np.divide(1.0, variance, out=np.zeros_like(variance), where=told)
    score = np.where(told, difference, 0.0) * information
    log_e = np.where(told, mixture.log_e(score, information), -np.inf).max(axis=0)
    log_e -= np.log(np.where(count > 2, count, 1))
    some = enough.any(axis=0)
    return Interaction(
        log_e=np.where(told.any(axis=0), log_e, np.nan),
        rises=some & np.all((R1 > R0) | ~enough, axis=0),
        falls=some & np.all((R1 < R0) | ~enough, axis=0),
    )


def no_interaction(closings: int) -> Interaction:
    """What is known of interaction where there is one stratum only, or a continuous metric."""
    nothing = np.zeros(closings, dtype=np.bool_)
    return Interaction(log_e=np.full(closings, np.nan), rises=nothing, falls=nothing)


def _sums(cells: AnalysisCells, row: Ints, closings: int) -> Floats:
    """R₁, R₀, the sum in v, x₁ and x₀ of each stratum up to each closing: (5, strata, closings).

    Over cells that hold both arms.
    """
    t, c = cells.n1.astype(np.float64), cells.n0.astype(np.float64)
    a, b = cells.x1.astype(np.float64), cells.x0.astype(np.float64)
    n = np.maximum(t + c, 1.0)
    both = (cells.n1 > 0) & (cells.n0 > 0)
    parts = (a * c / n, b * t / n, (a + b) * (t * c) / (n * n) - a * b / n, a, b)
    names, code = np.unique(cells.stratum, return_inverse=True)
    sums = np.zeros((len(parts), names.size, closings))
    for number, part in enumerate(parts):
        sums[number, code, row] = np.where(both, part, 0.0)
    return np.cumsum(sums, axis=2, out=sums)


def _log_ratio(R1: Floats, R0: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """The logarithm of R₁/R₀ and its variance; both 0 where there is nothing to compare."""
    told = (R1 > 0) & (R0 > 0)
    one, other = np.where(told, R1, 1.0), np.where(told, R0, 1.0)
    # v > 0 but for rounding
    return np.log(one) - np.log(other), np.where(told, np.maximum(spread, 0.0), 0.0) / (one * other)
