"""The effect: the best estimate of a change's effect, beside the verdict.

How it is served: docs/api.md, 'The effect'.

A lift that is read when the test crosses overstates the truth: a test that stops at its crossing
stops at a lucky moment. The posterior mean under the test's own mixture shrinks it by as much as
the test doubts it. Source: the normal mixture of Johari, Koomen, Pekelis & Walsh (2017), read as a
prior.
"""

import math
from dataclasses import dataclass

import numpy as np

from stats.counts.cell import Totals
from stats.sequential.mixture import Mixture, log_component


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The posterior of the lift under the test's mixture, at a look.

    Attributes:
        estimate: Its mean: treatment minus control, a unit.
        standard_deviation: Its standard deviation. No interval may be made of it: that of the
            effect is the confidence sequence.
        relative: The mean divided by control's rate or mean; None where that is 0.
    """

    estimate: float
    standard_deviation: float
    relative: float | None


def shrunk_effect(totals: Totals, mixture: Mixture) -> Effect | None:
    """Returns the effect at a look.

    Component ρ holds that the score drifts by θV with θ ~ N(0, 1/ρ). After a score S its mean of
    the lift is lift·V/(V + ρ), its variance (V/W)²/(V + ρ), and its weight is ∝ E_ρ(0).

    Args:
        totals: The sums that the test reads, of a look.
        mixture: The test's precisions at that look.

    Returns:
        None where nothing was compared, W = 0 or V = 0.
    """
    W, V = float(totals.W[0]), float(totals.V0[0])
    if not (W > 0 and V > 0):
        return None
    rho = mixture.rho[0][~np.isnan(mixture.rho[0])]
    log_e = log_component(np.repeat(totals.S, rho.size), np.repeat(totals.V0, rho.size), rho)
    weight = np.exp(log_e - np.logaddexp.reduce(log_e))
    means = float(totals.lift[0]) * (V / (V + rho))
    spreads = (V / W) / np.sqrt(V + rho)
    estimate = float(weight @ means)
    deviation = math.hypot(*(np.sqrt(weight) * np.hypot(spreads, means - estimate)))
    level = abs(float(totals.control_rate[0]))
    return Effect(
        estimate=estimate,
        standard_deviation=deviation,
        relative=estimate / level if level > 0 else None,
    )
