"""Outcomes left out: a gate that holds back the side that they explain, and that side alone."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from domain.cause import LEFT_OUT, Cause
from stats.counts.closed_cells import ClosedCells, Values
from stats.decision.evidence import Evidence, evaluate
from stats.looks.policy import Policy
from stats.looks.series import Companion, Series

Maker = Callable[..., Series]
HOURS, HOUR = 4, 12
CLOSED = HOURS * 3600 + 1920
LESS = (4000, 320, 4000, 400)
MORE = (4000, 480, 4000, 400)


def seen_of(
    series: Maker,
    cell: tuple[int, int, int, int],
    left_out: tuple[int, int],
    *,
    each: int = 1,
    better: str = "higher",
    reason: Cause = Cause.OTHER_CURRENCY,
) -> Evidence:
    """Evidence of hours that are alike; of each, so many units of treatment and control lose some.

    Args:
        each: How many outcomes each of these units loses.
    """
    n1, _, n0, _ = cell
    policy = Policy(better=better, alpha=1e-4)
    own = series([(hour * HOUR, 0, *cell) for hour in range(HOURS)], policy=policy, as_of=CLOSED)
    x1, x0 = left_out
    y1, y0 = np.full(HOURS, float(x1 * each)), np.full(HOURS, float(x0 * each))
    values = Values(y1=y1, yy1=y1 * each, y0=y0, yy0=y0 * each)
    rows = [(hour * HOUR, 0, n1, x1, n0, x0) for hour in range(HOURS)]
    cells = series(rows, values=values).target
    (seen,) = evaluate([replace(own, companions=of_reason(reason, cells))])
    return seen


def of_reason(reason: Cause, cells: ClosedCells) -> dict[str, Companion]:
    return {reason: Companion(window_seconds=Policy().window_seconds, cells=cells)}


def plain(x1: int, x0: int, *, hours: int) -> float:
    """The test of rates on cells of 4,000 units of either arm."""
    n1 = n0 = 4000
    n, m = n1 + n0, x1 + x0
    S = hours * (x1 * n0 - x0 * n1) / n
    V = hours * n1 * n0 / n * m * (n - m) / (n * (n - 1))
    parts = [math.sqrt(r / (r + V)) * math.exp(S * S / (2 * (r + V))) for r in (25.0, 4.0)]
    return sum(parts) / 2


@pytest.mark.parametrize("reason", LEFT_OUT)
@pytest.mark.parametrize(
    ("cell", "left_out", "better", "verdict"),
    [
        (LESS, (80, 0), "higher", "abstain"),
        (LESS, (0, 80), "higher", "rollback"),
        (MORE, (80, 0), "higher", "keep"),
        (MORE, (0, 80), "higher", "abstain"),
        # What lowers the mean of treatment looks like a gain here.
        (LESS, (80, 0), "lower", "abstain"),
        (LESS, (0, 80), "lower", "keep"),
    ],
)
def test_it_holds_back_the_answer_that_it_explains_and_that_alone(
    cell: tuple[int, int, int, int],
    left_out: tuple[int, int],
    better: str,
    verdict: str,
    reason: Cause,
    series: Maker,
) -> None:
    seen = seen_of(series, cell, left_out, better=better, reason=reason)
    assert seen.decision.verdict == verdict
    assert seen.gates.interacting_because == ((reason,) if verdict == "abstain" else ())
    (outcomes,) = seen.gates.left_out
    assert outcomes.e_value > 100


def test_units_are_tested_and_outcomes_are_counted(series: Maker) -> None:
    seen = seen_of(series, LESS, (80, 60), each=3)
    hours = seen.arms.control.units // 4000
    (outcomes,) = seen.gates.left_out
    assert (outcomes.treatment, outcomes.control) == (hours * 240, hours * 180)
    assert outcomes.e_value == pytest.approx(plain(80, 60, hours=hours), rel=1e-9)


def test_it_is_not_sticky_and_asks_for_the_cells_of_the_same_look(series: Maker) -> None:
    rows = [(hour * HOUR, 0, *LESS) for hour in range(8)]
    own = series(rows, policy=Policy(alpha=1e-200), as_of=8 * 3600 + 1920)
    # First treatment's outcomes are left out, then control's as often.
    x1, x0 = [80] * 4 + [0] * 4, [0] * 4 + [80] * 4
    y1, y0 = np.array(x1, dtype=np.float64), np.array(x0, dtype=np.float64)
    values = Values(y1=y1, yy1=y1, y0=y0, yy0=y0)
    cells = series(
        [(hour * HOUR, 0, 4000, x1[hour], 4000, x0[hour]) for hour in range(8)], values=values
    ).target
    (seen,) = evaluate([replace(own, companions=of_reason(Cause.NO_VALUE, cells))])
    assert seen.looks.gated.any()
    assert not seen.looks.gated[-1]
