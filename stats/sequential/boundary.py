"""The boundary of a set on the line, bracketed and narrowed for many sets at once.

Every element is computed by itself: its result doesn't depend on other elements of the arrays.
"""

from collections.abc import Callable

import numpy as np

from stats.counts.cell import Floats, Ints
from stats.counts.columns import Rows

Excess = Callable[[Floats, Rows], Floats]

DOUBLINGS = 200
NARROWINGS = 200


def widened(inside: Floats, outside: Floats, rows: Rows, excess: Excess) -> tuple[Floats, Floats]:
    """Brackets of the boundary: outside is moved outward, by doubled steps, until it is outside.

    Args:
        outside: First guesses beyond the boundary.
        rows: Which elements may be moved (a mask, or their numbers).
        excess: Negative exactly within the set of an element; takes points and their elements.

    Returns:
        The last point inside and the first outside that were tried, for each element; both NaN
        ('cannot say') where a set has no boundary in reach.
    """
    inside, outside = inside.copy(), outside.copy()
    step = outside - inside
    open_rows: Ints = np.arange(inside.size)[rows]
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(DOUBLINGS):
            # NaN is no boundary.
            open_rows = open_rows[~(excess(outside[open_rows], open_rows) >= 0)]
            if not open_rows.size:
                return inside, outside
            inside[open_rows] = outside[open_rows]
            step[open_rows] *= 2.0
            outside[open_rows] += step[open_rows]
    inside[open_rows] = outside[open_rows] = np.nan
    return inside, outside


def last_inside(inside: Floats, outside: Floats, tolerance: Floats, excess: Excess) -> Floats:
    """The point of each set next to its boundary.

    Chandrupatla's method (Advances in Engineering Software 28, 1997): inverse quadratic
    interpolation where it is safe, else bisection.

    Args:
        tolerance: How near to the boundary the result lies.
        excess: Negative exactly within the set of an element.
    """
    boundary = inside.copy()
    rows: Ints = np.flatnonzero(np.abs(outside - inside) > tolerance)
    x1, x2 = inside[rows], outside[rows]
    f1, f2 = excess(x1, rows), excess(x2, rows)
    t = np.full(rows.size, 0.5)
    for _ in range(NARROWINGS):
        if not rows.size:
            break
        x = x1 + t * (x2 - x1)
        f = excess(x, rows)
        same = (f < 0) == (f1 < 0)
        x3, f3 = np.where(same, x1, x2), np.where(same, f1, f2)
        x2, f2 = np.where(same, x2, x1), np.where(same, f2, f1)
        x1, f1 = x, f
        boundary[rows] = np.where(f1 < 0, x1, x2)
        width = np.abs(x2 - x1)
        wide = width > tolerance[rows]
        t = _fraction((x1, x2, x3), (f1, f2, f3))
        margin = np.minimum(0.5, 0.5 * tolerance[rows] / np.where(wide, width, 1.0))
        t = np.clip(t, margin, 1.0 - margin)
        rows, t = rows[wide], t[wide]
        x1, x2, f1, f2 = x1[wide], x2[wide], f1[wide], f2[wide]
    return boundary


def _fraction(x: tuple[Floats, Floats, Floats], f: tuple[Floats, Floats, Floats]) -> Floats:
    """Returns the next point between x₁ and x₂: interpolated through three if that is safe."""
    (x1, x2, x3), (f1, f2, f3) = x, f
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        xi = (x1 - x2) / (x3 - x2)
        phi = (f1 - f2) / (f3 - f2)
        safe = (phi * phi < xi) & ((1.0 - phi) * (1.0 - phi) < 1.0 - xi)
        t = f1 / (f2 - f1) * f3 / (f2 - f3)
        t += (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
    return np.where(safe, t, 0.5)
