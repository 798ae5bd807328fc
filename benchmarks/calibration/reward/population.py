"""A population of changes whose true effects are known, with their evidence.

Looks come every five minutes, as the service takes them; units swing by 60 % over the day, and
the rate by 50 % over the week.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from domain.metric import DAY, HOUR
from domain.policy import Numbers
from stats.counts.cell import Floats, Ints
from stats.counts.closed_cells import ClosedCells
from stats.decision.effect import Effect
from stats.decision.evidence import Evidence, evaluate
from stats.decision.follow_up import FollowUp, follow_up
from stats.looks.series import Series

BASE = 0.05
UNITS_A_DAY = 24_000
HELD_BACK, WEEK = 0.1, 7 * DAY
_BLOCK, _DAILY, _WEEKLY = 300, 0.6, 0.5
_AT_ONCE = 100

# Fleets of changes: relative effects.
FLEETS: Mapping[str, Callable[[np.random.Generator, int], Floats]] = {
    "N(0, 10 %)": lambda rng, n: rng.normal(0.0, 0.1, n),
    "t₂ × 5 %": lambda rng, n: np.clip(0.05 * rng.standard_t(2, n), -0.9, 2.0),
    "90 % null, else N(0, 15 %)": lambda rng, n: np.where(
        rng.random(n) < 0.1, rng.normal(0.0, 0.15, n), 0.0
    ),
    "all null": lambda _, n: np.zeros(n),
    "all +2 %": lambda _, n: np.full(n, 0.02),
    "80 % harmful": lambda rng, n: np.where(
        rng.random(n) < 0.8, -np.abs(rng.normal(0.0, 0.08, n)), np.abs(rng.normal(0.0, 0.05, n))
    ),
}


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of the population, with effects relative to control's rate.

    Attributes:
        truth: Its true effect, relative.
        first: The effect at its first look.
        evidence: At its end: the look that decided, or the last look of the horizon.
        after: The week with a hold-back after a verdict; None where there was none.
    """

    truth: float
    first: Effect | None
    evidence: Evidence
    after: FollowUp | None

    @property
    def lift(self) -> float | None:
        """The contract's lift, relative: none of an abstention."""
        lift, control = self.evidence.decision.lift, self.evidence.arms.control.rate
        return None if lift is None or not control else lift / control

    @property
    def effect(self) -> float:
        """The effect at the look of the evidence, relative."""
        return relative(self.evidence.effect) or 0.0

    @property
    def served(self) -> float:
        """The effect once it is final, relative."""
        after = None if self.after is None else relative(self.after.effect)
        return self.effect if after is None else after


def relative(effect: Effect | None) -> float | None:
    """The relative effect, where there is one."""
    return None if effect is None else effect.posterior.relative


def drawn(
    number: int,
    truth: float,
    policy: Numbers,
    *,
    days: int,
    decided_at: int | None = None,
    per_day: int = UNITS_A_DAY,
    base: float | None = None,
) -> Series:
    """A canary at one half; from the decision on a tenth of other units is held back.

    Args:
        base: A rate that does not swing over the week; None for the usual rate, which does.
    """
    at = np.arange(days * DAY // _BLOCK) * _BLOCK
    units = per_day * _BLOCK / DAY * (1 + _DAILY * np.sin(2 * np.pi * at / DAY))
    rate = BASE * (1 + _WEEKLY * np.sin(2 * np.pi * at / (7 * DAY)))
    rate = rate if base is None else np.full(at.size, base)
    counts: list[Ints] = []
    for seed, share in ((number, 0.5), (10**9 + number, 1 - HELD_BACK)):
        generator = np.random.default_rng(seed)
        arrived = generator.poisson(units)
        n1 = generator.binomial(arrived, share)
        n0 = arrived - n1
        x1 = generator.binomial(n1, np.clip(rate * (1 + truth), 0.0, 1.0))
        counts.append(np.array([n1, x1, n0, generator.binomial(n0, rate)]))
    return _series(at, counts, policy, days=days, decided_at=decided_at)


def hourly(
    counts: Sequence[Ints], policy: Numbers, *, days: int, decided_at: int | None = None
) -> Series:
    """An hourly canary of some days.

    Args:
        counts: n1, x1, n0 and x0 by the hour, up to the decision and from it on.
        policy: Of the experiment.
        days: How many there are.
        decided_at: When it was decided; None where it never was.
    """
    at = np.arange(days * 24) * HOUR
    return _series(at, counts, policy, days=days, decided_at=decided_at)


def _series(
    at: Ints, counts: Sequence[Ints], policy: Numbers, *, days: int, decided_at: int | None
) -> Series:
    before = at < (days * DAY if decided_at is None else decided_at)
    n1, x1, n0, x0 = np.where(before, *counts)
    return Series(
        policy=policy,
        start=0,
        as_of=(days + 2) * DAY,
        closed_at=None,
        cuts=() if decided_at is None else (decided_at,),
        target=ClosedCells(block=at, stratum=np.zeros_like(at), n1=n1, x1=x1, n0=n0, x0=x0),
    )


def followed(number: int, truth: float, policy: Numbers, *, decided_at: int) -> FollowUp:
    """A week after the decision, in which a tenth of the units keeps the old build."""
    begin = -(-decided_at // _BLOCK) * _BLOCK
    days = -(-(begin + WEEK) // DAY)
    longer = structs.replace(policy, horizon_seconds=days * DAY)
    series = drawn(number, truth, longer, days=days, decided_at=begin)
    return follow_up(series, begin=begin, end=begin + WEEK)


def population(
    truths: Floats, policy: Numbers, *, seed: int, follow: bool = False
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
    numbered = list(enumerate(truths.tolist(), start=seed))
    for begin in range(0, len(numbered), _AT_ONCE):
        part = numbered[begin : begin + _AT_ONCE]
        series = [drawn(number, truth, policy, days=days) for number, truth in part]
        early = [replace(each, as_of=HOUR) for each in series]
        for (number, truth), first, evidence in zip(
            part, evaluate(early), evaluate(series), strict=True
        ):
            after = None
            if follow and evidence.decision.verdict in ("keep", "rollback"):
                assert evidence.decision.at is not None
                after = followed(number, truth, policy, decided_at=evidence.decision.at)
            changes.append(Change(truth=truth, first=first.effect, evidence=evidence, after=after))
    return changes
