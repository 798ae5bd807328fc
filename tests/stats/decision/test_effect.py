"""The effect: a posterior mean under a fixed prior, which no lucky moment flatters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from domain.policy import EFFECT_PRIOR
from stats.counts.cell import Totals
from stats.decision.effect import Posterior, posterior_of


def totals(n1: int, x1: int, n0: int, x0: int) -> Totals:
    columns = (np.array([number], dtype=np.int64) for number in (n1, x1, n0, x0))
    return Totals.of(*columns)


def posterior(*cell: int) -> Posterior | None:
    return posterior_of(totals(*cell), EFFECT_PRIOR, is_rate=True)


def known(*cell: int) -> Posterior:
    effect = posterior(*cell)
    assert effect is not None
    return effect


def integrated(cell: tuple[int, ...], power: int) -> float:
    """A moment of the drift θ under the prior: its point at 0, and numeric integration."""
    sums = totals(*cell)
    S, V = float(sums.S[0]), float(sums.V0[0])

    def likelihood(theta: float) -> float:
        return float(norm.pdf(S, loc=theta * V, scale=np.sqrt(V)))

    def density(theta: float) -> float:
        spread = (w * norm.pdf(theta, scale=s) for s, w in EFFECT_PRIOR if s > 0)
        return float(sum(spread)) * likelihood(theta)

    (nothing,) = (w for s, w in EFFECT_PRIOR if s == 0)
    bounds = (S / V - 12 / np.sqrt(V), S / V + 12 / np.sqrt(V))
    points = {"points": [0.0, S / V], "limit": 500}
    mass = quad(density, *bounds, **points)[0] + nothing * likelihood(0.0)
    return quad(lambda theta: theta**power * density(theta), *bounds, **points)[0] / mass


@pytest.mark.parametrize(
    "cell", [(12_000, 720, 12_000, 600), (500, 20, 9_500, 500), (3_000, 200, 3_000, 100)]
)
def test_the_effect_is_the_posterior_under_the_prior(cell) -> None:
    sums, effect = totals(*cell), known(*cell)
    scale = float(sums.V0[0] / sums.W[0])
    mean = integrated(cell, 1)
    assert effect.estimate == pytest.approx(scale * mean, rel=1e-6)
    variance = integrated(cell, 2) - mean**2
    assert effect.standard_deviation == pytest.approx(scale * np.sqrt(variance), rel=1e-5)
    # A learner that has this prior learns as much of the likelihood: S | θ ~ N(θV, V).
    drift = effect.observed / effect.observed_error
    assert drift == pytest.approx(float(sums.S[0] / np.sqrt(sums.V0[0])))
    rate = (cell[1] + cell[3]) / (cell[0] + cell[2])
    assert effect.observed == pytest.approx(float(sums.lift[0]) / rate)


CELLS = st.tuples(*[st.integers(1, 5_000)] * 2).flatmap(
    lambda n: st.tuples(st.just(n[0]), st.integers(0, n[0]), st.just(n[1]), st.integers(0, n[1]))
)


@given(CELLS)
def test_an_effect_lies_between_nothing_and_the_measured_lift(cell) -> None:
    sums, effect = totals(*cell), posterior(*cell)
    if effect is None:
        assert not sums.V0[0] > 0
        return
    lift = float(sums.lift[0])
    low, high = sorted((0.0, lift))
    assert low <= effect.estimate <= high
    assert effect.standard_deviation > 0


@given(CELLS)
def test_swapping_the_arms_turns_the_effect_round(cell) -> None:
    n1, x1, n0, x0 = cell
    effect, swapped = posterior(*cell), posterior(n0, x0, n1, x1)
    if effect is None or swapped is None:
        assert effect is swapped
        return
    assert swapped.estimate == pytest.approx(-effect.estimate, rel=1e-9, abs=1e-15)
    assert swapped.standard_deviation == pytest.approx(effect.standard_deviation, rel=1e-9)


def test_much_traffic_leaves_the_measured_lift_as_it_is() -> None:
    few, many = known(1_000, 60, 1_000, 50), known(10**7, 600_000, 10**7, 500_000)
    assert abs(few.estimate) < 0.8 * 0.01
    assert many.estimate == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.6])
@pytest.mark.parametrize("share", [0.5, 0.05])
@pytest.mark.parametrize("lift", [-0.5, 0.5])
def test_half_as_much_again_reads_as_half_at_every_rate_and_share(rate, share, lift) -> None:
    n1 = round(2_000_000 * share)
    n0 = 2_000_000 - n1
    effect = known(n1, round(n1 * rate * (1 + lift)), n0, round(n0 * rate))
    assert effect.relative == pytest.approx(lift, abs=0.02)


@pytest.mark.parametrize(
    ("control", "scale"),
    # The spread of a unit is 200: what is nearer to 0 than a twentieth of it has no level.
    [(20.0, 21.0), (-20.0, 19.0), (0.0, 10.0), (-1.5, 10.0), (1.0, 10.0)],
)
def test_a_mean_is_estimated_relative_to_both_arms_or_in_its_unit(control, scale) -> None:
    # 1,000,000 units and a lift of 2 whose standard error is 0.4.
    W = 250_000.0
    sums = {"S": 2 * W, "W": W, "V0": (0.4 * W) ** 2, "Q": 0.0, "P": 0.0, "C": control * W}
    one = Totals(**{name: np.array([sums.get(name, 0.0)]) for name in (*sums, "M", "T")})
    effect = posterior_of(one, [(0.1, 1.0)], is_rate=False)
    assert effect is not None
    shrunk = 0.1**2 / (0.1**2 + (0.4 / scale) ** 2)
    assert effect.estimate == pytest.approx(2 * shrunk)
    assert effect.standard_deviation == pytest.approx(0.4 * np.sqrt(shrunk))
    unit = abs(control + 1) if control in {20.0, -20.0, 1.0} else 1.0
    assert (effect.observed, effect.observed_error) == pytest.approx((2 / unit, 0.4 / unit))
    if control in {0.0, -1.5}:  # none, or the arms' means have not the same sign
        assert effect.relative is None
    else:
        assert effect.relative == pytest.approx(2 * shrunk / abs(control + 1 - shrunk))


def test_without_a_comparison_there_is_no_effect() -> None:
    assert posterior(0, 0, 100, 5) is None
    assert posterior(100, 0, 100, 0) is None
