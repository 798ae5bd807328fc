"""A guardrail's interval says what its test says, on both sides."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stats.counts.cell import Totals
from stats.guardrails.arm_levels import ArmLevels, LevelsAt, intervals
from stats.guardrails.guardrail import Closings, readings, watches
from stats.sequential.harm import log_harm
from tests.stats.conftest import make_guardrail

counts = st.integers(0, 400)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


@given(counts, counts, st.sampled_from(["higher", "lower"]), st.floats(0.01, 0.3))
def test_it_excludes_zero_when_breached_and_lies_in_the_margin_when_unharmed(
    x1, x0, better, margin
) -> None:
    n1, n0 = 1000, 900
    totals = Totals.of(ints(n1), ints(x1), ints(n0), ints(x0))
    rail = make_guardrail([(0, 0, n1, x1, n0, x0)], better=better, margin=margin)
    (rail_watch,) = watches(
        [rail],
        Closings(
            first=ints(0, 1),
            at=ints(300),
            totals=totals,
            control=np.array([x0 / n0]),
            treatment=np.array([x1 / n1]),
            rho=np.array([[25.0, 4.0]]),
        ),
        [40.0],
    )
    ((reading, row),) = readings([(rail_watch, 300)])
    assert row.interval is not None
    low, high = row.interval
    assert reading.lift is not None
    assert low <= reading.lift <= high
    assert (row.control, row.treatment) == (x0 / n0, x1 / n1)
    harm, room = (low, margin - high) if better == "lower" else (-high, margin + low)
    assume(min(abs(harm), abs(room)) > 1e-9)
    assert (reading.breached_at is not None) == (harm > 0)
    assert (reading.non_inferior_at is not None) == (room > 0)


@given(
    st.floats(0.01, 1e9),
    st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=5),
    st.sampled_from([20.0, 100.0, 400.0]),
)
def test_its_reach_is_the_one_that_plain_bisection_finds(variance, rho, threshold) -> None:
    nothing = np.zeros(1)
    levels = ArmLevels(
        control=nothing,
        treatment=nothing,
        lift=nothing,
        weight=nothing + 1.0,
        variance=nothing + variance,
        rho=np.array([rho]),
    )

    def reaches(score: float) -> bool:
        evidence = log_harm(np.array([score]), levels.variance, levels.rho)
        return bool(evidence[0] >= math.log(threshold))

    low, high = 0.0, math.sqrt(variance + rho[1])
    while not reaches(high):
        low, high = high, 2.0 * high
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if reaches(middle) else (middle, high)

    read = LevelsAt(levels=levels, closing=0, threshold=threshold)
    assert intervals([read]) == [(-high, high)]


def test_before_any_comparison_there_is_no_interval() -> None:
    rail = make_guardrail([(0, 0, 5, 1, 0, 0)])
    (rail_watch,) = watches(
        [rail],
        Closings(
            first=ints(0, 1),
            at=ints(300),
            totals=Totals.of(ints(5), ints(1), ints(0), ints(0)),
            control=np.array([math.nan]),
            treatment=np.array([0.2]),
            rho=np.array([[25.0, 4.0]]),
        ),
        [20.0],
    )
    ((_, row),) = readings([(rail_watch, 300)])
    assert (row.interval, row.control, row.treatment) == (None, None, pytest.approx(0.2))
