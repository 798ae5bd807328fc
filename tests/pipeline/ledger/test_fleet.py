"""A fleet of which a tenth of the changes has an effect: how many keeps stand, and are false."""

from datetime import UTC, datetime

import numpy as np
import pytest
from msgspec import structs

from benchmarks.calibration.reward.population import hourly
from domain.ledger.entry import Entry
from domain.ledger.standing import standing
from stats.decision.evidence import evaluate
from stats.decision.follow_up import follow_up
from stats.looks.policy import DAY, Policy
from stats.looks.series import Series
from tests.repetition import also_nightly

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
    policy = Policy(alpha=alpha, horizon_seconds=HORIZON)
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
    )
    if decision.verdict != "keep":
        return alone, alone
    begin = -(-decision.at // 3600) * 3600
    fresh = drawn(number, lift, alpha=alpha, decided_at=begin)
    result = follow_up(fresh, begin=begin, end=begin + 7 * DAY)
    assert result.ended
    return alone, structs.replace(alone, log_e=result.log_e, followed="final")


@pytest.mark.parametrize("alpha", also_nightly([0.05], [0.01]))
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(200, id="small"),
        # Thirty days of two hundred changes.
        pytest.param(6_000, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(3600)]),
    ],
)
def test_of_the_keeps_that_stand_few_are_false_and_at_0_05_few_stand_without_a_hold_back(
    count: int, alpha: float
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
