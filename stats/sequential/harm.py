"""The mixture on a single side: evidence of harm, and of a gain."""

import numpy as np
from scipy.special import log_ndtr

from stats.counts.cell import Floats
from stats.sequential.mixture import LOG_2, log_component, log_mean


def log_harm(score: Floats, variance: Floats, rho: Floats) -> Floats:
    """Logarithm of E¹ = mean over ρ of the mixture with a half-normal prior on the harmful side.

    log E¹_ρ = log 2 + ½log(ρ/(ρ+V)) + S²/(2(ρ+V)) + log Φ(S/√(ρ+V)) (Robbins, Annals of
    Mathematical Statistics 41, 1970, with the components of the two-sided test).

    Args:
        score: S, signed so that harm is positive.
        rho: Precisions (looks, components).
    """
    return log_mean(rho, lambda component: log_half(score, variance, component))


def log_half(score: Floats, variance: Floats, rho: Floats) -> Floats:
    """The logarithm of a component."""
    side: Floats = log_ndtr(score / np.sqrt(rho + variance))
    return LOG_2 + log_component(score, variance, rho) + side
