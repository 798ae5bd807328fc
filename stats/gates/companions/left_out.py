"""Left out: whether outcomes that a metric leaves out are more often of an arm."""

from dataclasses import dataclass

from domain.cause import Cause
from domain.wording.left_out import CURES
from stats.counts.closed_cells import ClosedCells
from stats.gates.companions.companion import CompanionGate, CompanionReading, lone_outcomes
from stats.gates.gate import Reading
from stats.looks.series import Companion, Series


@dataclass(frozen=True, kw_only=True)
class LeftOutReading:
    """The outcomes that are left out for a given reason, as of a look."""

    reason: Cause
    control: int
    treatment: int
    e_value: float


class LeftOut(CompanionGate):
    """Outcomes are left out for a given reason, more of them in the arm with the lower rate.

    The test is that of rates: whether a unit had such an outcome. Of a cell's values each is the
    number of a unit's.
    """

    member = "left_out_e"

    def shown(self, reading: Reading, look: int) -> LeftOutReading | None:
        """The outcomes as of a look; None where they are not read."""
        e_value = self.served(float(reading.statistic[look]))
        if not isinstance(reading, CompanionReading) or self.cause is None or e_value is None:
            return None
        return LeftOutReading(
            reason=self.cause,
            control=int(reading.control[look]),
            treatment=int(reading.treatment[look]),
            e_value=e_value,
        )


class CurrencyLeftOut(LeftOut):
    """Payments in another currency than the metric's are left out."""

    cause = role = Cause.OTHER_CURRENCY
    title = "Other currencies are as frequent in both arms"
    why = "payments in another currency are left out, more of them in the arm with the lower mean"
    step = CURES[Cause.OTHER_CURRENCY]


class ValueLeftOut(LeftOut):
    """Events without a value are left out."""

    cause = role = Cause.NO_VALUE
    title = "Missing values are as frequent in both arms"
    why = "events without a value are left out, more of them in the arm with the lower mean"
    step = CURES[Cause.NO_VALUE]


class NotVouchedLeftOut(LeftOut):
    """Unsigned outcomes that came with the public key are left out where such may not count.

    Those of units that have a vouched outcome too are not lost. An answer that is the same with
    these outcomes counted is not held back.
    """

    cause = role = alone = Cause.NOT_VOUCHED
    title = "Unvouched outcomes are as frequent in both arms"
    why = "outcomes that nobody vouches for are left out, more of them in the arm that looks lower"
    step = CURES[Cause.NOT_VOUCHED]

    def uncounted(self, series: Series, companion: Companion) -> ClosedCells:
        """The units, and of them those whose only outcome nobody vouches for."""
        return lone_outcomes(series.target, companion.cells)


class EmptyLeftOut(LeftOut):
    """History does not know the outcome of a unit, which counts as none."""

    cause = role = Cause.EMPTY
    title = "Outcomes are known as often in both arms"
    why = "outcomes are empty in the history, more of them in the arm that looks lower"
    step = CURES[Cause.EMPTY]
