"""Changes that the service decides: what its numbers say of their true effects."""

import numpy as np
import pytest

from benchmarks.calibration.reward.reading import Reading
from benchmarks.calibration.reward.service import SPREAD, Change, of


@pytest.mark.parametrize(
    ("rounds", "count", "units"),
    [
        pytest.param(1, 8, 20, id="small", marks=pytest.mark.nightly),
        pytest.param(
            10, 100, 50, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(7200)]
        ),
    ],
)
def test_a_unit_of_the_served_effect_is_a_unit_of_truth(story, rounds, count, units) -> None:
    limits = {"per_key": 10**9, "registrations_per_key": 10**6}
    story.settings(rate_limits=limits)
    generator = np.random.default_rng(1116)
    changes: list[Change] = []
    for _ in range(rounds):
        changes += of(story, generator.normal(0.0, SPREAD, count).tolist(), units, generator)
    assert {change.basis for change in changes} >= {"open", "at_reward"}
    assert sum(change.covered for change in changes) >= 0.95 * len(changes) - 1
    if rounds > 1:
        effect = Reading.of((change.last, change.truth) for change in changes)
        lift = Reading.of((change.lift, change.truth) for change in changes)
        print(effect.row("effect as served at last"), lift.row("the contract's lift"))  # noqa: T201
        assert abs(effect.slope - 1) < max(0.1, 4 * effect.error)
        assert lift.slope < effect.slope
