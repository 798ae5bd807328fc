"""Splits: the flags whose values the arms share unequally, so that strata are split by them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from stats.counts.cell import Floats, Ints, terms
from stats.counts.traits import ABSENT, Traits, combined
from stats.looks.block import AnalysisBlocks
from stats.looks.series import Series
from stats.sequential.mixture import Mixture

MOST_SPLITS = 8
MOST_STRATA = 256
# From so much evidence of dependence on, a flag that does not split the strata confounds.
CONFOUNDED = 100.0
# A flag is ranked by the highest of these that its evidence has reached, then by when it did: a
# rank by the evidence itself would change at every closing where many flags depend on a hash.
_STEPS = np.log([10.0, 30.0, CONFOUNDED])
NEVER_CLOSED = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True)
class Splitting:
    """A time over which the strata are split by the same flags."""

    since: int
    flags: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Dependence:
    """How much evidence there is, over time, that the arms carry a flag's values unequally.

    Attributes:
        at: The closings of exposures, ascending.
        log_e: Array (flags, closings), the logarithm of the largest evidence so far of any value.
        classes: Array (flags, strata), the class of value that each of the finest strata carries.
        lineage: The code of each stratum's lineage; −1 where its units are excluded.
        since: The first closing that holds a unit of each stratum; `NEVER_CLOSED` where none does,
            or no flag asks.
    """

    at: Ints
    log_e: Floats
    classes: Ints
    lineage: Ints
    since: Ints
    threshold: float
    is_segment: tuple[bool, ...]

    def splittings(self) -> list[Splitting]:
        """The splittings, in turn; the first has no flag."""
        reached = self._reached()
        splittings = [Splitting(since=-NEVER_CLOSED, flags=())]
        closing, end = 0, self.at.size
        events = np.unique(reached[reached < end])
        while closing < end:
            flags, holds_until = self._chosen(reached, closing)
            if flags != splittings[-1].flags:
                splittings.append(Splitting(since=int(self.at[closing]), flags=flags))
            later = events[events > closing]
            closing = min(int(later[0]) if later.size else end, holds_until)
        return splittings

    def strata(self, flags: Sequence[int]) -> Ints:
        """The code of each of the finest strata where they are split by these flags alone."""
        codes = self.lineage
        for flag in flags:
            codes = combined(codes, self.classes[flag])
        return codes

    def _reached(self) -> Ints:
        """The closing at which each flag's evidence reached the threshold, and each step above."""
        steps = np.maximum(_STEPS, math.log(self.threshold))
        levels = np.concatenate(([math.log(self.threshold)], steps))
        return (
            np.stack([np.searchsorted(row, levels, side="left") for row in self.log_e])
            if len(self.log_e)
            else np.zeros((0, levels.size), dtype=np.int64)
        )

    def _chosen(self, reached: Ints, closing: int) -> tuple[tuple[int, ...], int]:
        """The flags that split at a closing, and up to which closing they do, unless more come."""
        chosen: list[int] = []
        holds_until = self.at.size
        for flag in _ranked(reached, closing):
            overflow = self._overflow((*chosen, flag))
            if overflow > closing:
                chosen.append(flag)
                holds_until = min(holds_until, overflow)
            if len(chosen) == MOST_SPLITS:
                break
        return tuple(sorted(chosen)), holds_until

    def _overflow(self, flags: Sequence[int]) -> int:
        """The closing from which on these flags would make more strata than there may be."""
        codes = self.strata(flags)
        kept = codes >= 0
        first = np.full(int(codes.max(initial=-1)) + 1, NEVER_CLOSED)
        np.minimum.at(first, codes[kept], self.since[kept])
        if first.size <= MOST_STRATA:
            return self.at.size
        return int(min(np.partition(first, MOST_STRATA)[MOST_STRATA], self.at.size))


def _ranked(reached: Ints, closing: int) -> list[int]:
    """The flags that ask to split the strata at a closing, the most dependent first."""
    levels = (reached <= closing).sum(axis=1)
    asking = np.flatnonzero(levels)
    when = reached[asking, levels[asking] - 1]
    return asking[np.lexsort((asking, when, -levels[asking]))].tolist()


