"""The learned prior: what a project's changes teach of its next, and the effect by it."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from domain.policy import EFFECT_PRIOR
from stats.decision.learned import chances, learned_effect
from stats.decision.learned_prior import learned_prior


@pytest.mark.parametrize(("observed", "error"), [(0.1, 0.03), (-0.4, 0.1), (0.004, 0.05)])
def test_the_effect_is_the_posterior_under_the_prior_that_was_learned(observed, error) -> None:
    prior = ((0.02, 0.7), (0.2, 0.3))
    estimate, credible = learned_effect(observed, error, prior)

    def density(theta: float, power: int = 0) -> float:
        spread = sum(w * norm.pdf(theta, scale=s) for s, w in prior)
        return float(theta**power * spread * norm.pdf(observed, loc=theta, scale=error))

    points = {"points": [0.0, observed], "limit": 500}
    mass, *moments = (
        quad(density, -2, end, args=(power,), **points)[0]
        for power, end in ((0, 2), (1, 2), (0, credible[0]), (0, credible[1]))
    )
    assert [moment / mass for moment in moments] == pytest.approx(
        [estimate, 0.025, 0.975], abs=1e-5
    )


@pytest.mark.parametrize(("observed", "error"), [(0.1, 0.03), (-0.04, 0.1), (0.0, 0.05)])
def test_the_chances_of_harm_and_of_no_effect_are_the_posterior_s(observed, error) -> None:
    prior = ((0.0, 0.4), (0.02, 0.4), (0.2, 0.2))
    nothing = 0.4 * norm.pdf(observed, scale=error)

    def density(theta: float) -> float:
        spread = sum(w * norm.pdf(theta, scale=s) for s, w in prior if s)
        return float(spread * norm.pdf(observed, loc=theta, scale=error))

    points = {"points": [0.0, observed], "limit": 500}
    below, above = quad(density, -2, 0, **points)[0], quad(density, 0, 2, **points)[0]
    mass = nothing + below + above
    expected = (below / mass, nothing / mass)
    assert chances(observed, error, prior) == pytest.approx(expected, abs=1e-7)


def test_a_fleet_without_effects_teaches_that_there_are_none() -> None:
    error = np.full(300, 0.05)
    observed = np.random.default_rng(7).normal(0, error)
    prior = learned_prior(list(zip(observed.tolist(), error.tolist(), strict=True)), EFFECT_PRIOR)
    assert [scale for scale, _ in prior] == [scale for scale, _ in EFFECT_PRIOR]
    assert sum(weight for _, weight in prior) == pytest.approx(1)
    assert abs(learned_effect(0.1, 0.05, prior)[0]) < 0.01
    low, high = learned_effect(0.0, 0.05, prior)[1]
    assert -0.03 < low <= 0 <= high < 0.03


def test_its_interval_holds_nineteen_changes_in_twenty_whoever_stopped_them() -> None:
    """Each change is stopped at the first of a month's looks at which it is beyond 10 %."""
    generator = np.random.default_rng(8)
    truth = generator.normal(0, 0.05, 1_300)
    steps = truth[:, None] + generator.normal(0, 0.2, (1_300, 30))
    looks = np.arange(1, 31)
    path = np.cumsum(steps, axis=1) / looks
    beyond = np.abs(path) >= 0.1
    last = np.where(beyond.any(axis=1), beyond.argmax(axis=1), 29)
    observed, error = path[np.arange(1_300), last].tolist(), (0.2 / np.sqrt(last + 1)).tolist()
    likelihoods = list(zip(observed, error, strict=True))
    prior = learned_prior(likelihoods[:300], EFFECT_PRIOR)
    effects = [learned_effect(*each, prior) for each in likelihoods[300:]]
    ends = np.array([credible for _, credible in effects])
    held = (ends[:, 0] <= truth[300:]) & (truth[300:] <= ends[:, 1])
    assert np.mean(held) > 0.93
    assert abs(np.mean([estimate for estimate, _ in effects])) < 0.01
