"""The tipping point: what somebody who invents sessions needs, and what he gets away with."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from domain.policy import Numbers
from stats.counts.arrivals import Arrivals, Epoch
from stats.decision.evidence import Evidence, evaluate
from stats.decision.tipping_point import TippingPoint
from tests.stats.conftest import make_series

Counts = tuple[int, int, int, int]


def seen_of(cell: Counts, *, share: float | None = None) -> Evidence:
    n1, x1, n0, x0 = cell
    zero = np.zeros(1, dtype=np.int64)
    arrivals = Arrivals(block=zero, treatment=zero + n1, others=zero + n0)
    series = make_series(
        [(0, 0, n1, x1, n0, x0)],
        policy=Numbers(alpha=1e-6),
        allocation=(Epoch(start=0, end=None, share=share),),
        arrivals=arrivals,
    )
    (seen,) = evaluate([series])
    return seen


def point_of(cell: Counts, *, share: float | None = None) -> TippingPoint:
    point = seen_of(cell, share=share).tipping_point
    assert point is not None
    return point


@given(
    n1=st.integers(200, 5000),
    n0=st.integers(200, 5000),
    rate=st.floats(0.01, 0.9),
    added=st.integers(1, 100),
)
def test_so_many_converting_sessions_added_to_equal_arms_make_the_lift(n1, n0, rate, added) -> None:
    # Else a rounded conversion can outweigh what is added.
    assume(added * (1 - rate) > 1)
    x0 = round(rate * n0)
    x1 = round(x0 / n0 * n1)
    point = point_of((n1 + added, x1 + added, n0, x0))
    # Whole conversions: the arms were equal but for half a conversion.
    assert point.sessions == pytest.approx(added, abs=2 + 0.5 / (1 - rate))


def test_a_loss_is_explained_by_sessions_added_to_control() -> None:
    assert point_of((1000, 100, 1060, 160)).sessions == pytest.approx(60, abs=1)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_the_sample_ratio_lets_about_so_many_pass_and_not_half_as_many_more(share) -> None:
    n1, n0 = round(share * 40_000), round((1 - share) * 40_000)

    def fires(added: int) -> bool:
        seen = seen_of((n1 + added, n1 // 20 + added, n0, n0 // 20), share=share)
        evidence = seen.gates.sample_ratio_e
        assert evidence is not None
        return evidence >= 100

    unseen = point_of((n1 + 10, n1 // 20 + 10, n0, n0 // 20), share=share).unseen
    assert unseen is not None
    assert not fires(unseen * 3 // 4)
    assert fires(unseen * 3 // 2)


def test_without_a_declared_share_any_number_goes_unnoticed() -> None:
    assert point_of((1000, 120, 1000, 100)).unseen is None


def test_it_is_asked_only_where_something_was_compared() -> None:
    assert seen_of((100, 10, 0, 0)).tipping_point is None
