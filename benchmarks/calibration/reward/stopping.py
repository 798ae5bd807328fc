"""Agents that stop their changes at a moment of their choice, and the numbers to train on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.calibration.reward.population import UNITS_A_DAY, drawn
from domain.evidence.effect import PRECISE
from domain.metric import DAY, HOUR
from domain.policy import EFFECT_PRIOR, Numbers
from stats.counts.cell import Floats
from stats.decision.effect import effect_at
from stats.decision.evidence import evaluate
from stats.decision.learned import learned_effect
from stats.decision.learned_prior import learned_prior
from stats.looks.stratification import stratified
from stats.looks.trace import Batch, traced

DAYS, LEARNED_FROM = 7, 300
POLICY = Numbers(horizon_seconds=DAYS * DAY)
# Agents look most often in the first days.
_HOURS = (*range(2, 12), *range(12, 48, 3), *range(48, 24 * DAYS, 12))


@dataclass(frozen=True, kw_only=True)
class Number:
    """The numbers that a change serves at a moment: the posterior mean, and the likelihood."""

    at: int
    relative: float
    observed: float
    error: float


@dataclass(frozen=True, kw_only=True)
class Life:
    """A change, by the looks at which its agent reads it.

    Attributes:
        answer: At the look that decided; None of an abstention.
        numbers: At the looks of the agent, at last that of the seventh day.
    """

    truth: float
    answer: Number | None
    numbers: Sequence[Number]


def lives(truths: Floats, *, seed: int, per_day: int = UNITS_A_DAY) -> Iterator[Life]:
    """Yields changes of true effects."""
    for number, truth in enumerate(truths.tolist(), start=seed):
        series = drawn(number, truth, POLICY, days=DAYS, per_day=per_day)
        batch, decision = traced([stratified(series)]), evaluate([series])[0].decision

        def read(at: int, batch: Batch = batch) -> Number:
            row = max(int(np.searchsorted(batch.trace.at, at, side="right")) - 1, 0)
            effect = effect_at(batch, row, POLICY, is_rate=True, interval=(0.0, 0.0))
            if effect is None:
                return Number(at=at, relative=0.0, observed=0.0, error=1.0)
            known = effect.posterior
            return Number(
                at=at,
                relative=known.relative or 0.0,
                observed=known.observed,
                error=known.observed_error,
            )

        answered = decision.verdict in ("keep", "rollback") and decision.at is not None
        yield Life(
            truth=truth,
            answer=read(decision.at or 0) if answered else None,
            numbers=[read(hour * HOUR) for hour in (*_HOURS, 24 * (DAYS + 1))],
        )


def _stopped(
    life: Life, stops: Callable[[float], bool], *, acts: bool = False, holds: bool = False
) -> Number:
    """Returns the numbers at the first look that pleases an agent, else those of the last.

    Args:
        acts: Whether it acts on a verdict at once, so that nothing is compared afterwards.
        holds: Whether nothing but that stops it.
    """
    for number in life.numbers[:-1]:
        if acts and life.answer is not None and number.at >= life.answer.at:
            return life.answer
        if not holds and stops(number.relative):
            return number
    return life.answer if acts and life.answer is not None else life.numbers[-1]


def _stopping(
    reaches: float, *, gives_back: bool = False, both: bool = False
) -> Callable[..., Number]:
    def stop(life: Life) -> Number:
        return _stopped(life, stops, acts=both)

    def stops(relative: float) -> bool:
        return (not gives_back and relative >= reaches) or (
            (gives_back or both) and relative <= -reaches
        )

    return stop


AGENTS: Mapping[str, Callable[[Life], Number]] = {
    "holds each to `reward_at`": lambda life: life.numbers[-1],
    "acts on each verdict at once": lambda life: _stopped(life, bool, acts=True, holds=True),
    "stops at +1 %": _stopping(0.01),
    "stops at +3 %": _stopping(0.03),
    "gives back at −1 %": _stopping(0.01, gives_back=True),
    "gives back at −3 %": _stopping(0.03, gives_back=True),
    "stops at ±1 %, acts": _stopping(0.01, both=True),
    "stops at ±3 %, acts": _stopping(0.03, both=True),
}


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Changes of a fleet as an agent stopped them.

    Attributes:
        served: The posterior means by the fixed prior.
        learned: Those by the prior that 300 others of the fleet taught.
        precise: Whether the served effect is trainable.
    """

    truth: Floats
    served: Floats
    learned: Floats
    precise: np.ndarray[tuple[int], np.dtype[np.bool_]]

    @classmethod
    def of(cls, fleet: Sequence[Life], agent: Callable[[Life], Number]) -> "Trained":
        """Each 300 changes teach the prior of the 300 after them, the last that of the first."""
        numbers = [agent(life) for life in fleet]
        likelihoods = [(number.observed, number.error) for number in numbers]
        parts = [
            likelihoods[begin : begin + LEARNED_FROM]
            for begin in range(0, len(fleet), LEARNED_FROM)
        ]
        priors = [learned_prior(part, EFFECT_PRIOR) for part in parts]
        learned = [
            learned_effect(observed, error, priors[place - 1])[0]
            for place, part in enumerate(parts)
            for observed, error in part
        ]
        # Relative to both arms; of control's rate at a share of one half:
        means = np.array(learned) / (1 - np.array(learned) / 2)
        return cls(
            truth=np.array([life.truth for life in fleet]),
            served=np.array([number.relative for number in numbers]),
            learned=means,
            precise=np.array([number.error for number in numbers]) <= PRECISE,
        )
