"""Fleets of changes with known effects: what the served effect says of the truth."""

import numpy as np
import pytest

from benchmarks.calibration.reward.agent import harvest
from benchmarks.calibration.reward.population import FLEETS, population
from benchmarks.calibration.reward.reading import Reading
from benchmarks.calibration.reward.served import INTERVALS, NUMBERS, POLICY, coverage
from tests.repetition import also_nightly

FULL = [pytest.mark.calibration, pytest.mark.timeout(7200)]


@pytest.mark.parametrize(
    ("fleet", "count"),
    [
        pytest.param("N(0, 10 %)", 100, id="small"),
        *(pytest.param(fleet, 2000, id=fleet, marks=FULL) for fleet in FLEETS),
    ],
)
@pytest.mark.nightly
def test_when_it_is_final_a_unit_of_the_effect_is_a_unit_of_truth(fleet, count) -> None:
    truths = FLEETS[fleet](np.random.default_rng(35), count)
    changes = population(truths, POLICY, seed=10**6, follow=True)
    lift, effect = (
        Reading.of((NUMBERS[name](change), change.truth) for change in changes)
        for name in ("contract's lift, abstentions as 0", "effect, at reward_at")
    )
    print(effect.row(fleet))  # noqa: T201
    assert effect.rmse < min(lift.rmse, 0.04)
    if truths.std() > 0:
        assert abs(effect.slope - 1) < 0.1 + 3 * effect.error
        assert lift.slope < effect.slope
    fresh = Reading.of(
        (NUMBERS["after the decision alone"](change), change.truth) for change in changes
    )
    assert abs(fresh.bias) < 3 * fresh.rmse / np.sqrt(fresh.count)
    for name in ("open at the end", "after the decision"):
        held, of = coverage(changes, INTERVALS[name])
        assert held >= 0.95 * of - 4 * np.sqrt(0.05 * 0.95 * of)


@pytest.mark.parametrize(
    "count", [pytest.param(25, id="small"), pytest.param(400, id="full", marks=FULL)]
)
@pytest.mark.parametrize("threshold", also_nightly([0.03], [0.01, 0.08]))
def test_an_agent_that_ends_its_changes_at_a_good_moment_gains_nothing_to_train_on(
    count, threshold
) -> None:
    got = harvest(count, threshold, seed=7 * 10**8)
    error = got.served.std() / np.sqrt(count)
    assert got.served.mean() <= 0.015 + 3 * error
    assert got.trainable.mean() <= 0.003 + 3 * error


def test_a_reading_of_no_change_is_a_dash() -> None:
    reading = Reading.of((None, truth) for truth in (0.1, -0.1))
    assert reading.cell() == "–, –"
    assert reading.row("a fleet") == "| a fleet | 0 | – | – | – |"
