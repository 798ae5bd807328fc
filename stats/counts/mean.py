"""The mean of a continuous metric: its sums over cells, and the score and variance they give."""

import numpy as np

from stats.counts.cell import Floats, Ints, Totals
from stats.counts.closed_cells import Values

MEAN_TERMS = 12
MIN_UNITS = 100
# Below this share of the sum of squares, a spread is rounding error.
ROUNDING = 1e-12
# Largest precision: it is multiplied further and must not overflow.
_LARGEST = 1e300


def mean_terms(n1: Ints, n0: Ints, values: Values) -> Floats:
    """Computes the terms that each cell adds to the sums of a continuous metric.

    Returns:
        An array (12, cells): s, w, v₀, w²/n₁, w²/n₀, control's sum at treatment's mix y₀n₁/n;
        then n₁, Σy, Σy² of treatment and of control, where the cell holds both arms.
    """
    t, c = n1.astype(np.float64), n0.astype(np.float64)
    n = np.maximum(t + c, 1.0)
    both = (n1 > 0) & (n0 > 0)
    w = t * c / n
    squares = values.yy1 + values.yy0
    total = values.y1 + values.y0
    spread = squares - total * (total / n)
    spread = np.where(spread > ROUNDING * squares, spread, 0.0)
    terms = np.empty((MEAN_TERMS, n.size))
    terms[0] = np.where(both, (values.y1 * c - values.y0 * t) / n, 0.0)
    terms[1] = w
    terms[2] = w / np.maximum(n - 1.0, 1.0) * spread
    terms[3] = w * c / n
    terms[4] = w * t / n
    terms[5] = np.where(both, values.y0 * t / n, 0.0)
    arms = (t, values.y1, values.yy1, c, values.y0, values.yy0)
    for row, column in enumerate(arms, start=6):
        terms[row] = np.where(both, column, 0.0)
    return terms


def mean_totals(sums: Floats) -> tuple[Floats, Floats]:
    """Computes the totals that the test reads and the factor of its mixture precisions.

    V_y is the larger of V₀ and V_arm = Σ over arms of σ_a²·Σ(w²/n_a). The test runs on c·S with
    variance c²·V_y, where c = ℓ/σ², σ² = V₀/W and ℓ is the level of both arms; that is the test on
    S with variance V_y and precisions ρ/c². V₁ = V_y too: the variance is the same at every lift.
    Before 100 units in each arm, and where σ² = 0, there is nothing to test; nor where sums or
    precisions leave the range of doubles. No product is larger than a sum of squares, so
    values of any scale from 1e-145 to 1e145 give the same evidence.

    Args:
        sums: Rows as from `mean_terms`, summed up to each look.

    Returns:
        The rows of `Totals` (P, M and T are 0), and 1/c².
    """
    S, W, V0, per_unit1, per_unit0, C = sums[:6]
    ready = (sums[6] >= MIN_UNITS) & (sums[9] >= MIN_UNITS) & (V0 > 0)
    V_arm = _variance(*sums[6:9]) * per_unit1 + _variance(*sums[9:12]) * per_unit0
    V = np.maximum(V0, V_arm)
    none = np.zeros_like(S)
    totals = np.stack((S, W, V, V, none, C, none, none))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
        # 1/c² = (V₀/W)²/ℓ²; each of the two squares would leave the range long before this.
        factor = (V0 / (Totals.from_rows(totals).level * W)) ** 2
        ready &= np.isfinite(S) & np.isfinite(V) & (factor > 0) & (factor < _LARGEST)
    return np.where(ready, totals, 0.0), np.where(ready, factor, 1.0)


def _variance(n: Floats, y: Floats, yy: Floats) -> Floats:
    """The sample variance of an arm over all cells that hold both."""
    spread = yy - y * (y / np.maximum(n, 1.0))
    return np.where(spread > ROUNDING * yy, spread, 0.0) / np.maximum(n - 1.0, 1.0)
