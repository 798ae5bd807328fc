"""Analysis blocks: where they end in each stratum, and when they are looked at."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.metric import DAY, HOUR
from domain.policy import Numbers
from stats.counts.arrivals import Arrivals, Epoch
from stats.counts.finding import NEVER
from stats.decision.evidence import evaluate
from stats.looks.block import analysis_blocks
from stats.looks.series import Series
from tests.oracle.analysis_blocks import Joined, joined
from tests.stats.conftest import look_times

Maker = Callable[..., Series]
Row = tuple[int, ...]
DELAY = 1800 + 120
NOTHING = np.empty(0, dtype=np.int64)
NOBODY = Arrivals(block=NOTHING, treatment=NOTHING, others=NOTHING)


def declared(*shares: float | None, every: int = 4 * HOUR) -> dict[str, Any]:
    """Shares that are declared in turn."""
    last = len(shares) - 1
    epochs = tuple(
        Epoch(start=i * every, end=None if i == last else (i + 1) * every, share=share)
        for i, share in enumerate(shares)
    )
    return {"allocation": epochs, "arrivals": NOBODY}


def few(blocks: int, units: int = 10, *, stratum: int = 0) -> list[Row]:
    return [(block, stratum, units // 2, 0, units - units // 2, 0) for block in range(blocks)]


def together(*strata: list[Row]) -> list[Row]:
    return sorted(row for rows in strata for row in rows)


def test_an_analysis_block_without_a_unit_closes_nothing(series) -> None:
    rows = [(2, 0, 1, 0, 1, 0), (2, 1, 1, 0, 1, 0), (4, 0, 300, 0, 300, 0)]
    (seen,) = evaluate([series(rows, as_of=12 * HOUR, **declared(0.5))])
    assert look_times(seen) == [1500 + DELAY]
    (seen,) = evaluate([series(rows, as_of=23 * HOUR)])
    assert look_times(seen) == [1500 + DELAY, HOUR + DELAY]


def test_a_day_without_a_unit_is_looked_at_and_so_is_the_horizon(series) -> None:
    policy = Numbers(horizon_seconds=4 * DAY + 1000)
    (seen,) = evaluate(
        [series(few(3, 50), policy=policy, start=299, as_of=10 * DAY, **declared(0.5))]
    )
    assert look_times(seen) == [
        *(end + DELAY for end in (300, 600, 900)),
        *(day * DAY + DELAY for day in (2, 3, 4)),
        4 * DAY + 1200 + DELAY,
    ]
    assert seen.decision.ended_because == "horizon"
    assert seen.sessions.per_day == 0


def test_the_look_is_the_closing_time(series) -> None:
    (seen,) = evaluate([series(few(2, 60), as_of=600 + DELAY + 17)])
    assert seen.as_of == 600 + DELAY
    assert look_times(seen) == [300 + DELAY, 600 + DELAY]
    assert seen.closed_until == 600


def test_at_a_look_the_open_units_of_a_thin_stratum_are_in_no_cell(series) -> None:
    rows = together(few(4, 60), few(4, 2, stratum=1))
    (seen,) = evaluate([series(rows, as_of=1200 + DELAY, **declared(0.5))])
    assert seen.units_in_cells == 240
    (seen,) = evaluate([series(rows, cuts=(1200,), as_of=1200 + DELAY, **declared(0.5))])
    assert seen.units_in_cells == 248


@st.composite
def traffic(draw: st.DrawFn) -> dict[str, Any]:
    """A few strata over some days, thick and thin, with cuts and changes of declaration."""
    strata = st.sampled_from(draw(st.sampled_from([[0], [0, 5], [1, 2, 3]])))
    units = st.sampled_from([0, 1, 4, 9, 30])
    rows: dict[tuple[int, int], Row] = {}
    block = 0
    for _ in range(draw(st.sampled_from([3, 12, 40]))):
        block += draw(st.sampled_from([0, 0, 1, 1, 2, 7, 30, 300]))
        stratum, n1, n0 = draw(strata), draw(units), draw(units)
        rows[block, stratum] = (block, stratum, n1, n1 // 3, n0, n0 // 4)
    moments = st.integers(0, 3 * DAY)
    starts = [-600, *sorted(draw(st.lists(moments, max_size=3)))]
    shares = [draw(st.sampled_from([None, 0.0, 0.1, 0.5, 1.0])) for _ in starts]
    epochs = tuple(
        Epoch(start=start, end=end, share=share)
        for start, end, share in zip(starts, [*starts[1:], None], shares, strict=True)
    )
    return {
        "rows": sorted(rows.values()),
        "as_of": draw(st.sampled_from([40 * DAY, 3 * DAY]) | st.integers(0, 5 * DAY)),
        "cuts": tuple(draw(st.lists(moments, max_size=3))),
        "policy": Numbers(horizon_seconds=draw(st.sampled_from([DAY + 700, 28 * DAY]))),
        **({"allocation": epochs, "arrivals": NOBODY} if draw(st.booleans()) else {}),
    }


@given(traffic())
def test_analysis_blocks_are_those_of_a_second_reading_of_the_rule(series, drawn) -> None:
    own = series(**drawn)
    expected = [joint for joint in joined(own) if joint.units and joint.end is not None]
    ends = analysis_blocks(own)
    assert list(zip(ends.stratum.tolist(), ends.end.tolist(), strict=True)) == [
        (joint.stratum, joint.end) for joint in expected
    ]


@given(traffic())
def test_the_cells_of_a_look_are_those_of_analysis_blocks_that_have_closed(series, drawn) -> None:
    own = series(**drawn)
    (seen,) = evaluate([own])
    closed = [
        joint for joint in joined(own) if joint.end is not None and joint.end <= seen.closed_until
    ]
    assert seen.units_in_cells + sum(seen.compared_with_none) == sum(
        joint.units for joint in closed
    )
    score = sum(_score(own, joint) for joint in closed)
    assert pytest.approx(score, abs=1e-9) == seen.totals.S


def _score(series: Series, joint: Joined) -> float:
    assert joint.end is not None
    cells = series.target
    rows = (
        (cells.stratum == joint.stratum) & (cells.block >= joint.begin) & (cells.block < joint.end)
    )
    n1, x1, n0, x0 = (
        int(column[rows].sum()) for column in (cells.n1, cells.x1, cells.n0, cells.x0)
    )
    return (x1 * n0 - x0 * n1) / (n1 + n0) if n1 + n0 else 0.0


def test_no_analysis_block_holds_a_block_that_is_open_or_unknown(series) -> None:
    blocks = analysis_blocks(series(few(5, 30), as_of=1200 + DELAY))
    asked = np.array([0, 300, 900, 1200, 9000]), np.zeros(5, dtype=np.int64)
    assert blocks.end_of(asked[1], asked[0]).tolist() == [300, 600, 1200, NEVER, NEVER]
    assert blocks.end_of(np.array([7]), np.array([0])).tolist() == [NEVER]


@pytest.mark.parametrize(
    ("rows", "rule"),
    [
        ([(1, 0, 1, 0, 1, 0), (0, 0, 1, 0, 1, 0)], "ascend"),
        ([(0, 0, 1, 0, 1, 0), (0, 0, 1, 0, 1, 0)], "once"),
        ([(-1, 0, 1, 0, 1, 0)], "multiples"),
        ([(0, -1, 1, 0, 1, 0)], "not negative"),
        ([(0, 0, 1, 0, 1, -1)], "not negative"),
        ([(0, 0, 1, 2, 1, 0)], "no more conversions"),
        ([(0, 0, 1, 0, 1, 2)], "no more conversions"),
    ],
)
def test_a_series_that_contradicts_itself_cannot_be_built(rows, rule, series) -> None:
    with pytest.raises(ValueError, match=rule):
        series(rows)
