"""A population of changes whose true effects are known, with their evidence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stats.counts.cell import Floats, Ints
from stats.counts.closed_cells import ClosedCells
from stats.decision.evidence import Evidence, evaluate
from stats.decision.follow_up import FollowUp, follow_up
from stats.looks.policy import DAY, HOUR, Policy
from stats.looks.series import Series

BASE = 0.05
UNITS_AN_HOUR = 1000
HELD_BACK, WEEK = 0.1, 7 * DAY


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of the population, with effects relative to control's true rate.

    Attributes:
        truth: Its true effect, relative.
        evidence: At its end: the look that decided, or the last look of the horizon.
        after: The week with a hold-back after a verdict; None where there was none.
    """

    truth: float
    evidence: Evidence
    after: FollowUp | None

    @property
    def lift(self) -> float | None:
        """The contract's lift, relative: none of an abstention."""
        lift = self.evidence.decision.lift
        return None if lift is None else lift / BASE

    @property
    def effect(self) -> float:
        """The shrunk effect at the look of the evidence, relative."""
        assert self.evidence.effect is not None
        return self.evidence.effect.estimate / BASE


def drawn(
    number: int, truth: float, policy: Policy, *, days: int, decided_at: int | None = None
) -> Series:
    """An hourly canary at one half; from the decision on a tenth of other units is held back."""
    at = np.arange(days * 24) * HOUR
    counts: list[Ints] = []
    for seed, share in ((number, 0.5), (10**9 + number, 1 - HELD_BACK)):
        generator = np.random.default_rng(seed)
        arrived = generator.poisson(UNITS_AN_HOUR, at.size)
        n1 = generator.binomial(arrived, share)
        n0 = arrived - n1
        x1, x0 = generator.binomial(n1, BASE * (1 + truth)), generator.binomial(n0, BASE)
        counts.append(np.array([n1, x1, n0, x0]))
    return hourly(counts, policy, days=days, decided_at=decided_at)


def hourly(
    counts: Sequence[Ints], policy: Policy, *, days: int, decided_at: int | None = None
) -> Series:
    """An hourly canary of some days.

    Args:
        counts: n1, x1, n0 and x0 by the hour, up to the decision and from it on.
        policy: Of the experiment.
        days: How many there are.
        decided_at: When it was decided; None where it never was.
    """
    at = np.arange(days * 24) * HOUR
    before = at < (days * DAY if decided_at is None else decided_at)
    n1, x1, n0, x0 = np.where(before, *counts)
    return Series(
        policy=policy,
        start=0,
        as_of=(days + 2) * DAY,
        closed_at=None,
        cuts=() if decided_at is None else (decided_at,),
        target=ClosedCells(
            block=at,
            stratum=np.zeros_like(at),
            n1=n1,
            x1=x1,
            n0=n0,
            x0=x0,
        ),
    )


def followed(number: int, truth: float, policy: Policy, *, decided_at: int) -> FollowUp:
    """A week after the decision, in which a tenth of the units keeps the old build."""
    begin = -(-decided_at // HOUR) * HOUR
    days = -(-(begin + WEEK) // DAY)
    longer = replace(policy, horizon_seconds=days * DAY)
    series = drawn(number, truth, longer, days=days, decided_at=begin)
    return follow_up(series, begin=begin, end=begin + WEEK)


def population(
    truths: Floats, policy: Policy, *, seed: int, follow: bool = False
) -> Sequence[Change]:
    """Each change of these true effects, at the end of its experiment.

    Args:
        truths: Relative effects.
        policy: Of every experiment.
        seed: Where the streams of the changes begin.
        follow: Whether a tenth of the units keeps the old build for a week after each verdict.
    """
    days = policy.horizon_seconds // DAY
    changes: list[Change] = []
    for number, truth in enumerate(truths.tolist(), start=seed):
        (evidence,) = evaluate([drawn(number, truth, policy, days=days)])
        after = None
        if follow and evidence.decision.verdict in ("keep", "rollback"):
            after = followed(number, truth, policy, decided_at=evidence.decision.at)
        changes.append(Change(truth=truth, evidence=evidence, after=after))
    return changes
