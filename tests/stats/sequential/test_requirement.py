"""Required sessions: against the equation they solve, and against the specification's figures."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import brentq

from domain.metric import DAY
from stats.decision.evidence import evaluate
from stats.looks.series import Series
from stats.sequential.mixture import Mixture
from stats.sequential.requirement import SurplusLine, required_sessions, smallest_lift

Maker = Callable[..., Series]
Z = 0.8416


def mixture(count: int = 1) -> Mixture:
    return Mixture(rho=np.tile((25.0, 4.0), (count, 1)), log_threshold=np.full(count, math.log(20)))


def required(p: float, share: float = 0.5, relative: float = 0.2) -> float:
    arrays = (np.array([value]) for value in (p, share, relative))
    return float(required_sessions(*arrays, mixture())[0])


def log_e(u: float, V: float) -> float:
    logs = [0.5 * math.log(r / (r + V)) + u * u / (2 * (r + V)) for r in (25.0, 4.0)]
    return max(logs) + math.log(sum(math.exp(each - max(logs)) for each in logs) / 2)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5])
@pytest.mark.parametrize("relative", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("p", [0.001, 0.05, 0.6])
def test_it_solves_the_specified_equation(p, relative, share) -> None:
    W = required(p, share, relative) * share * (1 - share)
    delta = relative * p
    mean = share * (p + delta) + (1 - share) * p
    V = W * mean * (1 - mean)
    u = brentq(lambda u: log_e(u, V) - math.log(20), 1e-9, 1e6, xtol=1e-9, rtol=1e-14)
    assert delta * W - Z * math.sqrt(V) == pytest.approx(u, rel=1e-7)


@pytest.mark.parametrize("p", [0.001, 0.05, 0.6])
def test_the_smallest_lift_of_the_required_sessions_is_the_lift_they_are_required_for(p) -> None:
    sessions = required(p)
    computed = smallest_lift(np.array([p]), np.array([0.5]), np.array([sessions]), mixture())
    assert float(computed[0]) == pytest.approx(0.2 * p, rel=1e-8)


def test_a_rate_that_cannot_rise_so_far_is_asked_to_fall() -> None:
    assert 0 < required(0.9) < math.inf
    assert 0 < required(1.0) < math.inf


def test_nothing_is_required_where_nothing_is_known_and_others_are_not_disturbed() -> None:
    rate = np.array([np.nan, 0.05, 0.0, 0.05])
    share = np.array([0.5, 0.5, 0.5, np.nan])
    computed = required_sessions(rate, share, np.full(4, 0.2), mixture(4))
    assert np.isnan(computed).tolist() == [True, False, True, True]
    assert computed[1] == required(0.05)


def test_a_handful_of_sessions_finds_no_lift_at_all() -> None:
    computed = smallest_lift(np.array([0.5]), np.array([0.5]), np.array([4.0]), mixture())
    assert np.isnan(computed).tolist() == [True]


def test_requirements_wait_for_a_hundred_control_units(series) -> None:
    unknown, known = (
        evaluate([series([(0, 0, 60, 6, n0, 9)], as_of=3000)])[0].sessions for n0 in (99, 100)
    )
    assert unknown.required is None
    assert known.required == pytest.approx(required(0.09, 60 / 160))
    assert known.required_fast == pytest.approx(required(0.09, 60 / 160, 0.5))


def test_traffic_is_that_of_the_last_day_and_of_the_last_week(series) -> None:
    busy = [(block, 0, 60, 3, 60, 3) for block in range(288)]
    quiet = [(block, 0, 30, 1, 30, 1) for block in range(288, 576)]
    (seen,) = evaluate([series(busy + quiet, as_of=2 * DAY + 1920)])
    assert seen.sessions.per_day == 60 * 288
    assert seen.eligible_per_day == 90 * 288


@pytest.mark.parametrize(
    ("rate", "lift", "least", "most"),
    [(0.05, 0.2, 1.0, 1.1), (0.2, 0.1, 1.1, 1.2), (0.6, 0.05, 1.8, 2.2), (0.9, 0.03, 6, 9)],
)
def test_an_answer_that_waits_for_the_surplus_line_needs_more(rate, lift, least, most) -> None:
    """The medians of simulated keeps are ×1.04, 1.1, 1.9 and 7.6 (docs/statistics.md)."""
    known = [np.array([value]) for value in (rate, 0.5, lift)]
    line = SurplusLine(information=np.ones(1), spread=np.array([rate * rate]))
    alone = required_sessions(*known, mixture())
    (needed,) = required_sessions(*known, mixture(), doubt=line)
    assert least < needed / alone[0] < most
    smallest = smallest_lift(known[0], known[1], np.array([needed]), mixture(), line)
    assert smallest == pytest.approx(rate * lift, rel=1e-9)
