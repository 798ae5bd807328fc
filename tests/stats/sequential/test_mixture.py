"""The mixture: its e-process and the interval that inverts it, against plain arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stats.counts.cell import Ints, Totals
from stats.sequential.mixture import Mixture, confidence_sequence

Cell = tuple[int, int, int, int]
ALPHA = 0.05
E_LIMIT = 1 / ALPHA


@st.composite
def cells(draw: st.DrawFn, most: int = 3000) -> Cell:
    n1, n0 = draw(st.integers(0, most)), draw(st.integers(0, most))
    return n1, draw(st.integers(0, n1)), n0, draw(st.integers(0, n0))


tables = st.lists(cells(), min_size=1, max_size=6)


def columns(table: list[Cell]) -> tuple[Ints, Ints, Ints, Ints]:
    n1, x1, n0, x0 = np.array(table, dtype=np.int64).T
    return n1, x1, n0, x0


def mixture(alpha: float = ALPHA) -> Mixture:
    return Mixture(rho=np.array([[25.0, 4.0]]), log_threshold=np.array([-math.log(alpha)]))


def plain_log_e(table: list[Cell], delta: float) -> float:
    """Logarithm of E(δ), written down anew from the specification in scalars."""
    S = W = V0 = Q = P = 0.0
    for n1, x1, n0, x0 in table:
        n, m = n1 + n0, x1 + x0
        if n1 * n0 == 0:
            continue
        W += n1 * n0 / n
        S += (x1 * n0 - x0 * n1) / n
        V0 += n1 * n0 / n * m * (n - m) / (n * (n - 1))
        Q += (x1 * (n0 - x0) + x0 * (n1 - x1)) / (2 * n)
        P += (n1**2 * x0 - n0**2 * x1 + n1 * n0 * (n0 - n1) / 2) / n**2
    lift = S / W
    towards = 0.0
    if lift != 0:
        towards = min(1.0, max(0.0, delta / lift)) * (lift * P + Q - V0)
    V = V0 + max(0.0, 2 * delta * P, towards)
    logs = [
        0.5 * math.log(rho / (rho + V)) + (S - delta * W) ** 2 / (2 * (rho + V))
        for rho in (25.0, 4.0)
    ]
    top = max(logs)
    return top + math.log(sum(math.exp(each - top) for each in logs) / 2)


def with_contrast(table: list[Cell]) -> bool:
    return any(n1 * n0 > 0 for n1, _, n0, _ in table)


def interval(table: list[Cell]) -> tuple[float, float]:
    low, high = confidence_sequence(Totals.of(*columns(table)), mixture())[0]
    return float(low), float(high)


def log_e_at_zero(table: list[Cell]) -> float:
    totals = Totals.of(*columns(table))
    return float(mixture().log_e(totals.S, totals.V0)[0])


def test_without_data_the_evidence_is_one() -> None:
    nothing = np.zeros(1)
    assert mixture().log_e(nothing, nothing).tolist() == [0.0]


@given(tables)
def test_the_e_process_is_that_of_the_specification(table) -> None:
    assume(with_contrast(table))
    assert log_e_at_zero(table) == pytest.approx(plain_log_e(table, 0.0), rel=1e-9, abs=1e-9)


@given(tables)
def test_the_interval_ends_where_the_evidence_reaches_its_threshold(table) -> None:
    assume(with_contrast(table))
    low, high = interval(table)
    lift = float(Totals.of(*columns(table)).lift[0])
    assert low < lift < high
    width = high - low
    for end, outward in ((low, -1.0), (high, 1.0)):
        assert plain_log_e(table, end - outward * 1e-6 * width) < math.log(E_LIMIT)
        assert plain_log_e(table, end + outward * 1e-6 * width) > math.log(E_LIMIT) - 1e-6


@pytest.mark.requirement("contract.ci")
@given(tables)
def test_p_reaches_alpha_exactly_when_the_interval_excludes_zero(table) -> None:
    assume(with_contrast(table))
    low, high = interval(table)
    assert (math.exp(-log_e_at_zero(table)) <= ALPHA) == (low > 0 or high < 0)


@given(tables, st.floats(0.001, 0.999))
def test_that_holds_at_every_level_also_at_the_very_edge(table, alpha) -> None:
    assume(with_contrast(table))
    totals = Totals.of(*columns(table))
    edge = float(mixture().log_e(totals.S, totals.V0)[0])
    for threshold in (edge, math.nextafter(edge, math.inf), -math.log(alpha)):
        if threshold <= 0:
            continue
        mix = Mixture(rho=np.array([[25.0, 4.0]]), log_threshold=np.array([threshold]))
        low, high = confidence_sequence(totals, mix)[0]
        assert (edge >= threshold) == (low > 0 or high < 0)


@given(tables)
def test_swapping_the_arms_mirrors_the_interval_to_the_bit(table) -> None:
    assume(with_contrast(table))
    low, high = interval(table)
    swapped = [(n0, x0, n1, x1) for n1, x1, n0, x0 in table]
    assert interval(swapped) == (-high, -low)


@given(tables)
def test_a_cell_with_one_arm_adds_nothing_to_the_test(table) -> None:
    assume(with_contrast(table))
    one_armed = [*table, (50, 7, 0, 0), (0, 0, 80, 80)]
    assert interval(one_armed) == interval(table)


@given(tables, st.permutations(range(6)))
def test_the_interval_of_a_table_does_not_depend_on_its_neighbours(table, order) -> None:
    others = [table, [(9, 3, 8, 1)], [(1, 1, 1, 0)], [(500, 20, 900, 300)] * 3]
    others += [[(3000, 3000, 3000, 0)], [(2, 0, 3000, 1)]]
    chosen = [others[i] for i in order if with_contrast(others[i])]
    rows = [Totals.of(*columns(each)) for each in chosen]
    stacked = Totals.from_rows(
        np.concatenate([np.stack((r.S, r.W, r.V0, r.Q, r.P, r.C, r.M, r.T)) for r in rows], axis=1)
    )
    mix = mixture()[np.zeros(len(chosen), dtype=np.int64)]
    together = [tuple(pair) for pair in confidence_sequence(stacked, mix).tolist()]
    assert together == [interval(each) for each in chosen]
