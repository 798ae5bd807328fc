"""A design asks for the sessions that the engine asks for, which computes them with arrays."""

import math

import numpy as np
import pytest

from domain.measure import precision_of
from domain.metric import DAY
from domain.planning.boundary import Boundary
from domain.planning.design import Design
from domain.planning.plan import prospects
from domain.planning.requirement import (
    HEAVIEST,
    HORIZON_DAYS,
    SURPLUSES,
    Z_POWER,
    deciding_sessions,
    excluding_sessions,
    smallest_lift_by_horizon,
)
from domain.policy import Numbers
from stats.sequential import line, requirement
from stats.sequential.mixture import Mixture

RATES, SHARES, LIFTS = (0.001, 0.05, 0.6, 0.95), (0.01, 0.2, 0.5, 0.9), (0.01, 0.2, 0.5)


def mixture(boundary: Boundary) -> Mixture:
    day, *others = map(precision_of, boundary.typical_lifts)
    *between, fast = others or [day]
    policy = Numbers(alpha=boundary.alpha, rho_day=day, rho_fast=fast, rho_between=tuple(between))
    return Mixture(rho=np.array([policy.rho]), log_threshold=np.array([policy.log_threshold]))


def test_its_numbers_are_those_of_a_new_policy() -> None:
    policy = Numbers()
    assert policy.rho == tuple(map(precision_of, Boundary.typical_lifts))
    assert (policy.alpha, policy.horizon_seconds) == (Boundary.alpha, HORIZON_DAYS * DAY)
    assert requirement.Z_POWER == Z_POWER
    assert (line.SURPLUSES, line.HEAVIEST) == (SURPLUSES, HEAVIEST)


@pytest.mark.parametrize(
    "boundary",
    [
        Boundary(),
        Boundary(alpha=0.0125),
        Boundary(typical_lifts=(0.1,)),
        Boundary(typical_lifts=(0.05, 0.1, 0.2, 0.5)),
    ],
)
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("rate", RATES)
def test_it_asks_for_what_the_engine_asks_for(rate, share, boundary) -> None:
    design = Design(sessions_per_day=24_000, rate=rate, share=share)
    at, of, limits = np.array([rate]), np.array([share]), mixture(boundary)
    doubt = requirement.SurplusLine(information=np.ones(1), spread=at**2)
    for lift in LIFTS:
        (expected,) = requirement.required_sessions(at, of, np.array([lift]), limits, doubt=doubt)
        assert deciding_sessions(design, lift, boundary) == pytest.approx(expected, rel=1e-9)
    horizon = np.array([24_000.0 * HORIZON_DAYS])
    (smallest,) = requirement.smallest_lift(at, of, horizon, limits, doubt)
    result = smallest_lift_by_horizon(design, boundary)
    if math.isnan(smallest):
        assert result is None
    else:
        assert result == pytest.approx(smallest / rate, rel=1e-7)


def test_nothing_is_found_by_the_horizon_where_nobody_comes() -> None:
    assert (
        smallest_lift_by_horizon(Design(sessions_per_day=0.01, rate=0.5, share=0.5), Boundary())
        is None
    )


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("rate", RATES)
def test_a_harm_is_excluded_where_its_score_reaches_the_boundary(rate, share) -> None:
    design = Design(sessions_per_day=1000, rate=rate, share=share)
    for harm in LIFTS:
        weight = excluding_sessions(design, harm, Boundary()) * share * (1 - share)
        delta, noise = harm * rate, rate * (1 - rate)
        variance = weight * (noise + max(0, -delta * (1 - 2 * share) * (1 - 2 * rate)))
        score = delta * weight - Z_POWER * math.sqrt(weight * noise)
        (excess,) = mixture(Boundary()).excess(np.array([score]), np.array([variance]))
        assert excess == pytest.approx(0, abs=1e-7)


def test_the_longest_canaries_still_have_an_answer() -> None:
    rare = Design(sessions_per_day=1, rate=1e-9, share=1e-6)
    assert all(math.isfinite(prospect.days_to_decide) for prospect in prospects(rare, Boundary()))
