"""The posterior by a prior of scales: effect, interval, and chances of harm or of nothing."""

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from stats.counts.cell import Floats


def chances(
    observed: float, error: float, prior: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Returns the posterior probabilities of a lift below 0, and of none at all."""
    deviation, _ = np.array(prior).T
    share, means, spreads = _posterior(observed, error, prior)
    moves = deviation > 0
    return float(share[moves] @ ndtr(-means[moves] / spreads[moves])), float(share[~moves].sum())


def learned_effect(
    observed: float, error: float, prior: Sequence[tuple[float, float]]
) -> tuple[float, tuple[float, float]]:
    """Returns the posterior mean of a relative lift, and its central 95 % interval."""
    share, means, spreads = _posterior(observed, error, prior)
    reach = float(np.abs(means).max() + 10 * spreads.max())
    grid = np.linspace(-reach, reach, 8193)
    below = ndtr((grid[:, None] - means) / spreads) @ share
    low, high = np.interp((0.025, 0.975), below, grid).tolist()
    return float(share @ means), (low, high)


def _posterior(
    observed: float, error: float, prior: Sequence[tuple[float, float]]
) -> tuple[Floats, Floats, Floats]:
    """Weights, means and standard deviations of the scales, an entry a scale."""
    deviation, weight = np.array(prior).T
    spread = deviation**2 + error**2
    log_density = -(np.log(spread) + observed**2 / spread) / 2
    share = weight * np.exp(log_density - log_density.max())
    shrunk = deviation**2 / spread
    return share / share.sum(), shrunk * observed, np.maximum(np.sqrt(shrunk) * error, 1e-12)
