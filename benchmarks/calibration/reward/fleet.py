"""A fleet of changes, each judged with a hold-back after its keep, and without."""

from datetime import UTC, datetime

import numpy as np
from msgspec import structs

from benchmarks.calibration.reward.population import hourly
from domain.ledger.entry import Entry
from domain.metric import DAY
from domain.policy import Numbers
from stats.decision.evidence import evaluate
from stats.decision.follow_up import follow_up
from stats.looks.series import Series

UNITS_AN_HOUR, BASE, LIFT, DAYS = 400, 0.05, 0.01, 21
HORIZON = 10 * DAY


def drawn(
    number: int, lift: float, *, alpha: float = 0.05, decided_at: int | None = None
) -> Series:
    """An hourly canary at a half; from the decision on control keeps a tenth of other units."""
    counts = []
    for seed, share in ((number, 0.5), (10**6 + number, 0.9)):
        generator = np.random.default_rng(seed)
        n1 = generator.binomial(UNITS_AN_HOUR, share, size=DAYS * 24)
        n0 = UNITS_AN_HOUR - n1
        x1, x0 = generator.binomial(n1, BASE + lift), generator.binomial(n0, BASE)
        counts.append(np.array([n1, x1, n0, x0]))
    policy = Numbers(alpha=alpha, horizon_seconds=HORIZON)
    return hourly(counts, policy, days=DAYS, decided_at=decided_at)


def judged(number: int, lift: float, alpha: float) -> tuple[Entry, Entry]:
    """A change of the fleet: without a hold-back after its keep, and with a hold-back of a week."""
    (seen,) = evaluate([drawn(number, lift, alpha=alpha)])
    decision, log_e = seen.decision, seen.log_e
    alone = Entry(
        treatment_commit=None,
        title=None,
        experiment_id=str(number),
        metric="order",
        actor=None,
        verdict=decision.verdict,
        at=datetime.fromtimestamp(decision.at or 0, UTC),
        level=alpha,
        log_e=log_e if decision.verdict == "keep" else None,
        followed=None,
        claimed=None,
        at_decision=None,
        after_decision=None,
        measured_error=None,
        harm=None,
        no_effect=None,
        asked_at=datetime.fromtimestamp(0, UTC),
        decided=True,
        changes=1,
        outcome=None,
        units=None,
    )
    if decision.verdict != "keep":
        return alone, alone
    begin = -(-decision.at // 3600) * 3600
    fresh = drawn(number, lift, alpha=alpha, decided_at=begin)
    result = follow_up(fresh, begin=begin, end=begin + 7 * DAY)
    assert result.ended
    return alone, structs.replace(alone, log_e=result.log_e, followed="final")
