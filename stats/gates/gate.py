"""A gate: a test of whether the arms differ by more than the change.

A gate is a class in a file of this room, listed in `readings.py`: its statistic, its alarm, what
it holds back, and its words.
"""

import math
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from domain.cause import Cause, GateCheck
from domain.policy import Numbers
from stats.counts.cell import Floats, number_or_none
from stats.counts.columns import Columns
from stats.looks.series import Series
from stats.looks.trace import StageLooks
from stats.sequential.mixture import e_value

ALARM = 100.0
Flags = NDArray[np.bool_]
Units = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Reading(Columns):
    """A gate's reading of an experiment, an entry a look; `statistic` is NaN without data."""

    statistic: Floats
    alarm: Flags


class Gate(ABC):
    """A test of whether the arms differ by more than the change.

    Attributes:
        cause: The word for the alarm where it makes an experiment `interacting`.
        is_sticky: Whether an alarm stays: the units that it spoilt stay in the sums, and only a new
            experiment helps.
        title: Its finding where it does not alarm, as the head of its row.
    """

    cause: ClassVar[Cause | None] = None
    member: ClassVar[str]
    is_sticky: ClassVar[bool] = False
    title: ClassVar[str]
    why: ClassVar[str]
    step: ClassVar[str]

    def readings(self, stages: Sequence[StageLooks]) -> Sequence[Reading]:
        """The readings of several experiments, each at all looks of a stage."""
        return [self.reading(looks) for looks in stages]

    def reading(self, looks: StageLooks) -> Reading:
        """The reading of an experiment at all looks of a stage."""
        return no_reading(looks)

    def spares(self, reading: Reading, policy: Numbers) -> Flags:
        """At which looks a harm of the test is real, in spite of the alarm."""
        del policy
        return np.zeros_like(reading.alarm)

    def is_asked(self, series: Series) -> bool:
        """Whether it has anything to read of an experiment."""
        del series
        return True

    def text(self, value: float) -> str:
        """The number as people read it."""
        return f"e-value {value:.4g}"

    def detail(self, reading: Reading, look: int, units: Units) -> str | None:
        """The words that a row adds to the number, if any."""
        del reading, look, units

    def check(self, reading: Reading, look: int, *, holds: bool, units: Units) -> GateCheck:
        """The gate as of a look."""
        value = self.served(float(reading.statistic[look]))
        return GateCheck(
            name=self.title,
            state="fails" if holds else "not_known" if value is None else "holds",
            number=None if value is None else self.text(value),
            detail=self.detail(reading, look, units),
            cause=self.cause,
            step=self.step,
            stays=self.is_sticky,
        )

    def served(self, statistic: float) -> float | None:
        """The number as the evidence shows it: of the logarithm of an e-value the e-value."""
        is_e = not math.isnan(statistic) and self.member.endswith("_e")
        return number_or_none(float(e_value(np.array([statistic]))[0]) if is_e else statistic)


def evidence_reading(log_e: Floats, alarm_at: float = ALARM) -> Reading:
    """The reading of the logarithm of evidence, whose alarm is at a threshold."""
    return Reading(statistic=log_e, alarm=log_e >= math.log(alarm_at))


def no_reading(looks: StageLooks) -> Reading:
    """The reading where there is nothing to read."""
    size = len(looks.trace)
    return Reading(statistic=np.full(size, np.nan), alarm=np.zeros(size, dtype=np.bool_))
