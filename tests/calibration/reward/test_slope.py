"""A thousand changes with effects from N(0, 10 %): what each served number says of the truth."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from stats.counts.cell import Floats
from stats.looks.policy import DAY, Policy
from tests.calibration.reward.population import BASE, Change, population
from tests.calibration.reward.reading import Reading

SPREAD = 0.1
DAYS = 14
# The lifts that the test expects, as the policy freezes them.
DEFAULT = Policy(horizon_seconds=DAYS * DAY)
KNOWN = Policy(horizon_seconds=DAYS * DAY, rho_day=1 / SPREAD**2, rho_fast=1 / SPREAD**2)

Number = Callable[[Change], float | None]
Interval = Callable[[Change], tuple[float, float] | None]


def decided(change: Change) -> bool:
    return change.evidence.decision.verdict in ("keep", "rollback")


def fresh(change: Change) -> float | None:
    after = change.after
    if after is None or not after.ended or after.stopped or after.lift is None:
        return None
    return after.lift / BASE


def served(change: Change) -> float:
    """The number of `GET …/effect` once all is over."""
    measured = fresh(change)
    return change.effect if measured is None else measured


NUMBERS: dict[str, Number] = {
    "contract's lift": lambda change: change.lift,
    "contract's lift, abstentions as 0": lambda change: change.lift or 0.0,
    "effect, open at the end": lambda change: None if decided(change) else change.effect,
    "effect, at the decision": lambda change: change.effect if decided(change) else None,
    "effect, open or at the decision": lambda change: change.effect,
    "effect, after the decision": fresh,
    "effect, as served at last": served,
}
INTERVALS: dict[str, Interval] = {
    "open at the end": lambda change: None if decided(change) else change.evidence.ci,
    "at the decision": lambda change: change.evidence.decision.ci,
    "after the decision": lambda change: None if change.after is None else change.after.interval,
}


def coverage(changes: Sequence[Change], interval: Interval) -> tuple[int, int]:
    """How many intervals hold the truth, of how many."""
    pairs = [(ends, each.truth * BASE) for each in changes if (ends := interval(each)) is not None]
    return sum(low <= truth <= high for (low, high), truth in pairs), len(pairs)


def told(name: str, changes: Sequence[Change]) -> dict[str, Reading]:
    readings = {
        number: Reading.of((read(change), change.truth) for change in changes)
        for number, read in NUMBERS.items()
    }
    verdicts = [change.evidence.decision.verdict for change in changes]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in ("keep", "rollback", "abstain"))
    print(f"{name}: {len(changes)} changes, {counts}")  # noqa: T201
    for number, one in readings.items():
        print(one.row(number))  # noqa: T201
    for number, read in INTERVALS.items():
        held, count = coverage(changes, read)
        print(f"| interval {number} | {held} of {count} |")  # noqa: T201
    return readings


def truths(count: int) -> Floats:
    return np.random.default_rng(16).normal(0.0, SPREAD, count)


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(150, id="small"),
        pytest.param(4000, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(7200)]),
    ],
)
def test_where_the_settings_know_the_fleet_a_unit_of_effect_is_a_unit_of_truth(count: int) -> None:
    changes = population(truths(count), KNOWN, seed=1, follow=True)
    readings = told("expects 10 %", changes)
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
    readings = told("expects 20 and 50 %, the default", changes)
    effect = readings["effect, open or at the decision"]
    assert readings["contract's lift"].slope < effect.slope < 1
    for read in INTERVALS.values():
        held, of = coverage(changes, read)
        assert held >= 0.95 * of - 4 * np.sqrt(0.05 * 0.95 * of)
