"""Evidence of harm: the two-component mixture on one side only."""

import numpy as np
from scipy.special import log_ndtr

from stats.counts.cell import Floats
from stats.sequential.mixture import LOG_2, log_component


def log_harm(score: Floats, variance: Floats, rho_day: Floats, rho_fast: Floats) -> Floats:
    """Logarithm of E¹ = mean over ρ of the mixture with a half-normal prior on the harmful side.

    log E¹_ρ = log 2 + ½log(ρ/(ρ+V)) + S²/(2(ρ+V)) + log Φ(S/√(ρ+V)) (Robbins, Annals of
    Mathematical Statistics 41, 1970, with both components of the two-sided test).

    Args:
        score: S, signed so that harm is positive.
        variance: V.
        rho_day: Precision of the day component.
        rho_fast: Precision of the fast component.
    """
    day = _log_half(score, variance, rho_day)
    fast = _log_half(score, variance, rho_fast)
    return np.logaddexp(day, fast) - LOG_2


def _log_half(score: Floats, variance: Floats, rho: Floats) -> Floats:
    side: Floats = log_ndtr(score / np.sqrt(rho + variance))
    return LOG_2 + log_component(score, variance, rho) + side
