"""The effect of a change by the prior that its project's changes taught (docs/statistics.md)."""

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr


def learned_effect(
    observed: float, error: float, prior: Sequence[tuple[float, float]]
) -> tuple[float, tuple[float, float]]:
    """Returns the posterior mean of a relative lift, and its central 95 % interval."""
    deviation, weight = np.array(prior).T
    spread = deviation**2 + error**2
    log_density = -(np.log(spread) + observed**2 / spread) / 2
    share = weight * np.exp(log_density - log_density.max())
    share /= share.sum()
    shrunk = deviation**2 / spread
    means, spreads = shrunk * observed, np.maximum(np.sqrt(shrunk) * error, 1e-12)
    reach = float(np.abs(means).max() + 10 * spreads.max())
    grid = np.linspace(-reach, reach, 8193)
    below = ndtr((grid[:, None] - means) / spreads) @ share
    low, high = np.interp((0.025, 0.975), below, grid).tolist()
    return float(share @ means), (low, high)
