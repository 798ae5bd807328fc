"""The numbers and intervals that are served of a change."""

from collections.abc import Callable, Sequence

from benchmarks.calibration.reward.population import Change, relative
from domain.metric import DAY
from domain.policy import Numbers

DAYS = 14
POLICY = Numbers(horizon_seconds=DAYS * DAY)

Number = Callable[[Change], float | None]
Interval = Callable[[Change], tuple[float, float] | None]


def decided(change: Change) -> bool:
    return change.evidence.decision.verdict in ("keep", "rollback")


NUMBERS: dict[str, Number] = {
    "contract's lift": lambda change: change.lift,
    "contract's lift, abstentions as 0": lambda change: change.lift or 0.0,
    "effect, in the first hour": lambda change: relative(change.first),
    "effect, at the decision": lambda change: change.effect if decided(change) else None,
    "effect, at reward_at": lambda change: change.served,
    "after the decision alone": lambda change: (
        None if change.after is None else change.after.relative
    ),
}
INTERVALS: dict[str, Interval] = {
    "open at the end": lambda change: None if decided(change) else change.evidence.totals.ci,
    "at the decision": lambda change: change.evidence.decision.ci,
    "after the decision": lambda change: None if change.after is None else change.after.interval,
}


def coverage(changes: Sequence[Change], interval: Interval) -> tuple[int, int]:
    """Returns the number of intervals that cover the truth, and of all intervals.

    The rate of control swings, so the true difference is that of its own level.
    """
    covering = count = 0
    for change in changes:
        ends, control = interval(change), change.evidence.arms.control.rate
        if ends is None or not control:
            continue
        count += 1
        covering += ends[0] <= change.truth * control <= ends[1]
    return covering, count
