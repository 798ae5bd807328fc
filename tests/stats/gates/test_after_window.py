"""After the window: a gate that holds back the side that it explains, and that side alone."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from stats.decision.evidence import Evidence, evaluate
from stats.gates.after_window import LONG_WINDOW, missed_outcomes
from stats.looks.policy import Policy
from stats.looks.series import Companion, Series

Maker = Callable[..., Series]
HOUR = 12  # blocks
GRACE, WINDOW = 120, 1800
LONG = 4 * WINDOW
LESS = (4000, 320, 4000, 400)
MORE = (4000, 480, 4000, 400)


def seen_of(
    series: Maker,
    cell: tuple[int, int, int, int],
    after: tuple[int, int],
    *,
    hours: int = 4,
    is_read: bool = True,
    better: str = "higher",
    as_of: int | None = None,
    alpha: float = 0.05,
) -> Evidence:
    """Evidence of hours that are alike; each misses so many outcomes of treatment and control."""
    n1, x1, n0, x0 = cell
    rows = [(hour * HOUR, 0, *cell) for hour in range(hours)]
    policy = Policy(better=better, alpha=alpha)
    own = series(rows, policy=policy, as_of=as_of or hours * 3600 + WINDOW + GRACE)
    whole = series(
        [(hour * HOUR, 0, n1, x1 + after[0], n0, x0 + after[1]) for hour in range(hours)]
    )
    long = Companion(window_seconds=LONG, cells=whole.target)
    (seen,) = evaluate([replace(own, companions={LONG_WINDOW: long}) if is_read else own])
    return seen


def plain(hours: int, x1: int, after1: int, x0: int, after0: int) -> float:
    n1, n0 = x1 + after1, x0 + after0
    n, m = n1 + n0, after1 + after0
    S = hours * (after1 * n0 - after0 * n1) / n
    V = hours * n1 * n0 / n * m * (n - m) / (n * (n - 1))
    parts = [math.sqrt(r / (r + V)) * math.exp(S * S / (2 * (r + V))) for r in (25.0, 4.0)]
    return sum(parts) / 2


def test_a_harm_of_an_arm_that_converts_later_is_no_answer(series: Maker) -> None:
    # No test fires before the first long window has passed.
    asked, unasked = (
        seen_of(series, LESS, (80, 0), alpha=1e-4, is_read=read) for read in (True, False)
    )
    assert unasked.decision.verdict == "rollback"
    assert unasked.gates.after_window_e is None
    assert asked.decision.verdict == "abstain"
    assert asked.decision.abstain_reason == "interacting"
    assert asked.gates.interacting_because == ("after_window",)
    # Of four hours two have closed within four windows.
    assert asked.gates.after_window_e == pytest.approx(plain(2, 320, 80, 400, 0), rel=1e-9)


@pytest.mark.parametrize(
    ("cell", "after", "better", "verdict"),
    [
        (LESS, (0, 80), "higher", "rollback"),
        (MORE, (80, 0), "higher", "keep"),
        (MORE, (0, 80), "higher", "abstain"),
        (LESS, (80, 0), "lower", "abstain"),
        (LESS, (0, 80), "lower", "keep"),
    ],
)
def test_it_holds_back_an_answer_that_it_explains_alone(
    cell: tuple[int, int, int, int],
    after: tuple[int, int],
    better: str,
    verdict: str,
    series: Maker,
) -> None:
    seen = seen_of(series, cell, after, better=better, alpha=1e-4)
    assert seen.decision.verdict == verdict
    assert (seen.gates.interacting_because == ("after_window",)) == (verdict == "abstain")
    assert seen.gates.after_window_e is not None
    assert seen.gates.after_window_e > 100


def test_what_has_not_closed_within_four_windows_does_not_count(series: Maker) -> None:
    closes = 300 + LONG + GRACE
    before, then = (
        seen_of(series, LESS, (80, 0), alpha=1e-200, as_of=as_of) for as_of in (closes - 1, None)
    )
    assert before.gates.after_window_e == 1.0
    # At the look of the fourth hour's block that of the third is still open.
    assert then.as_of == 3 * 3600 + 300 + WINDOW + GRACE
    assert then.gates.after_window_e == pytest.approx(plain(2, 320, 80, 400, 0), rel=1e-9)


def test_it_is_over_when_the_evidence_is(series: Maker) -> None:
    late = [(hour * HOUR, 0, *LESS) for hour in range(12)]
    own = series(late, policy=Policy(alpha=1e-200), as_of=60_000)
    # First treatment's outcomes are missed, then control's as often.
    whole = series(
        [
            (
                hour * HOUR,
                0,
                4000,
                320 + (80 if hour < 4 else 0),
                4000,
                400 + (0 if hour < 4 else 80),
            )
            for hour in range(12)
        ]
    )
    long = Companion(window_seconds=LONG, cells=whole.target)
    (seen,) = evaluate([replace(own, companions={LONG_WINDOW: long})])
    assert seen.looks.gated.any()
    assert not seen.looks.gated[-1]


def test_a_payment_that_the_long_window_counts_for_another_unit_is_not_missed(
    series: Maker,
) -> None:
    target = series([(0, 0, 10, 4, 10, 3), (0, 1, 10, 0, 10, 2), (1, 1, 10, 1, 10, 1)]).target
    long = series([(0, 0, 10, 5, 10, 2), (0, 1, 10, 3, 10, 2)]).target
    missed = missed_outcomes(target, long)
    assert missed.n1.tolist() == [5, 3]
    assert missed.x1.tolist() == [1, 3]
    assert missed.n0.tolist() == [3, 2]
    assert missed.x0.tolist() == [0, 0]
    with pytest.raises(ValueError, match="does not have"):
        missed_outcomes(long, target)
    assert missed_outcomes(long, replace(long, x1=np.array([5, 3]))).x1.tolist() == [0, 0]
