"""Control's value of a flag whose registration names none: the only other value that is seen.

Its rule: docs/statistics.md, 'Control of a flag'. Outcomes never enter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from domain.evidence.results import FlagUnits
from stats.counts.cell import Ints
from stats.counts.traits import ABSENT, Traits
from stats.looks.series import Series

# A value of less than 1 % of the units is left out.
ONE_IN = 100
# A public key can invent values; so many may be control's at most.
MOST_SHOWN = 100
# Before every look.
FIRST = -(2**62)
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True, kw_only=True)
class ControlValues:
    """Units by the value of the flag under test, an entry a time at which some were known.

    Attributes:
        names: The others, in order.
        at: When the units are known, ascending.
        units: Array (values, times), units of each other value up to then.
    """

    tested: str
    names: tuple[str, ...]
    at: Ints
    treatment: Ints
    units: Ints

    @classmethod
    def of(cls, series: Series, traits: Traits) -> Self | None:
        """The values of an experiment in its finest strata; None where control is known."""
        if not traits.own_values:
            return None
        cells = series.first_closed
        block, place = np.unique(cells.block, return_inverse=True)
        units = np.zeros((len(traits.own_values), block.size), dtype=np.int64)
        own = traits.own[cells.stratum]
        other = np.flatnonzero(own != ABSENT)
        np.add.at(units, (own[other], place[other]), cells.n0[other])
        treated = np.bincount(place, weights=cells.n1, minlength=block.size)
        closes_after = series.shortest_window + series.policy.grace_seconds
        at = block + series.policy.block_seconds + closes_after
        known = int(np.searchsorted(at, series.as_of, side="right"))
        return cls(
            tested=traits.tested,
            names=traits.own_values,
            at=at[:known],
            treatment=np.cumsum(treated.astype(np.int64))[:known],
            units=np.cumsum(units, axis=1)[:, :known],
        )

    @property
    def rivals(self) -> Flags:
        """Array (values, times), whether each value may be control's by then."""
        return (self.units > 0) & (self.units * ONE_IN >= self.treatment + self.units.sum(axis=0))

    def counts(self, looks: Ints) -> Ints:
        """How many values may be control's at each look."""
        rivals = np.append(self.rivals.sum(axis=0), 0)
        return rivals[np.searchsorted(self.at, looks, side="right") - 1]

    def shown(self, look: int) -> tuple[FlagUnits, ...]:
        """The units by value as of a look, treatment's first."""
        at = int(np.searchsorted(self.at, look, side="right")) - 1
        if at < 0:
            return ()
        rivals = self.rivals[:, at]
        word = "control" if rivals.sum() == 1 else "unclear"
        others = (
            FlagUnits(value=name, units=units, taken_for=word if is_rival else "left_out")
            for name, units, is_rival in zip(
                self.names, self.units[:, at].tolist(), rivals.tolist(), strict=True
            )
            if units
        )
        treated = FlagUnits(value=self.tested, units=int(self.treatment[at]), taken_for="treatment")
        return treated, *sorted(others, key=lambda each: -each.units)[:MOST_SHOWN]

    def spans(self) -> Sequence[tuple[int, int]]:
        """Since when which value is compared with treatment, by its place; the first holds before.

        While several may be control's, no look answers, and the last value stays.
        """
        chosen = np.where(self.rivals.sum(axis=0) == 1, self.rivals.argmax(axis=0), ABSENT)
        some = np.flatnonzero(self.units.any(axis=0))
        # Until a single value is left, the most frequent of those that came first.
        first = int(self.units[:, some[0]].argmax()) if some.size else 0
        spans = [(FIRST, first)]
        for at, value in zip(self.at.tolist(), chosen.tolist(), strict=True):
            if value not in (ABSENT, spans[-1][1]):
                spans.append((at, value))
        return spans
