"""Exclusions: the sessions after which a harm that is not there is no longer possible."""

import numpy as np

from stats.counts.cell import Floats, Rows
from stats.sequential.boundary import last_inside, widened
from stats.sequential.mixture import TOLERANCE, Mixture
from stats.sequential.requirement import Z_POWER


def excluding_sessions(
    rate: Floats, share: Floats, relative_harm: Floats, mixture: Mixture
) -> Floats:
    """Sessions, of both arms, at which a harm is excluded with 80 % power where there is none.

    With no effect S has mean 0 and variance W·pq, so that S + δW, the score against a loss of δ,
    reaches δW − z·√(W·pq) in 80 % of runs; −δ leaves the confidence sequence where that score
    passes the boundary at variance V(−δ) = W·(pq + max(0, −δ(1−2π)(1−2p))), which is
    docs/statistics.md, 'The test', with the cells' expected values. Solved for W; N = W/(π(1−π)).

    Args:
        rate: Control's rate p; NaN where unknown.
        share: Treatment's share π of the units; NaN where unknown.
        relative_harm: δ/p, the fall to exclude.
        mixture: Of the same length.

    Returns:
        Sessions, not rounded; NaN where p or π is unknown or admits no harm.
    """
    needed = np.full(rate.shape, np.nan)
    rows = np.flatnonzero((rate > 0) & (rate < 1) & (share > 0) & (share < 1))
    p, pi, mix = rate[rows], share[rows], mixture[rows]
    harm = relative_harm[rows] * p
    noise = p * (1.0 - p)
    variance = noise + np.maximum(0.0, -harm * (1.0 - 2.0 * pi) * (1.0 - 2.0 * p))

    def excess(weight: Floats, part: Rows) -> Floats:
        score = harm[part] * weight - Z_POWER * np.sqrt(weight * noise[part])
        return mix[part].excess(np.maximum(0.0, score), weight * variance[part])

    start = noise * (Z_POWER / harm) ** 2
    inside, outside = widened(start, 2.0 * start, slice(None), excess)
    weight = last_inside(inside, outside, TOLERANCE * outside, excess)
    needed[rows] = weight / (pi * (1.0 - pi))
    return needed
