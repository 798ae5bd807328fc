"""A fleet of which a tenth of the changes has an effect: how many keeps stand, and are false."""

import numpy as np
import pytest

from benchmarks.calibration.reward.fleet import LIFT, judged
from domain.ledger.standing import standing
from domain.metric import DAY


@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(200, id="small", marks=pytest.mark.nightly),
        # Thirty days of two hundred changes.
        pytest.param(6_000, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(3600)]),
    ],
)
def test_of_the_keeps_that_stand_few_are_false_and_at_0_05_few_stand_without_a_hold_back(
    count, alpha
) -> None:
    real = np.random.default_rng(16).random(count) < 0.1
    pairs = [judged(number, LIFT if real[number] else 0.0, alpha) for number in range(count)]
    keeps = [number for number in range(count) if pairs[number][0].verdict == "keep"]
    stands: list[tuple[int, int]] = []
    for name, entries in zip(("alone", "with a hold-back"), zip(*pairs, strict=True), strict=True):
        stood = [int(key) for key, answer in standing(entries).items() if answer == "yes"]
        false = sum(not real[number] for number in stood)
        stands.append((len(stood), false))
        print(f"{name}: {len(stood)} of {len(keeps)} keeps stand, {false} of them false")  # noqa: T201
    false_keeps = sum(not real[number] for number in keeps)
    days = [pairs[number][0].at.timestamp() / DAY for number in keeps if real[number]]
    print(  # noqa: T201
        f"alpha {alpha}: {count} changes, {real.sum()} real: {len(keeps)} keeps, {false_keeps}"
        f" false; {len(days)} of the real ones kept, in {np.median(days):.2f} days (median),"
        f" {np.quantile(days, 0.9):.2f} (nine in ten)"
    )
    (alone, _), (held, false) = stands
    assert false <= max(2, 0.1 * held)
    assert held > 0.5 * (len(keeps) - false_keeps)
    # Where a tenth is real, e-values of 100 stand by themselves, and those of 20 do not.
    assert alone < held if alpha == 0.05 else alone <= held
    half = alpha / 2 * count
    assert false_keeps <= half + 3 * np.sqrt(half)
