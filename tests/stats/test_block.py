"""Analysis blocks: where they end, and when they are looked at."""

from collections.abc import Callable

import pytest

from stats.block import analysis_block_ends
from stats.evidence import evaluate
from stats.policy import DAY, Policy
from stats.series import Series

Maker = Callable[..., Series]
DELAY = 1800 + 120


def few(blocks: int, units: int = 10) -> list[tuple[int, ...]]:
    return [(block, 0, units // 2, 0, units - units // 2, 0) for block in range(blocks)]


def test_blocks_are_joined_until_they_hold_fifty_units_of_any_arm_and_stratum(
    series: Maker,
) -> None:
    rows = [(0, 0, 20, 0, 0, 0), (1, 0, 0, 0, 20, 0), (1, 1, 5, 0, 4, 0), (3, 2, 0, 0, 1, 0)]
    assert analysis_block_ends(series(rows, as_of=4 * 300 + DELAY)) == [1200]


def test_a_block_that_holds_enough_is_its_own_analysis_block(series: Maker) -> None:
    assert analysis_block_ends(series(few(3, 50), as_of=900 + DELAY)) == [300, 600, 900]


def test_an_analysis_block_is_a_day_long_at_most_also_without_units(series: Maker) -> None:
    ends = analysis_block_ends(series([(400, 0, 1, 0, 1, 0)], start=299, as_of=3 * DAY))
    assert ends == [DAY, 2 * DAY]


def test_a_cut_begins_a_new_analysis_block_at_the_block_that_contains_it(series: Maker) -> None:
    cut = series(few(10), cuts=(899, 899, 0, -5), as_of=10 * 300 + DELAY)
    assert analysis_block_ends(cut) == [600, 600 + 5 * 300]


def test_a_cut_where_an_analysis_block_ends_anyway_changes_nothing(series: Maker) -> None:
    plain = series(few(10), as_of=10 * 300 + DELAY)
    assert analysis_block_ends(series(few(10), cuts=(1500,), as_of=10 * 300 + DELAY)) == (
        analysis_block_ends(plain)
    )


def test_the_last_analysis_block_ends_with_the_last_whole_block_of_the_horizon(
    series: Maker,
) -> None:
    policy = Policy(horizon_seconds=2000)
    rows = [row for row in few(20) if row[0] >= 1]
    ends = analysis_block_ends(series(rows, policy=policy, start=350, as_of=10**6))
    assert ends == [300 + 5 * 300, 2100]


@pytest.mark.parametrize(("late", "expected"), [(0, [300]), (-1, [])])
def test_an_analysis_block_closes_when_window_and_grace_have_passed(
    late: int, expected: list[int], series: Maker
) -> None:
    assert analysis_block_ends(series(few(1, 60), as_of=300 + DELAY + late)) == expected


def test_the_look_is_the_closing_time(series: Maker) -> None:
    (seen,) = evaluate([series(few(2, 60), as_of=600 + DELAY + 17)])
    assert seen.as_of == 600 + DELAY
    assert seen.looks.at.tolist() == [300 + DELAY, 600 + DELAY]
    assert seen.open_from == 600


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
def test_a_series_that_contradicts_itself_cannot_be_built(
    rows: list[tuple[int, ...]], rule: str, series: Maker
) -> None:
    with pytest.raises(ValueError, match=rule):
        series(rows)
