"""The ratio of two counts: its sums over cells, and the score and variance they give."""

import numpy as np

from stats.counts.cell import Floats, Ints
from stats.counts.closed_cells import Pairs
from stats.counts.mean import MIN_UNITS, ROUNDING


def ratio_terms(n1: Ints, n0: Ints, sums: Pairs) -> Floats:
    """Computes the terms that each cell adds to the sums of a ratio y/d.

    With w = n₁n₀/n and a bar for the mean of a unit, w·(ȳ₁d̄₀ − ȳ₀d̄₁) has the expectation 0 where
    both arms have the same ratio, at any ratio of the block, and however the change moves d.

    Returns:
        An array (23, cells): w·(ȳ₁d̄₀ − ȳ₀d̄₁), w·d̄₁d̄₀ and w·ȳ₀d̄₁; then of treatment and of control
        n, Σy, Σd, Σy², Σyd, Σd², and n, Σy², Σyd, Σd² again times (w·d̄/n_a)², d̄ of the other arm.
        They are 0 where the cell holds a single arm.
    """
    t, c = n1.astype(np.float64), n0.astype(np.float64)
    n, both = np.maximum(t + c, 1.0), (n1 > 0) & (n0 > 0)
    rows = [(sums.y1 * sums.d0 - sums.y0 * sums.d1) / n, sums.d1 * sums.d0 / n]
    rows.append(sums.y0 * sums.d1 / n)
    treatment = (t, sums.y1, sums.d1, sums.yy1, sums.yd1, sums.dd1, sums.d0)
    control = (c, sums.y0, sums.d0, sums.yy0, sums.yd0, sums.dd0, sums.d1)
    for units, y, d, yy, yd, dd, other in (treatment, control):
        share = (other / n) ** 2
        rows += [units, y, d, yy, yd, dd, share * units, share * yy, share * yd, share * dd]
    return np.where(both, np.stack(rows), 0.0)


def ratio_totals(sums: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Computes the totals that the test reads and the factor of its mixture precisions.

    The variance of S is that of y − r·d, r the arm's own ratio over all cells: the largest of the
    arms' pooled variances, of that of both arms at their common ratio, and of the cells' own
    squares. All is divided by the mean of d̄₁d̄₀, so that W is Σw, S/W the difference of the ratios
    and C/W control's. The mixture is on the
    difference relative to the mean ℓ of both ratios: precisions ρ/c² with c = ℓW/V. Nothing is
    tested before 100 units in each arm.

    Args:
        sums: Rows as from `ratio_terms`, summed up to each look; `weight` is Σw.
    """
    S, D, C = sums[:3]
    pooled, own = np.zeros_like(S), np.zeros_like(S)
    for n, y, d, yy, yd, dd, per_unit, *squares in (sums[3:13], sums[13:]):
        r = y / np.where(d > 0, d, 1.0)
        pooled += _squares(r, yy, yd, dd) / np.maximum(n - 1.0, 1.0) * per_unit
        own += _squares(r, *squares)
    # An arm in which hardly anything happened yet does not know its own spread.
    n, y, d, yy, yd, dd, per_unit = sums[3:10] + sums[13:20]
    of_both = _squares(y / np.where(d > 0, d, 1.0), yy, yd, dd) / np.maximum(n - 2.0, 1.0)
    V, level = np.maximum(np.maximum(pooled, own), of_both * per_unit), C + S / 2
    ready = (sums[3] >= MIN_UNITS) & (sums[13] >= MIN_UNITS) & (D > 0) & (V > 0) & (level > 0)
    scale = np.divide(weight, D, out=np.zeros_like(S), where=ready)
    variance, none = V * scale**2, np.zeros_like(S)
    totals = np.stack((S * scale, weight, variance, variance, none, C * scale, none, none))
    factor = np.divide(V * scale, level, out=np.ones_like(S), where=ready) ** 2
    return np.where(ready, totals, 0.0), factor


def _squares(r: Floats, yy: Floats, yd: Floats, dd: Floats) -> Floats:
    """Σ(y − r·d)²; 0 where it is rounding error."""
    squares = yy - 2 * r * yd + r * r * dd
    return np.where(squares > ROUNDING * yy, squares, 0.0)
