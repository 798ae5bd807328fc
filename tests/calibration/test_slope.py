"""A thousand changes with effects from N(0, 10 %): what each served number says of the truth."""

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.calibration.reward.population import Change, population
from benchmarks.calibration.reward.reading import Reading
from benchmarks.calibration.reward.served import (
    DEFAULT,
    INTERVALS,
    KNOWN,
    NUMBERS,
    coverage,
    truths,
)


def readings_of(name: str, changes: Sequence[Change]) -> dict[str, Reading]:
    readings = {
        number: Reading.of((read(change), change.truth) for change in changes)
        for number, read in NUMBERS.items()
    }
    verdicts = [change.evidence.decision.verdict for change in changes]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in ("keep", "rollback", "abstain"))
    print(f"{name}: {len(changes)} changes, {counts}")  # noqa: T201
    for number, each in readings.items():
        print(each.row(number))  # noqa: T201
    for number, read in INTERVALS.items():
        held, count = coverage(changes, read)
        print(f"| interval {number} | {held} of {count} |")  # noqa: T201
    return readings


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(150, id="small"),
        pytest.param(4000, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(7200)]),
    ],
)
def test_where_the_settings_know_the_fleet_a_unit_of_effect_is_a_unit_of_truth(count: int) -> None:
    changes = population(truths(count), KNOWN, seed=1, follow=True)
    readings = readings_of("expects 10 %", changes)
    lift, effect = (
        readings[name] for name in ("contract's lift", "effect, open or at the decision")
    )
    assert abs(effect.slope - 1) < max(0.05, 4 * effect.error)
    assert lift.slope < effect.slope
    assert effect.rmse < lift.rmse
    for read in INTERVALS.values():
        held, of = coverage(changes, read)
        assert held >= 0.95 * of - 4 * np.sqrt(0.05 * 0.95 * of)


@pytest.mark.calibration
@pytest.mark.timeout(7200)
def test_by_default_it_expects_larger_effects_and_shrinks_too_little() -> None:
    changes = population(truths(4000), DEFAULT, seed=10**6, follow=True)
    readings = readings_of("expects 20 and 50 %, the default", changes)
    effect = readings["effect, open or at the decision"]
    assert readings["contract's lift"].slope < effect.slope < 1
    for read in INTERVALS.values():
        held, of = coverage(changes, read)
        assert held >= 0.95 * of - 4 * np.sqrt(0.05 * 0.95 * of)
