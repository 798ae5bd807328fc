"""Fading: a warning, never a gate."""

from collections.abc import Callable

import pytest

from domain.policy import Numbers
from stats.decision.evidence import Evidence, evaluate
from stats.looks.series import Series

Maker = Callable[..., Series]
DELAY = 1800 + 120
LIKE = (400, 44, 400, 40)
MUCH = (400, 80, 400, 40)


def seen_of(
    series: Maker, cells: list[tuple[int, int, int, int]], *, alpha: float = 1e-9
) -> Evidence:
    rows = [(number, 0, *cell) for number, cell in enumerate(cells)]
    own = series(rows, policy=Numbers(alpha=alpha), as_of=len(cells) * 300 + DELAY)
    (seen,) = evaluate([own])
    return seen


def test_a_gain_that_wears_off_after_it_was_kept_is_no_warning(series) -> None:
    seen = seen_of(series, [MUCH] * 2 + [LIKE] * 2, alpha=0.05)
    assert (seen.decision.verdict, seen.warnings) == ("keep", ())


def test_an_effect_that_turns_round_carries_a_warning(series) -> None:
    less, more = (4000, 520, 4000, 400), (4000, 400, 4000, 520)
    assert seen_of(series, [LIKE, less, more, LIKE]).warnings == ("fading",)


@pytest.mark.parametrize("cells", [[LIKE] * 6, [MUCH] * 6, [(9, 3, 9, 0)], [(0, 0, 50, 5)] * 3])
def test_an_effect_that_stays_carries_none(cells, series) -> None:
    assert seen_of(series, cells).warnings == ()
