"""The effect: the posterior mean under the test's mixture, which no lucky moment flatters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from stats.counts.cell import Totals
from stats.decision.effect import Effect, shrunk_effect
from stats.sequential.mixture import Mixture

MIXTURE = Mixture(rho=np.array([[25.0, 4.0]]), log_threshold=np.log(np.array([20.0])))


def totals(n1: int, x1: int, n0: int, x0: int) -> Totals:
    columns = (np.array([number], dtype=np.int64) for number in (n1, x1, n0, x0))
    return Totals.of(*columns)


def effect_of(*cell: int) -> Effect:
    effect = shrunk_effect(totals(*cell), MIXTURE)
    assert effect is not None
    return effect


def integrated(cell: tuple[int, ...], power: int) -> float:
    """A moment of the drift θ under the mixture, by numeric integration."""
    sums = totals(*cell)
    S, V = float(sums.S[0]), float(sums.V0[0])
    top = S / V

    def density(theta: float) -> float:
        prior = 0.5 * norm.pdf(theta, scale=1 / 5) + 0.5 * norm.pdf(theta, scale=1 / 2)
        return float(prior * norm.pdf(S, loc=theta * V, scale=np.sqrt(V)))

    def moment(theta: float) -> float:
        return theta**power * density(theta)

    bounds = (top - 12 / np.sqrt(V), top + 12 / np.sqrt(V))
    mass = quad(density, *bounds)[0]
    return quad(moment, *bounds)[0] / mass


@pytest.mark.parametrize(
    "cell",
    [(12_000, 720, 12_000, 600), (500, 20, 9_500, 500), (3_000, 200, 3_000, 100)],
)
def test_the_effect_is_the_posterior_of_the_tests_own_mixture(cell: tuple[int, ...]) -> None:
    sums, effect = totals(*cell), effect_of(*cell)
    scale = float(sums.V0[0] / sums.W[0])
    mean = integrated(cell, 1)
    assert effect.estimate == pytest.approx(scale * mean, rel=1e-6)
    variance = integrated(cell, 2) - mean**2
    assert effect.standard_deviation == pytest.approx(scale * np.sqrt(variance), rel=1e-5)


CELLS = st.tuples(*[st.integers(1, 5_000)] * 2).flatmap(
    lambda n: st.tuples(st.just(n[0]), st.integers(0, n[0]), st.just(n[1]), st.integers(0, n[1]))
)


@given(CELLS)
def test_an_effect_lies_between_nothing_and_the_measured_lift(cell: tuple[int, ...]) -> None:
    sums = totals(*cell)
    effect = shrunk_effect(sums, MIXTURE)
    if effect is None:
        assert not sums.V0[0] > 0
        return
    lift = float(sums.lift[0])
    low, high = sorted((0.0, lift))
    assert low <= effect.estimate <= high
    assert effect.standard_deviation > 0


@given(CELLS)
def test_swapping_the_arms_turns_the_effect_round(cell: tuple[int, ...]) -> None:
    n1, x1, n0, x0 = cell
    effect = shrunk_effect(totals(*cell), MIXTURE)
    swapped = shrunk_effect(totals(n0, x0, n1, x1), MIXTURE)
    if effect is None or swapped is None:
        assert effect is swapped
        return
    assert swapped.estimate == pytest.approx(-effect.estimate, rel=1e-9, abs=1e-15)
    assert swapped.standard_deviation == pytest.approx(effect.standard_deviation, rel=1e-9)


def test_much_traffic_leaves_the_measured_lift_as_it_is() -> None:
    few, many = effect_of(1_000, 60, 1_000, 50), effect_of(10**7, 600_000, 10**7, 500_000)
    assert abs(few.estimate) < 0.8 * 0.01
    assert many.estimate == pytest.approx(0.01, rel=0.01)
    assert many.relative == pytest.approx(0.2, rel=0.01)


def test_without_a_comparison_there_is_no_effect() -> None:
    assert shrunk_effect(totals(0, 0, 100, 5), MIXTURE) is None
    assert shrunk_effect(totals(100, 0, 100, 0), MIXTURE) is None
