"""A gate: a test of whether the arms differ by more than the change.

A gate is one class in a file of this room, listed in `readings.py`: its statistic, its alarm, what
it holds back, and its words.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from domain.cause import Cause
from stats.counts.cell import Floats
from stats.counts.columns import Columns
from stats.looks.policy import Policy
from stats.looks.trace import StageLooks
from stats.sequential.mixture import e_value

ALARM = 100.0
Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Reading(Columns):
    """A gate's reading of an experiment, one entry a look.

    Attributes:
        statistic: The number that it judges by; NaN where it has no data.
        alarm: Whether that is more than chance explains.
    """

    statistic: Floats
    alarm: Flags


class Gate(ABC):
    """A test of whether the arms differ by more than the change.

    Attributes:
        cause: The word for the alarm where it makes an experiment `interacting`.
        member: The member of the evidence's gates that shows its number.
        is_sticky: Whether an alarm stays: the units that it spoilt stay in the sums, and only a new
            experiment helps.
        why: The alarm in a clause of the evidence's sentence.
    """

    cause: ClassVar[Cause | None] = None
    member: ClassVar[str]
    is_sticky: ClassVar[bool] = False
    why: ClassVar[str]

    @abstractmethod
    def readings(self, stages: Sequence[StageLooks]) -> Sequence[Reading]:
        """The readings of several experiments, each at all looks of a stage."""

    def spares(self, reading: Reading, policy: Policy) -> Flags:
        """At which looks a harm that the test shows is one, whatever the alarm says."""
        del policy
        return np.zeros_like(reading.alarm)

    def served(self, statistic: float) -> float | None:
        """The number as the evidence shows it: of the logarithm of an e-value the e-value."""
        return None if math.isnan(statistic) else float(e_value(np.array([statistic]))[0])


def evidence_reading(log_e: Floats, alarm_at: float = ALARM) -> Reading:
    """The reading of the logarithm of evidence, whose alarm is at a threshold."""
    return Reading(statistic=log_e, alarm=log_e >= math.log(alarm_at))


def no_reading(looks: StageLooks) -> Reading:
    """The reading where there is nothing to read."""
    size = len(looks.trace)
    return Reading(statistic=np.full(size, np.nan), alarm=np.zeros(size, dtype=np.bool_))
