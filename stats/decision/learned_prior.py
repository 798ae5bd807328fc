"""The prior that a project's changes teach: their scales, weighted by their likelihoods."""

from collections.abc import Sequence

import numpy as np

# The prior to begin with counts as so many changes: a fleet that is ended before it shows an effect
# teaches that there are none.
_CHANGES = 3
_STEPS = 300


def learned_prior(
    likelihoods: Sequence[tuple[float, float]], prior: Sequence[tuple[float, float]]
) -> Sequence[tuple[float, float]]:
    """Returns the prior, weighted by expectation and maximization on (estimate, standard error)."""
    deviation, first = np.array(prior).T
    observed, error = np.array(likelihoods).reshape(-1, 2, 1).transpose(1, 0, 2)
    spread = deviation**2 + error**2
    weight, density = first, -(np.log(spread) + observed**2 / spread) / 2
    density = np.exp(density - density.max(axis=1, keepdims=True))
    for _ in range(_STEPS):
        share = weight * density
        share /= share.sum(axis=1, keepdims=True)
        weight = (share.sum(axis=0) + _CHANGES * first) / (observed.shape[0] + _CHANGES)
    return tuple(zip(deviation.tolist(), weight.tolist(), strict=True))
