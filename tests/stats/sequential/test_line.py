"""The line: a likelihood ratio under a single prior of the units that came to an arm alone."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from stats.counts.cell import Totals
from stats.decision.surplus import Surplus
from stats.sequential.line import OF_EFFECT, SURPLUSES, Line
from stats.sequential.mixture import Mixture, variance_at

RHO = np.array([[25.0, 4.0]])


def line_of(score: float, V: float, surplus: float, units: float, level: float) -> Line:
    """The sums of a single look at which half of the units are declared for treatment."""
    sums = np.array([score, units, V, V, 0.0, level * units, 0.0, 0.0])[:, None]
    known = {"surplus": surplus, "information": units, "moved": -level * surplus}
    known |= {"spread": level**2 * units}
    return Line(
        rho=RHO,
        totals=Totals.from_rows(sums),
        **{name: np.array([value]) for name, value in known.items()},
    )


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
    line = line_of(score, V, surplus, units, level).log_e()[0]
    assert line == pytest.approx(integrated(score, V, surplus, units, level), rel=1e-6)


def test_a_difference_that_the_surplus_turns_round_says_nothing() -> None:
    assert line_of(90.0, 700.0, -900.0, 30_000.0, 0.6).log_e()[0] == 0


@st.composite
def lines(draw: st.DrawFn) -> Line:
    """A look with a drawn table, share and number of units of one arm that do nothing."""
    n, share = draw(st.integers(2000, 400_000)), draw(st.sampled_from((0.01, 0.5, 0.9)))
    # Farther than five standard errors from its share the sample ratio holds.
    away = draw(st.integers(-49, 49)) / 10 * math.sqrt(n * share * (1 - share))
    n1 = max(1, round(n * share + away))
    n0 = n - n1
    empty = draw(st.sampled_from((0.0, 0.005, 0.02, 0.1, 0.3)))
    active1, active0 = (n1 / (1 + empty), n0) if draw(st.booleans()) else (n1, n0 / (1 + empty))
    rates = [draw(st.sampled_from((0.01, 0.05, 0.3, 0.6, 0.9))) for _ in range(2)]
    x1, x0 = round(active1 * rates[0]), round(active0 * rates[1])
    totals = Totals.of(*(np.array([count]) for count in (n1, x1, n0, x0)))
    surplus, information = np.array([n1 - share * n]), np.array([n * share * (1 - share)])
    level = totals.control_rate
    known = {"moved": -level * surplus, "spread": level**2 * information}
    return Line(rho=RHO, totals=totals, surplus=surplus, information=information, **known)


def sets(line: Line) -> tuple[Surplus, Mixture]:
    """What both tests say of a look, at a level of 5 %."""
    share = dict.fromkeys(("declared", "served", "units"), np.ones(1))
    surplus = Surplus(log_e=line.log_e(), line=line, is_asked=np.ones(1) > 0, **share)
    return surplus, Mixture(rho=RHO, log_threshold=np.log([20.0]))


@given(lines())
def test_the_interval_excludes_zero_exactly_when_both_tests_do(line) -> None:
    surplus, mixture = sets(line)
    low, high = surplus.intervals(line.totals, mixture)[0]
    both = surplus.guarded(mixture.log_e(line.totals.S, line.totals.V0))
    assert (not low <= 0 <= high) == bool(both[0] >= np.log(20.0))
    assert low <= line.totals.lift[0] <= high


@pytest.mark.parametrize("level", [0.05, 0.6, 0.9])
@pytest.mark.parametrize(("score", "surplus"), [(0.0, 3.0), (3.0, 0.0), (5.0, -4.0), (-6.0, 4.0)])
def test_the_interval_reaches_as_far_as_either_test_admits_a_lift(level, score, surplus) -> None:
    """In standard errors: a score, and treatment's units beyond its share."""
    units, V = 3000.0, 3000.0 * level * (1 - level)
    line = line_of(score * V**0.5, V, surplus * units**0.5, units, level)
    both, mixture = sets(line)
    low, high = both.intervals(line.totals, mixture)[0]
    at = np.linspace(low - (high - low), high + (high - low), 3001)
    rows = np.zeros(at.size, dtype=np.int64)
    here = line[rows]
    left, variance = here.totals.S - at * units, variance_at(here.totals, here.totals.lift, at)
    log_e = np.minimum(here.log_ratio(left, variance), mixture[rows].log_e(left, variance))
    admitted = at[log_e < np.log(20.0)]
    assert (low, high) == pytest.approx((admitted[0], admitted[-1]), abs=1.01 * (at[1] - at[0]))


def test_surplus_units_count_mostly_as_if_they_did_nothing() -> None:
    """Mean and variance of S by drawing: τ by its weight, and then either of the two."""
    rng, units = np.random.default_rng(1), 3000.0
    line = line_of(90.0, 700.0, 150.0, units, 0.6)
    spread = np.array([deviation for deviation, _ in OF_EFFECT]) ** 2 * units**2 + units
    weights = np.array([w for _, w in OF_EFFECT]) * norm.pdf(150.0, scale=np.sqrt(spread))
    drawn = rng.choice(len(OF_EFFECT), size=400_000, p=weights / weights.sum())
    doubt = 1 - units / spread[drawn]
    doubt *= rng.random(drawn.size) < 0.85
    score = rng.normal(90.0 + doubt * 0.6 * 150.0, np.sqrt(700.0 + doubt * 0.36 * units))
    (mean,), (variance,) = line.estimated(line.totals.S, line.totals.V0)
    assert mean == pytest.approx(score.mean(), abs=0.3)
    assert variance == pytest.approx(score.var(), rel=0.01)
