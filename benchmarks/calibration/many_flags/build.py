"""Flags: many at once in a single build, independent of each other or not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from domain.metric import DAY
from domain.policy import SPLIT_AT, Numbers
from stats.counts.closed_cells import ClosedCells
from stats.counts.traits import Traits
from stats.decision.evidence import Evidence, evaluate
from stats.looks.series import Series

BLOCK = 300
DELAY = 1920
Carried = NDArray[np.bool_]
Draw = Callable[[np.random.Generator, int], Carried]


def independent(flags: int, *, share: float = 0.5) -> Draw:
    """Each flag on for a share of the units, whatever the others are."""
    return lambda rng, units: rng.random((units, flags)) < share


def on_one_hash(rng: np.random.Generator, units: int) -> Carried:
    """Two flags that are always on together."""
    own = rng.random((units, 1)) < 0.5
    return np.hstack((own, own))


def in_one_layer(rng: np.random.Generator, units: int) -> Carried:
    """Two flags of a quarter each, never on together."""
    place = rng.random(units)
    return np.stack((place < 0.25, (place >= 0.25) & (place < 0.5)), axis=1)


def correlated(rng: np.random.Generator, units: int) -> Carried:
    """Two flags that agree on 80 % of the units."""
    own = rng.random(units) < 0.5
    return np.stack((own, own ^ (rng.random(units) < 0.2)), axis=1)


def leaning(flags: int, *, treated: float = 0.52) -> Draw:
    """The flag under test, and others that are on a little more often where it is."""

    def drawn(rng: np.random.Generator, units: int) -> Carried:
        own = rng.random((units, 1)) < 0.5
        on = rng.random((units, flags)) < np.where(own, treated, 1 - treated)
        return np.hstack((own, on))

    return drawn


@dataclass(frozen=True, kw_only=True)
class Build:
    """A build with flags, of which each multiplies the rate of the units that carry it.

    Attributes:
        draw: Which units carry which flags.
        lifts: The relative lift of each flag.
        units: How many units a day.
        days: How long.
        rate: The rate of a unit without any flag.
        verified: Whether the published draw gives the flags, so that none splits the strata.
    """

    draw: Draw
    lifts: tuple[float, ...]
    units: int = 24_000
    days: int = 1
    rate: float = 0.05
    verified: bool = False

    def series(self, rng: np.random.Generator, *flags: int) -> Iterator[Series]:
        """Day after day of some flags' experiments, of the same units."""
        units = self.units * self.days
        carried = self.draw(rng, units)
        block = np.sort(rng.integers(0, self.days * DAY // BLOCK, units)) * BLOCK
        rate = self.rate * np.prod(1 + carried * np.array(self.lifts), axis=1)
        converted = rng.random(units) < rate
        for flag in flags:
            yield self._series(flag, carried, block, converted)

    def evidence(self, rng: np.random.Generator, *flags: int) -> list[Evidence]:
        """The evidence of some flags' experiments at the end."""
        return evaluate(list(self.series(rng, *flags)))

    def _series(
        self, flag: int, carried: Carried, block: NDArray[np.int64], converted: Carried
    ) -> Series:
        others = np.delete(carried, flag, axis=1).astype(np.int64) * (not self.verified)
        sets, stratum = np.unique(others, axis=0, return_inverse=True)
        keys, cell = np.unique(block * len(sets) + stratum.ravel(), return_inverse=True)
        treated = carried[:, flag]

        def counted(those: Carried) -> NDArray[np.int64]:
            return np.bincount(cell[those], minlength=keys.size).astype(np.int64)

        names = [f"flag {other}" for other in range(carried.shape[1]) if other != flag]
        return Series(
            policy=Numbers(split_at=SPLIT_AT),
            start=0,
            as_of=self.days * DAY + DELAY,
            closed_at=None,
            cuts=(),
            target=ClosedCells(
                block=keys // len(sets),
                stratum=keys % len(sets),
                n1=counted(treated),
                x1=counted(treated & converted),
                n0=counted(~treated),
                x0=counted(~treated & converted),
            ),
            traits=Traits(
                lineage=np.zeros(len(sets), dtype=np.int64),
                names=tuple(names),
                values=np.ascontiguousarray(sets.T),
            ),
        )
