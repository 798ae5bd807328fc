"""Calibration of attempts: a change without effect that is tried again and again."""

import pytest

from benchmarks.calibration.attempts.late import kept_late, metrics, sets_of_routes
from benchmarks.calibration.proportion import bounds


@pytest.mark.parametrize("choices", [metrics(20), sets_of_routes], ids=["metrics", "routes"])
@pytest.mark.nightly
def test_the_best_of_many_on_the_third_day_is_seldom_kept(choices) -> None:
    late, early = (
        kept_late(choices, 40, with_past=past, seed=20_261_302) for past in (False, True)
    )
    print(f"of 40 changes without effect {late} are kept, with their past {early}")  # noqa: T201
    assert bounds(late, 40)[0] <= 0.05 < bounds(early, 40)[1]
