"""The line: the mixture beside units of a single arm, by how many nobody declared."""

import numpy as np

from stats.counts.cell import Floats
from stats.sequential.mixture import log_component, log_mean

# How far the arms' units may be from what is declared, standard deviations with their weights.
SURPLUSES = ((0.0025, 0.1), (0.01, 0.3), (0.05, 0.4), (0.2, 0.2))
_HEAVIEST = 0.05


def log_line(
    rho: Floats,
    score: Floats,
    variance: Floats,
    *,
    surplus: Floats,
    information: Floats,
    moved: Floats,
    spread: Floats,
) -> Floats:
    """Logarithm of the likelihood ratio under a common prior of the surplus on both sides.

    With κ = 1/(1 + τ²I): S* = S − (1 − κ)A, V* = V + (1 − κ)B, the mixture on S*V/V* with variance
    V²/V*, at the weights w·N(S_n; 0, I(1 + τ²I))·N(S*; 0, V*). 0 where S* of the heaviest weight is
    not of the sign of S, and where nothing is known.

    Args:
        rho: Precisions (looks, components).
        score: S, with its variance V.
        surplus: S_n, treatment's units beyond its share, with their variance I.
        moved: A, by how much S is moved where they have no outcome; B its variance by chance.
    """
    known = (variance > 0) & (information > 0)
    V, units = np.where(known, variance, 1.0), np.where(known, information, 1.0)
    weights, ratios, agrees = [], [], known
    for deviation, weight in SURPLUSES:
        trust = 1 / (1 + deviation**2 * units)
        own, of_own = score - (1 - trust) * moved, V + (1 - trust) * spread
        share = V / of_own
        log_weight = np.log(weight) + _log_normal(surplus, units / trust) + _log_normal(own, of_own)
        weights.append(log_weight)
        ratios.append(
            log_weight
            + log_mean(rho, lambda each, x=own * share, v=V * share: log_component(x, v, each))
        )
        if deviation == _HEAVIEST:
            agrees = agrees & (own * score > 0)
    line = np.logaddexp.reduce(ratios) - np.logaddexp.reduce(weights)
    return np.where(agrees, line, 0.0)


def _log_normal(value: Floats, variance: Floats) -> Floats:
    """Logarithm of the density of N(0, variance), without its constant."""
    standard = value / np.sqrt(variance)
    return -0.5 * (np.log(variance) + standard * standard)
