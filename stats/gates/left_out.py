"""Left out: whether the outcomes that a mean leaves out are more often of one arm."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from domain.cause import Cause
from stats.counts.cell import Floats, Ints
from stats.counts.columns import Columns
from stats.counts.timeline import Stream, timeline
from stats.sequential.mixture import Mixture, e_value


@dataclass(frozen=True, kw_only=True)
class LeftOut(Columns):
    """The outcomes that are left out for one reason, one entry a look; counts are cumulative.

    Attributes:
        treatment: Outcomes of treatment's units.
        control: Outcomes of control's units.
        score: Above 0 where more of treatment's units had one.
        log_e: Logarithm of the evidence that one arm has more such units.
    """

    treatment: Ints
    control: Ints
    score: Floats
    log_e: Floats

    def at(self, look: int, *, reason: Cause) -> "LeftOutReading":
        """Those as of one look."""
        return LeftOutReading(
            reason=reason,
            control=int(self.control[look]),
            treatment=int(self.treatment[look]),
            e_value=float(e_value(self.log_e[[look]])[0]),
        )


@dataclass(frozen=True, kw_only=True)
class LeftOutReading:
    """The outcomes that are left out for one reason, as of one look.

    Attributes:
        control: Outcomes of control's units.
        treatment: Outcomes of treatment's units.
        e_value: The evidence that one arm has more units with such an outcome.
    """

    reason: Cause
    control: int
    treatment: int
    e_value: float


def left_out(read: Sequence[tuple[Stream, Ints, Mixture]]) -> list[LeftOut]:
    """The outcomes that are left out, at each look of some experiments.

    The test is that of rates: whether a unit had such an outcome. Of a cell's values each is the
    number of a unit's.

    Args:
        read: The cells of a reason, the looks and the test; many at once cost little more than
            one.
    """
    if not read:
        return []
    line = timeline([stream for stream, _, _ in read])
    counts = np.append(np.stack((line.y1, line.y0)), np.zeros((2, 1)), axis=1).astype(np.int64)
    every: list[LeftOut] = []
    for number, (_, at, mixture) in enumerate(read):
        rows = line.rows(number)
        closed = np.searchsorted(line.at[rows], at, side="right")
        row = np.where(closed > 0, rows.start + closed - 1, -1)
        totals, (treatment, control) = line.events.gathered(row), counts[:, row]
        every.append(
            LeftOut(
                treatment=treatment,
                control=control,
                score=totals.S,
                log_e=mixture.log_e(totals.S, totals.V0),
            )
        )
    return every
