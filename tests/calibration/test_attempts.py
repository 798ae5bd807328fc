"""Calibration of attempts: a change without effect that is tried again and again."""

from typing import Any

import pytest

from benchmarks.calibration.attempts.late import Choices, kept_late, metrics, sets_of_routes
from benchmarks.calibration.attempts.tries import kept_at_last
from benchmarks.calibration.proportion import Proportion, bounds


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(40, id="small"),
        pytest.param(1000, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(3600)]),
    ],
)
def test_a_change_without_effect_that_is_tried_twenty_times_is_seldom_kept(count: int) -> None:
    shares: dict[str, Any] = {}
    kinds = [("attempts", True, 0.05), ("each as the first", False, None)]
    # Few draws cannot separate that share from the claim.
    for name, counted, claim in kinds if count >= 1000 else kinds[:1]:
        hits = kept_at_last(count, counted=counted)
        seen = Proportion(name=f"20 tries, {name}: kept", hits=hits, count=count, at_most=claim)
        print(seen.row())  # noqa: T201 - the figures that `pytest -s` shows
        shares[name] = bounds(hits, count)
    assert shares["attempts"][0] <= 0.05
    if count >= 1000:
        # The simulation would notice attempts that are not counted.
        assert shares["each as the first"][0] > 0.05


@pytest.mark.parametrize("choices", [metrics(20), sets_of_routes], ids=["metrics", "routes"])
def test_the_best_of_many_on_the_third_day_is_seldom_kept(choices: Choices) -> None:
    late, early = (
        kept_late(choices, 40, with_past=past, seed=20_261_302) for past in (False, True)
    )
    print(f"of 40 changes without effect {late} are kept, with their past {early}")  # noqa: T201
    assert bounds(late, 40)[0] <= 0.05 < bounds(early, 40)[1]
