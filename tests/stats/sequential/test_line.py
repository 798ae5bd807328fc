"""The line: a likelihood ratio under a single prior of the units that came to an arm alone."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from stats.sequential.line import SURPLUSES, log_line

RHO = np.array([[25.0, 4.0]])


def integrated(score: float, V: float, surplus: float, units: float, level: float) -> float:
    """The ratio of the densities of (S, S_n), θ and the share of surplus units integrated out."""
    densities = []
    for drifts in ((25.0, 4.0), None):
        density = 0.0
        for deviation, weight in SURPLUSES:
            known = 1 / (units + 1 / deviation**2)
            excess, error = known * surplus, math.sqrt(known)
            # S | excess ~ N(θV − level·excess·I, V), and the excess given S_n is normal.
            own, spread = score + level * units * excess, V + (level * units * error) ** 2
            of_units = norm.pdf(surplus, scale=math.sqrt(units * (1 + deviation**2 * units)))

            def of(theta: float, own: float = own, spread: float = spread) -> float:
                return float(norm.pdf(own, loc=theta * V, scale=math.sqrt(spread)))

            drift = of(0.0)
            if drifts is not None:
                each = [
                    quad(
                        lambda theta, rho=rho: of(theta) * norm.pdf(theta, scale=rho**-0.5),
                        *(-6, 6),
                        points=[0.0, own / V],
                        limit=400,
                    )[0]
                    for rho in drifts
                ]
                drift = sum(each) / 2
            density += weight * of_units * drift
        densities.append(density)
    return math.log(densities[0] / densities[1])


@pytest.mark.parametrize(
    ("score", "surplus"), [(90.0, 0.0), (90.0, 40.0), (-60.0, -30.0), (90.0, -40.0)]
)
def test_the_line_is_the_ratio_of_two_marginal_likelihoods(score, surplus) -> None:
    V, units, level = 700.0, 3000.0, 0.6
    own = {"surplus": surplus, "information": units, "moved": -level * surplus}
    read = {name: np.array([value]) for name, value in own.items()}
    spread = np.array([level**2 * units])
    line = log_line(RHO, np.array([score]), np.array([V]), **read, spread=spread)[0]
    assert line == pytest.approx(integrated(score, V, surplus, units, level), rel=1e-6)


def test_a_difference_that_the_surplus_turns_round_says_nothing() -> None:
    values = {name: np.array([value]) for name, value in (("surplus", -900.0), ("moved", 540.0))}
    known = {"information": np.array([30_000.0]), "spread": np.array([0.36 * 30_000])}
    assert log_line(RHO, np.array([90.0]), np.array([700.0]), **values, **known)[0] == 0
