"""Traits: the values of flags by which the finest strata of an experiment differ."""

from dataclasses import dataclass, field

import numpy as np

from stats.counts.cell import Ints

MOST_VALUES = 8  # of a flag; the rest is `OTHER`
OTHER = MOST_VALUES
ABSENT = -1


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Changes and flags that each stratum's units were served besides the change under test.

    Attributes:
        lineage: The code of the build's lineage, an entry a stratum.
        values: Array (flags, strata), codes of the flags' values, ascending with their text;
            `ABSENT` where the units carry none.
        segments: The names of those that are properties of units rather than flags: an effect may
            well differ between them.
        tested: Treatment's value of a flag under test.
        own_values: The others, where control is not named.
        own: Of each stratum the place among them; `ABSENT` of treatment, and of all others.

    Raises:
        ValueError: The arrays contradict each other.
    """

    lineage: Ints
    names: tuple[str, ...]
    values: Ints
    segments: frozenset[str] = frozenset()
    tested: str = ""
    own_values: tuple[str, ...] = ()
    own: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        expected = (len(self.names), self.lineage.size)
        if self.values.shape != expected:
            raise ValueError(f"values have the shape {self.values.shape}, but it is {expected}")

    def classes(self, first_seen: Ints) -> Ints:
        """The classes of each flag's values: the first values to come have a class of their own.

        Args:
            first_seen: When the first unit of each stratum came; `NEVER` where none did.

        Returns:
            Array (flags, strata): a class below `MOST_VALUES` for each of the first values to
            come, in the order of the values; `OTHER` for every later value; `ABSENT` where the
            units carry none.
        """
        grouped = np.full(self.values.shape, ABSENT)
        for row, values in zip(grouped, self.values, strict=True):
            codes, place = np.unique(values, return_inverse=True)
            seen = np.full(codes.size, np.iinfo(np.int64).max)
            np.minimum.at(seen, place, first_seen)
            valued = np.flatnonzero(codes != ABSENT)
            kept = np.sort(valued[np.lexsort((codes[valued], seen[valued]))][:MOST_VALUES])
            class_of = np.where(codes == ABSENT, ABSENT, OTHER)
            class_of[kept] = np.arange(kept.size)
            row[:] = class_of[place]
        return grouped


def combined(codes: Ints, classes: Ints) -> Ints:
    """The code of each pair of a code and a class; pairs ascend by code, then by class.

    Args:
        codes: Negative where there is no code: then there is none combined either.
        classes: As `Traits.classes` has them.
    """
    keys = codes * (OTHER + 2) + classes + 1
    kept = codes >= 0
    is_there = np.zeros(int(keys.max(initial=-1)) + 1, dtype=np.bool_)
    is_there[keys[kept]] = True
    rank = np.cumsum(is_there) - 1
    return np.where(kept, rank[np.where(kept, keys, 0)], -1)
