"""Vouched outcomes: a keep that rests on events that anybody can send says so."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from domain.policy import Numbers
from stats.counts.closed_cells import ClosedCells, Values
from stats.decision.evidence import Evidence, evaluate
from stats.decision.vouched import VOUCHED
from stats.looks.series import Companion, Series
from tests.stats.conftest import look_times, make_series

Maker = Callable[..., Series]
Cell = tuple[int, int, int, int]
MORE = (4000, 560, 4000, 400)


def vouched_only(cells: ClosedCells) -> dict[str, Companion]:
    return {VOUCHED: Companion(window_seconds=Numbers().window_seconds, cells=cells)}


def seen_of(cell: Cell, vouched: tuple[int, int] | None, *, hours: int = 4) -> Evidence:
    """Evidence of hours that are alike; of each so many outcomes are vouched for."""
    n1, _, n0, _ = cell
    own = make_series([(hour * 12, 0, *cell) for hour in range(hours)], as_of=hours * 3600 + 1920)
    if vouched is not None:
        known = [(hour * 12, 0, n1, vouched[0], n0, vouched[1]) for hour in range(hours)]
        own = replace(own, companions=vouched_only(make_series(known).target))
    (seen,) = evaluate([own])
    return seen


@pytest.mark.parametrize(
    ("vouched", "carries"),
    [
        ((200, 200), True),  # the gain is in the others alone
        ((150, 250), True),  # a loss
        ((70, 50), True),  # as large a gain, but too few to show it yet
        ((500, 300), False),
        ((560, 400), False),  # all of them
        ((0, 0), False),  # none: nothing of it can be separated
        (None, False),
    ],
)
def test_a_keep_that_does_not_hold_on_vouched_outcomes_is_unverified(vouched, carries) -> None:
    seen = seen_of(MORE, vouched)
    assert seen.decision.verdict == "keep"
    assert ("unverified" in seen.warnings) == carries


def test_an_answer_that_is_no_keep_carries_no_such_warning() -> None:
    for cell in ((4000, 400, 4000, 560), (4000, 400, 4000, 400)):
        seen = seen_of(cell, (200, 200))
        assert seen.decision.verdict in {"rollback", "abstain"}
        assert "unverified" not in seen.warnings
        assert seen.vouched is not None


def test_vouched_outcomes_are_those_of_the_look_and_tested_as_the_target_is() -> None:
    seen, alone = seen_of(MORE, (300, 200)), seen_of((4000, 300, 4000, 200), None)
    assert seen.vouched is not None
    look = alone.looks[look_times(alone).index(seen.as_of)]
    assert seen.vouched.e_value == pytest.approx(look.e_value, rel=1e-12)
    hours = seen.arms.control.units // 4000
    assert (seen.vouched.conversions, seen.vouched.of) == (hours * 500, hours * 960)


def test_of_a_mean_the_values_of_vouched_events_are_tested() -> None:
    n = np.full(4, 1000)
    block = np.arange(4, dtype=np.int64) * 3600

    def paid(level: float) -> Values:
        y1, y0 = np.full(4, 1000 * level), np.full(4, 1000.0)
        return Values(y1=y1, yy1=y1 * level * 2, y0=y0, yy0=y0 * 2)

    def series(level: float) -> Series:
        columns = {"n1": n, "x1": n, "n0": n, "x0": n}
        own = make_series([(hour * 12, 0, 1, 0, 1, 0) for hour in range(4)], as_of=4 * 3600 + 1920)
        cells = ClosedCells(block=block, stratum=0 * block, values=paid(level), **columns)
        return replace(own, target=cells)

    few = replace(series(1.0).target, x1=n - 1)
    (seen,) = evaluate([replace(series(1.5), companions=vouched_only(few))])
    assert seen.decision.verdict == "keep"
    assert seen.warnings == ("unverified",)
    few = replace(series(1.5).target, x1=n - 1)
    (seen,) = evaluate([replace(series(1.5), companions=vouched_only(few))])
    assert seen.warnings == ()
    assert seen.vouched is not None
    assert seen.vouched.e_value == pytest.approx(seen.totals.e_value)
