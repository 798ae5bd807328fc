"""Regression adjustment: a mean less its prediction by the history of the same users."""

import numpy as np

from stats.counts.cell import Floats, Ints, terms
from stats.counts.closed_cells import Adjusted, Pairs, Values
from stats.counts.mean import ROUNDING, mean_terms

# No slope is known before so many users.
MIN_USERS = 500


def slopes(closes: Ints, begin: Ints, n: Ints, sums: Pairs) -> Floats:
    """Computes the slope θ that each cell is adjusted by (Deng, Xu, Kohavi & Walker 2013).

    θ = ΣSxy/ΣSxx within the cells that had closed when the cell's block began, so that it has seen
    no unit of the block, and the adjusted score is a martingale, as is the plain score.

    Args:
        closes: When each cell closes, ascending.
        n: Its units of both arms.
        sums: Of an adjusted mean: y is the value, d the history.
    """
    known = np.searchsorted(closes, begin, side="right")
    y, d, squares = sums.y1 + sums.y0, sums.d1 + sums.d0, sums.dd1 + sums.dd0
    units = np.maximum(n, 1)
    spread = squares - d * (d / units)
    spread = np.where(spread > ROUNDING * squares, spread, 0.0)
    products = sums.yd1 + sums.yd0 - y * (d / units)
    users, xx, xy = (
        np.concatenate(([0.0], np.cumsum(part)))[known] for part in (n, spread, products)
    )
    return np.divide(xy, xx, out=np.zeros_like(xx), where=(users >= MIN_USERS) & (xx > 0))


def adjusted_terms(n1: Ints, n0: Ints, sums: Pairs, slope: Floats) -> Floats:
    """Computes the terms of `mean_terms` of y − θ·(d − d̄), d̄ the mean of the cell.

    Centred so, a slope that differs between cells moves no cell's mean. Control's level is that of
    y itself.
    """
    mean = (sums.d1 + sums.d0) / np.maximum(n1 + n0, 1)
    own: dict[str, Floats] = {}
    for arm, n in (("1", n1), ("0", n0)):
        y, yy, d, dd, yd = (getattr(sums, f"{name}{arm}") for name in ("y", "yy", "d", "dd", "yd"))
        own[f"y{arm}"] = y - slope * (d - n * mean)
        squares = dd - 2 * mean * d + n * mean**2
        own[f"yy{arm}"] = yy - 2 * slope * (yd - mean * y) + slope**2 * squares
    terms = mean_terms(n1, n0, Values(**own))
    terms[5] = np.where((n1 > 0) & (n0 > 0), sums.y0 * n1 / np.maximum(n1 + n0, 1), 0.0)
    return terms


def history_terms(n1: Ints, n0: Ints, sums: Adjusted, slope: Floats) -> Floats:
    """Computes the terms of who has a history, and of the mean without it.

    Returns:
        An array (17, cells): s, w and v₀ of 'has a history', the compared users with it;
        w·θ·d̄, by how much s rises where treatment loses all; and those of `mean_terms`.
    """
    known = terms(n1, sums.h1, n0, sums.h0)[:3]
    lost = known[1] * slope * (sums.d1 + sums.d0) / np.maximum(n1 + n0, 1)
    compared = np.where((n1 > 0) & (n0 > 0), sums.h1 + sums.h0, 0.0)
    return np.vstack((known, compared, lost, mean_terms(n1, n0, sums)))
