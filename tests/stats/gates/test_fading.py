"""Fading: a warning, never a gate."""

from collections.abc import Callable

import pytest

from stats.decision.evidence import Evidence, evaluate
from stats.looks.policy import Policy
from stats.looks.series import Series

Maker = Callable[..., Series]
DELAY = 1800 + 120
LIKE = (400, 44, 400, 40)
MUCH = (400, 80, 400, 40)


def seen_of(series: Maker, cells: list[tuple[int, int, int, int]], **policy: float) -> Evidence:
    rows = [(number, 0, *cell) for number, cell in enumerate(cells)]
    own = series(rows, policy=Policy(**policy), as_of=len(cells) * 300 + DELAY)  # pyright: ignore[reportArgumentType]
    (seen,) = evaluate([own])
    return seen


def test_a_gain_that_wears_off_carries_a_warning_and_keeps_its_answer(series: Maker) -> None:
    cells = [MUCH] * 2 + [LIKE] * 2
    asked, unasked = (
        seen_of(series, cells, **more) for more in ({"fading_at": 100.0}, dict[str, float]())
    )
    # Kept at an early look, at which nothing had worn off.
    assert asked.decision == unasked.decision
    assert asked.warnings == ()


def test_an_effect_that_turns_round_carries_a_warning(series: Maker) -> None:
    half = (4000, 400, 4000, 520)
    less = (4000, 520, 4000, 400)
    turned = [LIKE, less, half, LIKE]
    seen = seen_of(series, turned, fading_at=100.0, alpha=1e-9)
    assert seen.warnings == ("fading",)
    assert seen.decision == seen_of(series, turned, alpha=1e-9).decision


@pytest.mark.parametrize("cells", [[LIKE] * 6, [MUCH] * 6, [(9, 3, 9, 0)], [(0, 0, 50, 5)] * 3])
def test_an_effect_that_stays_carries_none(
    cells: list[tuple[int, int, int, int]], series: Maker
) -> None:
    assert seen_of(series, cells, fading_at=100.0, alpha=1e-9).warnings == ()
