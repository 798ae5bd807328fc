"""Analysis blocks: consecutive blocks of a stratum, joined until they hold enough units."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from domain.metric import DAY, HOUR
from stats.counts.cell import Ints
from stats.counts.finding import NEVER
from stats.looks.series import DRAWN, Series

UNDECLARED_SPAN = 6 * HOUR
STRATA_AT_ONCE = 256  # bounds the memory; results don't depend on it


@dataclass(frozen=True, kw_only=True)
class AnalysisBlocks:
    """The analysis blocks of an experiment that have ended; those without a unit are left out.

    Times are exposure times, whole seconds since the epoch.

    Attributes:
        stratum: The stratum of each analysis block, ascending.
        end: Its end, ascending within a stratum.
        ends: The moments up to which looks cover exposures: the distinct ends, each day from the
            start on in which no unit came, the contrast time after a deploy to all or none, and
            the end of the horizon; ascending.
        units_since: Where the oldest open analysis block begins that holds a unit; the end of the
            known blocks where none does.
        crowd_since: Where the oldest open analysis block begins that needs more units of any
            stratum to end; None while treatment's share is declared.
        ends_by: When the first open analysis block ends, or a day without a unit, or the contrast
            time, if no unit comes.
    """

    stratum: Ints
    end: Ints
    ends: Ints
    units_since: int
    crowd_since: int | None
    ends_by: int

    def end_of(self, stratum: Ints, block: Ints) -> Ints:
        """The end of each block's analysis block in its stratum; `NEVER` where that is open."""
        if not self.end.size:
            return np.full(block.shape, NEVER)
        before, last, keys = self._keys
        span = last - before + 1
        wanted = stratum * span + (np.minimum(np.maximum(block + 1, before), last) - before)
        row = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        end = self.end[row]
        return np.where((self.stratum[row] == stratum) & (end > block), end, NEVER)

    @cached_property
    def _keys(self) -> tuple[int, int, Ints]:
        """The moment before the first end, the last end, and stratum and end in a number each."""
        before, last = int(self.end.min()) - 1, int(self.end.max())
        return before, last, self.stratum * (last - before + 1) + (self.end - before)