def dependence(
    series: Series, traits: Traits, blocks: AnalysisBlocks, *, threshold: float
) -> Dependence:
    """The evidence that the arms carry the values of flags unequally.

    Its rules: docs/statistics.md, 'Many flags in a build'.

    The test of the target, with 'carries this value' as the outcome, on the exposed units of
    closed blocks: within the analysis blocks of each lineage. Outcomes never enter.
    """
    cells = series.first_closed
    closes_after = series.shortest_window + series.policy.grace_seconds
    ends = blocks.ends[
        : int(np.searchsorted(blocks.ends, series.as_of - closes_after, side="right"))
    ]
    lineage = kept_lineages(series, traits)
    if not traits.names:
        return Dependence(
            at=ends + closes_after,
            log_e=np.zeros((0, ends.size)),
            classes=traits.values,
            lineage=lineage,
            since=np.full(lineage.size, NEVER_CLOSED),
            threshold=threshold,
            is_segment=(),
        )
    first_block = _first(cells.block, cells.stratum, strata=traits.lineage.size)
    classes = traits.classes(first_block)
    own = lineage[cells.stratum]
    end = blocks.end_of(own, cells.block)
    closed = np.flatnonzero((own >= 0) & (end <= (ends[-1] if ends.size else -1)))
    row = np.searchsorted(ends, end[closed])
    stratum = cells.stratum[closed]
    log_e = np.zeros((len(traits.names), ends.size))
    counted = _CountedUnits.of(series, closed, row=row, lineage=own[closed], looks=ends.size)
    for flag in range(len(traits.names)):
        carried = classes[flag][stratum]
        for value in np.unique(carried[carried != ABSENT]).tolist():
            np.maximum(log_e[flag], counted.log_e(carried == value), out=log_e[flag])
    return Dependence(
        at=ends + closes_after,
        log_e=np.maximum.accumulate(log_e, axis=1),
        classes=classes,
        lineage=lineage,
        since=_first(row, stratum, strata=traits.lineage.size),
        threshold=threshold,
        is_segment=tuple(name in traits.segments for name in traits.names),
    )


def kept_lineages(series: Series, traits: Traits) -> Ints:
    """The code of each stratum's lineage; −1 of those that came after the first 256."""
    cells = series.first_closed
    first = _first(
        cells.block, traits.lineage[cells.stratum], strata=int(traits.lineage.max(initial=-1)) + 1
    )
    if first.size <= MOST_STRATA:
        return traits.lineage
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.lexsort((np.arange(first.size), first))] = np.arange(first.size)
    return np.where(rank[traits.lineage] < MOST_STRATA, traits.lineage, -1)


def _first(moment: Ints, stratum: Ints, *, strata: int) -> Ints:
    """The first moment of each stratum."""
    first = np.full(strata, NEVER_CLOSED)
    np.minimum.at(first, stratum, moment)
    return first


@dataclass(frozen=True, kw_only=True)
class _CountedUnits:
    """Units of closed analysis blocks, an entry a cell of the finest strata.

    Attributes:
        cell: The analysis block and lineage that each lies in, in order of closing.
        last: How many of them have closed, an entry a closing.
        mixture: Of the test, an entry a closing.
    """

    cell: Ints
    n1: Ints
    n0: Ints
    cells: int
    last: Ints
    mixture: Mixture

    @classmethod
    def of(cls, series: Series, closed: Ints, *, row: Ints, lineage: Ints, looks: int) -> Self:
        """The units of closed cells."""
        cells, lineages = series.first_closed, int(lineage.max(initial=0)) + 1
        keys, cell = np.unique(row * lineages + lineage, return_inverse=True)
        return cls(
            cell=cell,
            n1=cells.n1[closed],
            n0=cells.n0[closed],
            cells=keys.size,
            last=np.searchsorted(keys // lineages, np.arange(looks), "right"),
            mixture=Mixture(
                rho=np.tile(series.policy.rho, (looks, 1)), log_threshold=np.zeros(looks)
            ),
        )

    def log_e(self, carries: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Floats:
        """The logarithm of the evidence at each closing that the arms carry a value unequally."""
        parts = terms(
            self._summed(self.n1),
            self._summed(np.where(carries, self.n1, 0)),
            self._summed(self.n0),
            self._summed(np.where(carries, self.n0, 0)),
        )
        sums = np.concatenate((np.zeros((parts.shape[0], 1)), np.cumsum(parts, axis=1)), axis=1)
        return self.mixture.log_e(sums[0, self.last], sums[2, self.last])

    def _summed(self, units: Ints) -> Ints:
        return np.bincount(self.cell, weights=units, minlength=self.cells).astype(np.int64)
