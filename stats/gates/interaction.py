"""Interaction: whether the relative effect differs between strata."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from stats.counts.cell import Floats, Ints
from stats.counts.columns import Columns
from stats.counts.timeline import AnalysisCells
from stats.sequential.mixture import Mixture

MIN_CONVERSIONS = 10
AT_ONCE = 65_536  # sums of strata at closings: bounds the memory; results don't depend on it
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True, kw_only=True)
class Interaction(Columns):
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
        """Selects the evidence at closings; −1 means before any."""
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
        cells: The closed cells of its target, in order of their rows; their strata are what is
            compared.
        first_row: The number of its first closing.
        mixture: Precisions and threshold, one entry a closing.
    """
    closings = mixture.log_threshold.size
    cells = _comparable(cells)
    if not cells.row.size:
        return no_interaction(closings)
    code = np.unique(cells.stratum, return_inverse=True)[1]
    order = np.lexsort((code, cells.row))
    row, code = cells.row[order] - first_row, code[order]
    # A stratum may have several cells in a closing: of builds that are compared apart.
    begins = np.flatnonzero(np.append(True, (np.diff(row) != 0) | (np.diff(code) != 0)))
    parts = np.add.reduceat(_parts(cells)[:, order], begins, axis=1)
    row, code = row[begins], code[begins]
    strata = int(code.max()) + 1
    before = np.zeros((parts.shape[0], strata))
    at_once = max(1, AT_ONCE // strata)
    bounds = np.arange(0, closings + at_once, at_once).clip(max=closings)
    cell_bounds = np.searchsorted(row, bounds)
    pieces: list[Interaction] = []
    spans = zip(pairwise(bounds.tolist()), pairwise(cell_bounds.tolist()), strict=True)
    for (begin, stop), (first, last) in spans:
        sums = np.zeros((*before.shape, stop - begin))
        sums[:, code[first:last], row[first:last] - begin] = parts[:, first:last]
        sums[:, :, 0] += before
        before = np.cumsum(sums, axis=2, out=sums)[:, :, -1]
        pieces.append(_compared(sums, mixture[slice(begin, stop)]))
    return Interaction(
        log_e=np.concatenate([piece.log_e for piece in pieces]),
        rises=np.concatenate([piece.rises for piece in pieces]),
        falls=np.concatenate([piece.falls for piece in pieces]),
    )


def _compared(sums: Floats, mixture: Mixture) -> Interaction:
    """The interaction at some closings, of sums (5, strata, closings) up to each."""
    R1, R0, _, x1, x0 = sums
    enough = (x1 >= MIN_CONVERSIONS) & (x0 >= MIN_CONVERSIONS)
    parts = np.where(enough, sums[:3], 0.0)
    # Added stratum by stratum: a sum in pairs would depend on how many there are.
    rest = np.cumsum(parts, axis=1)[:, -1:] - parts
    g, v = _log_ratio(*parts)
    g_rest, v_rest = _log_ratio(*rest)
    difference, variance = g - g_rest, v + v_rest
    count = enough.sum(axis=0)
    testable = enough & (count >= 2) & (variance > 0)
    information = np.divide(1.0, variance, out=np.zeros_like(variance), where=testable)
    score = np.where(testable, difference, 0.0) * information
    log_e = np.where(testable, mixture.log_e(score, information), -np.inf).max(axis=0)
    log_e -= np.log(np.where(count > 2, count, 1))
    some = enough.any(axis=0)
    return Interaction(
        log_e=np.where(testable.any(axis=0), log_e, np.nan),
        rises=some & np.all((R1 > R0) | ~enough, axis=0),
        falls=some & np.all((R1 < R0) | ~enough, axis=0),
    )


def no_interaction(closings: int) -> Interaction:
    """The interaction without evidence: of a single stratum, or of a continuous metric."""
    nothing = np.zeros(closings, dtype=np.bool_)
    return Interaction(log_e=np.full(closings, np.nan), rises=nothing, falls=nothing)


def _comparable(cells: AnalysisCells) -> AnalysisCells:
    """The cells that hold both arms, of strata that have conversions enough in the end."""
    both = (cells.n1 > 0) & (cells.n0 > 0)
    codes, code = np.unique(cells.stratum, return_inverse=True)
    enough = np.ones(codes.size, dtype=np.bool_)
    for conversions in (cells.x1, cells.x0):
        total = np.bincount(code, weights=conversions * both, minlength=codes.size)
        enough &= total >= MIN_CONVERSIONS
    return cells[both & enough[code]]


def _parts(cells: AnalysisCells) -> Floats:
    """Computes each cell's terms of R₁, R₀, the sum in v, x₁ and x₀: (5, cells)."""
    t, c = cells.n1.astype(np.float64), cells.n0.astype(np.float64)
    a, b = cells.x1.astype(np.float64), cells.x0.astype(np.float64)
    n = t + c
    return np.stack((a * c / n, b * t / n, (a + b) * (t * c) / (n * n) - a * b / n, a, b))


def _log_ratio(R1: Floats, R0: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """The logarithm of R₁/R₀ and its variance; both 0 where there is nothing to compare."""
    defined = (R1 > 0) & (R0 > 0)
    treatment, control = np.where(defined, R1, 1.0), np.where(defined, R0, 1.0)
    # v > 0 but for rounding
    return np.log(treatment) - np.log(control), np.where(defined, np.maximum(spread, 0.0), 0.0) / (
        treatment * control
    )