def analysis_blocks(series: Series) -> AnalysisBlocks:
    """The analysis blocks of an experiment that have ended by `as_of`.

    Their rules: docs/statistics.md, 'Counts'.

    While treatment's share is declared in (0, 1), or the published draw gives it, an analysis block
    ends with the block in which its stratum reaches `block_min_units` units (both arms; outcomes
    never enter), or after a day.
    Otherwise the share may drift in phase with the baseline: it ends with the block in which its
    stratum reaches `undeclared_min_units`; or once an hour has passed and as many units came to
    all strata; or after six hours. A cut and the horizon end those of every stratum. Units are
    those of exposures, the same for each metric: they are read from the metric whose cells close
    first.
    """
    size, units = series.policy.block_seconds, _Units.of(series)
    rule = _Rule.of(series, units)
    chains = list(_chains(units, rule))
    # A stratum that no unit came to yet has an open analysis block, too.
    _, begin_without_units = _chain(rule.latest.tolist(), units.blocks)
    begins = np.array([begin_without_units, *(chain.open_from for chain in chains)])
    holding = [chain.open_from for chain in chains if chain.open_units]
    end = np.concatenate([np.empty(0, dtype=np.int64), *(chain.ends for chain in chains)])
    day = DAY // size
    over = series.contrast_ends
    to_come = [(units.blocks // day + 1) * day, *over[over > units.blocks].tolist()]
    return AnalysisBlocks(
        stratum=np.repeat(units.codes, [chain.ends.size for chain in chains]),
        end=series.begin + end * size,
        ends=series.begin + np.union1d(end, _ends_without_units(series, units)) * size,
        units_since=series.begin + min(holding, default=units.blocks) * size,
        crowd_since=None
        if rule.declared[-1]
        else series.begin + int(begins[~rule.crowded[begins]].min(initial=units.blocks)) * size,
        ends_by=series.begin + min(int(rule.latest[begins].min()), *to_come) * size,
    )


@dataclass(frozen=True, kw_only=True)
class _Units:
    """The units of the known blocks, counted from the first; `codes` are the strata, ascending."""

    blocks: int
    codes: Ints
    stratum: NDArray[np.intp]
    block: Ints
    count: Ints
    total: Ints

    @classmethod
    def of(cls, series: Series) -> Self:
        cells, size = series.first_closed, series.policy.block_seconds
        until = series.as_of - series.shortest_window - series.policy.grace_seconds
        blocks = max(0, (min(until, series.horizon_end) - series.begin) // size)
        known = slice(int(np.searchsorted(cells.block, series.begin + blocks * size)))
        codes, stratum = np.unique(cells.stratum[known], return_inverse=True)
        block = (cells.block[known] - series.begin) // size
        count = cells.n1[known] + cells.n0[known]
        total = np.zeros(blocks + 1, dtype=np.int64)
        np.add.at(total, block + 1, count)
        return cls(
            blocks=blocks,
            codes=codes,
            stratum=stratum,
            block=block,
            count=count,
            total=np.cumsum(total, out=total),
        )

    def before(self, first: int, stop: int) -> Ints:
        """Units of some strata before each block, and before the end: (strata, blocks + 1)."""
        came = np.zeros((min(stop, self.codes.size) - first, self.blocks + 1), dtype=np.int64)
        own = (self.stratum >= first) & (self.stratum < stop)
        came[self.stratum[own] - first, self.block[own] + 1] = self.count[own]
        return np.cumsum(came, axis=1, out=came)


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """When an analysis block ends that begins at a block, or at the end of the known ones."""

    declared: NDArray[np.bool_]
    enough: Ints
    crowded: NDArray[np.bool_]
    latest: Ints

    @classmethod
    def of(cls, series: Series, units: _Units) -> Self:
        policy, begin = series.policy, np.arange(units.blocks + 1)
        declared, forced = _declared(series, begin), _forced(series)
        few = policy.undeclared_min_units
        crowd = np.searchsorted(units.total, units.total + few)
        hour, span, day = (
            -(-seconds // policy.block_seconds) for seconds in (HOUR, UNDECLARED_SPAN, DAY)
        )
        drifting = np.minimum(begin + span, np.maximum(begin + hour, crowd))
        # An hour with too few units does not end it; more units or the longest span do.
        crowded = crowd <= units.blocks
        drifting = np.where(crowded, drifting, begin + span)
        latest = np.where(declared, begin + day, drifting)
        return cls(
            declared=declared,
            enough=np.where(declared, policy.block_min_units, few),
            crowded=crowded,
            latest=np.minimum(latest, forced[np.searchsorted(forced, begin, side="right")]),
        )


def _declared(series: Series, begin: Ints) -> NDArray[np.bool_]:
    """Whether treatment's share is declared in (0, 1) at each block; a change is a cut."""
    epochs = series.allocation or ()
    if series.counted(*DRAWN) and not epochs:
        # A flag that is drawn has the share of the draw at all times, and each unit is held to it.
        return np.ones(begin.size, dtype=np.bool_)
    since = [(epoch.start - series.begin) // series.policy.block_seconds for epoch in epochs]
    inside = [epoch.share is not None and 0 < epoch.share < 1 for epoch in epochs]
    return np.array([False, *inside])[
        np.searchsorted(np.array(since, dtype=np.int64), begin, "right")
    ]


def _forced(series: Series) -> Ints:
    """The blocks before which analysis blocks end in every stratum; the last is never reached."""
    declarations = () if series.allocation is None else (epoch.start for epoch in series.allocation)
    size = series.policy.block_seconds
    blocks = {(cut - series.begin) // size for cut in (*series.cuts, *declarations)}
    horizon = (series.horizon_end - series.begin) // size
    return np.array([*sorted(cut for cut in blocks if 0 < cut < horizon), horizon, NEVER])


@dataclass(frozen=True, kw_only=True)
class _Chain:
    """The analysis blocks of a stratum, in turn; the open block begins at `open_from`."""

    ends: Ints
    open_from: int
    open_units: int


def _chains(units: _Units, rule: _Rule) -> Iterator[_Chain]:
    width = units.blocks + 1
    for first in range(0, units.codes.size, STRATA_AT_ONCE):
        before = units.before(first, first + STRATA_AT_ONCE)
        # Ascending rows in a row, so that each is searched within its own stratum.
        gap = int(before[:, -1].max()) + int(rule.enough.max()) + 1
        rising = before + gap * np.arange(before.shape[0])[:, np.newaxis]
        full = np.searchsorted(rising.ravel(), (rising + rule.enough).ravel())
        own = full.reshape(before.shape) - width * np.arange(before.shape[0])[:, np.newaxis]
        end = np.minimum(own, rule.latest)
        for row in range(before.shape[0]):
            ends, begin = _chain(end[row].tolist(), units.blocks)
            reached = before[row][[0, *ends]]
            yield _Chain(
                ends=np.array(ends, dtype=np.int64)[np.diff(reached) > 0],
                open_from=begin,
                open_units=int(before[row, -1] - reached[-1]),
            )


def _chain(end: list[int], blocks: int) -> tuple[list[int], int]:
    """Returns the ends of the analysis blocks, and the start of the open block."""
    ends: list[int] = []
    begin = 0
    while (stop := end[begin]) <= blocks:
        ends.append(stop)
        begin = stop
    return ends, begin


def _ends_without_units(series: Series, units: _Units) -> Ints:
    """Days in which no unit came, the ends of the contrast time, and the horizon, if known."""
    day = DAY // series.policy.block_seconds
    days = np.arange(0, units.blocks + 1, day)
    over = series.contrast_ends
    idle = np.append(
        days[1:][np.diff(units.total[days]) == 0], over[(over > 0) & (over <= units.blocks)]
    )
    horizon = (series.horizon_end - series.begin) // series.policy.block_seconds
    return np.append(idle, horizon) if units.blocks == horizon else idle
