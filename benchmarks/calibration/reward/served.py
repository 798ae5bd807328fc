"""The numbers and intervals that are served of a change, and the fleet that they are read on."""

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.calibration.reward.population import BASE, Change
from stats.counts.cell import Floats
from stats.looks.policy import DAY, Policy

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


def truths(count: int) -> Floats:
    return np.random.default_rng(16).normal(0.0, SPREAD, count)
