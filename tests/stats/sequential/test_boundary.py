"""The boundary search: where it ends, and from which side."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stats.counts.cell import Floats
from stats.counts.columns import Rows
from stats.sequential.boundary import last_inside, widened


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=9), st.sampled_from([0.5, 1.0, 3.0]))
def test_the_result_is_inside_and_the_boundary_is_within_the_tolerance(
    roots: list[float], power: float
) -> None:
    root = np.array(roots)

    def excess(x: Floats, rows: Rows) -> Floats:
        gap = x - root[rows]
        return np.sign(gap) * np.abs(gap) ** power

    inside, outside = widened(np.zeros(root.size), np.ones(root.size), slice(None), excess)
    tolerance = 1e-9 * root
    result = last_inside(inside, outside, tolerance, excess)
    assert np.all(result < root)
    assert np.all(result + 1.001 * tolerance >= root)


def test_a_set_without_a_boundary_is_not_a_guess() -> None:
    def excess(x: Floats, rows: Rows) -> Floats:
        return -np.ones_like(x)[np.arange(x.size)[rows]]

    inside, outside = widened(np.zeros(1), np.ones(1), slice(None), excess)
    assert np.isnan(inside).all()
    assert np.isnan(outside).all()
