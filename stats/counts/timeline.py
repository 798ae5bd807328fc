"""A timeline: cumulative sums of metrics' closed cells at each of their closings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stats.counts.adjustment import adjusted_terms, history_terms, slopes
from stats.counts.cell import ArmCounts, Floats, Ints, Totals, terms
from stats.counts.closed_cells import Adjusted, ClosedCells, Pairs, Values
from stats.counts.columns import Columns
from stats.counts.mean import mean_terms, mean_totals
from stats.counts.ratio import ratio_terms, ratio_totals

# After every closing.
_NEVER = 2**62


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A metric of an experiment.

    Attributes:
        cell_end: The end of the analysis block that holds each of them.
        ends: The ends of the analysis blocks whose outcomes have closed, in any stratum.
        closes_after: How long after its end an analysis block closes.
    """

    cells: ClosedCells
    cell_end: Ints
    ends: Ints
    closes_after: int

    def closed(self) -> NDArray[np.intp]:
        """The cells of analysis blocks that have closed."""
        return np.flatnonzero(self.cell_end <= (self.ends[-1] if self.ends.size else -1))


@dataclass(frozen=True, kw_only=True)
class AnalysisCells(ArmCounts, Columns):
    """Closed cells of analysis blocks, ordered by (row, stratum).

    Attributes:
        row: The closing of the analysis block, numbered through all streams; those of several
            strata that end together share a closing.
        begin: When its first block with units begins.
        y1: As in `ClosedCells.levels`, and so the others.
        values: Of continuous metrics, 0 in the cells of others; None where all are conversions.
    """

    row: Ints
    stream: Ints
    stratum: Ints
    begin: Ints
    y1: Floats
    d1: Floats
    y0: Floats
    d0: Floats
    values: Values | None

    def of_streams(self, first: int, stop: int) -> Self:
        """The cells of consecutive streams, up to before the last stream."""
        begin, stop = np.searchsorted(self.stream, (first, stop)).tolist()
        return self[begin:stop]

    def once_compared(self) -> Self:
        """The cells of strata that hold both arms, each from the closing on at which they do."""
        order = np.lexsort((self.row, self.stratum, self.stream))
        cells = self[order]
        new = (np.diff(cells.stream, prepend=-1) != 0) | (np.diff(cells.stratum, prepend=-1) != 0)
        first = [
            np.minimum.reduceat(np.where(units > 0, cells.row, _NEVER), np.flatnonzero(new))
            for units in (cells.n1, cells.n0)
        ]
        row = np.maximum(cells.row, np.maximum(*first)[np.cumsum(new) - 1])
        by_row = np.argsort(row, kind="stable")
        return replace(cells, row=row)[by_row[row[by_row] < _NEVER]]


@dataclass(frozen=True, kw_only=True)
class TimelineSums(ArmCounts):
    """Sums over all cells up to each of some times, the counts of units among them.

    Attributes:
        weight: Σ w of all cells; W of the totals is 0 before a continuous metric can be tested.
        events: The same sums of whether a unit had the event; the test's own for a conversion.
    """

    weight: Floats
    totals: Totals
    events: Totals


@dataclass(frozen=True, kw_only=True)
class ComparedCounts(ArmCounts, Columns):
    """The counts of the strata that hold both arms, an entry a closing.

    Units of a third build are compared with nobody. Where no stratum holds both, they are of all.

    Attributes:
        y1: The numerator of treatment's level: its conversions, or sum of values.
        d1: The denominator: its units, or of a ratio the sum of its other count.
    """

    y1: Floats
    d1: Floats
    y0: Floats
    d0: Floats

    @property
    def units(self) -> Ints:
        """Units of both arms."""
        return self.n1 + self.n0

    @property
    def conversions(self) -> Ints:
        """Conversions of both arms."""
        return self.x1 + self.x0

    @property
    def levels(self) -> tuple[Floats, Floats]:
        """Control's and treatment's rate, mean or ratio; NaN without units."""
        control, treatment = (
            np.divide(y, d, out=np.full_like(d, np.nan), where=d > 0)
            for y, d in ((self.y0, self.d0), (self.y1, self.d1))
        )
        return control, treatment


@dataclass(frozen=True, kw_only=True)
class Timeline(TimelineSums):
    """Sums of several streams, stream after stream, an entry a closing.

    Attributes:
        at: When analysis blocks closed, epoch seconds.
        end: Exposure time that is covered: the end of those analysis blocks.
        factor: Multiplier of the policy's mixture precisions; 1 for conversions.
        histories: Sums of `history_terms`, 0 where none is read; None where no mean is adjusted.
        first: The first closing of each stream, and the number of closings at the end.
    """

    at: Ints
    end: Ints
    factor: Floats
    first: Ints
    cells: AnalysisCells
    histories: Floats | None = None

    def rows(self, stream: int) -> slice:
        """The closings of a stream."""
        return slice(int(self.first[stream]), int(self.first[stream + 1]))

    def row_at(self, stream: int, looks: Ints) -> Ints:
        """The last closing of a stream up to each look; −1 where there is none."""
        rows = self.rows(stream)
        closed = np.searchsorted(self.at[rows], looks, side="right")
        return np.where(closed > 0, rows.start + closed - 1, -1)

    @cached_property
    def compared(self) -> ComparedCounts:
        """The counts that are compared by each closing."""
        sums = _counts_up_to(self.cells, self.first)
        if self.cells.stratum.any():
            compared = _counts_up_to(self.cells.once_compared(), self.first)
            sums = np.where(compared[2] > 0, compared, sums)
        n1, x1, n0, x0 = sums[:4].astype(np.int64)
        y1, d1, y0, d0 = sums[4:]
        return ComparedCounts(n1=n1, x1=x1, n0=n0, x0=x0, y1=y1, d1=d1, y0=y0, d0=d0)


def timeline(streams: Sequence[Stream]) -> Timeline:
    """Builds the timeline of several streams; each stream's numbers are as if it were alone.

    Sums of whole numbers are exact in any order; sums of fractions run cell by cell within a
    stream, in the order (analysis block, stratum).
    """
    closings = np.array([stream.ends.size for stream in streams], dtype=np.int64)
    first = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(closings)))
    cells = _joined(streams, first)
    n1, x1, n0, x0 = _counts_up_to(cells, first)[:4].astype(np.int64)
    rows = _summed(cells, first, terms(cells.n1, cells.x1, cells.n0, cells.x0))
    weight, events = rows[1], Totals.from_rows(rows)
    factor, values, known = np.ones_like(weight), cells.values, None
    kind = np.repeat([stream.cells.kind for stream in streams], closings)
    end = np.concatenate([stream.ends for stream in streams])
    at = end + np.repeat(
        np.array([stream.closes_after for stream in streams], dtype=np.int64), closings
    )
    if values is not None:
        of_mean = mean_terms(cells.n1, cells.n0, values)
        if isinstance(values, Adjusted):
            slope = _slopes(cells, values, at, kind)
            of_mean = adjusted_terms(cells.n1, cells.n0, values, slope)
            known = _summed(cells, first, history_terms(cells.n1, cells.n0, values, slope))
        own, scale = mean_totals(_summed(cells, first, of_mean))
        is_mean = (kind == "mean") | (kind == "adjusted")
        rows, factor = np.where(is_mean, own, rows), np.where(is_mean, scale, factor)
    if isinstance(values, Pairs):
        parts = _summed(cells, first, ratio_terms(cells.n1, cells.n0, values))
        own, scale = ratio_totals(parts, weight)
        is_ratio = kind == "ratio"
        rows, factor = np.where(is_ratio, own, rows), np.where(is_ratio, scale, factor)
    return Timeline(
        at=at,
        end=end,
        n1=n1,
        x1=x1,
        n0=n0,
        x0=x0,
        weight=weight,
        totals=Totals.from_rows(rows),
        events=events,
        factor=factor,
        first=first,
        cells=cells,
        histories=known,
    )


def _slopes(cells: AnalysisCells, values: Pairs, at: Ints, kind: NDArray[np.str_]) -> Floats:
    """The slope of each cell of an adjusted mean, of its own stream; 0 of others."""
    slope = np.zeros(cells.row.size)
    adjusted = np.flatnonzero(kind[cells.row] == "adjusted")
    for stream in np.unique(cells.stream[adjusted]):
        own = np.flatnonzero(cells.stream == stream)
        n = (cells.n1 + cells.n0)[own]
        slope[own] = slopes(at[cells.row[own]], cells.begin[own], n, values[own])
    return slope


def _joined(streams: Sequence[Stream], first: Ints) -> AnalysisCells:
    """The cells of blocks, added up to those of closed analysis blocks."""
    closed = [stream.closed() for stream in streams]
    stream = np.repeat(np.arange(len(streams)), [rows.size for rows in closed])
    row = np.concatenate(
        [
            np.searchsorted(stream.ends, stream.cell_end[rows])
            for stream, rows in zip(streams, closed, strict=True)
        ]
    )
    row += first[stream]
    counts = [{**vars(stream.cells), **stream.cells.levels} for stream in streams]
    columns = {
        name: np.concatenate([own[name][rows] for own, rows in zip(counts, closed, strict=True)])
        for name in ("n1", "x1", "n0", "x0", "y1", "d1", "y0", "d0")
    }
    block, stratum = (
        np.concatenate(
            [vars(each.cells)[name][rows] for each, rows in zip(streams, closed, strict=True)]
        )
        for name in ("block", "stratum")
    )
    order = np.lexsort((stratum, row))
    row, stratum = row[order], stratum[order]
    new = np.ones(row.size, dtype=bool)
    new[1:] = (row[1:] != row[:-1]) | (stratum[1:] != stratum[:-1])
    begins = np.flatnonzero(new)
    return AnalysisCells(
        row=row[begins],
        stream=stream[order][begins],
        stratum=stratum[begins],
        begin=np.minimum.reduceat(block[order], begins),
        values=_joined_values(streams, closed, order, begins),
        **{name: np.add.reduceat(column[order], begins) for name, column in columns.items()},
    )


def _joined_values(
    streams: Sequence[Stream], closed: Sequence[NDArray[np.intp]], order: Ints, begins: Ints
) -> Values | None:
    every = [stream.cells.values for stream in streams]
    kinds = {type(values) for values in every if values is not None}
    if not kinds:
        return None
    joined = next(kind for kind in (Adjusted, Pairs, Values) if kind in kinds or kind is Values)
    sums = {
        name: np.concatenate(
            [
                np.zeros(rows.size)
                if values is None or name not in vars(values)
                else vars(values)[name][rows]
                for values, rows in zip(every, closed, strict=True)
            ]
        )
        for name in joined.__dataclass_fields__
    }
    return joined(**{name: np.add.reduceat(values[order], begins) for name, values in sums.items()})


def _counts_up_to(cells: AnalysisCells, first: Ints) -> Floats:
    """The counts of `ComparedCounts` of the given cells, summed up to each closing."""
    levels = (cells.y1, cells.d1, cells.y0, cells.d0)
    counts = np.stack((cells.n1, cells.x1, cells.n0, cells.x0, *levels)).astype(np.float64)
    return _summed(cells, first, counts)


def _summed(cells: AnalysisCells, first: Ints, parts: Floats) -> Floats:
    """Rows of parts, summed up to each closing of their stream: an array (rows, closings)."""
    sums = np.zeros((parts.shape[0], cells.row.size + 1))
    bounds = np.searchsorted(cells.row, first)
    for begin, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        np.cumsum(parts[:, begin:stop], axis=1, out=sums[:, begin + 1 : stop + 1])
    last = np.searchsorted(cells.row, np.arange(first[-1]), side="right")
    begin_of_stream = np.repeat(bounds[:-1], np.diff(first))
    return np.take(sums, np.where(last > begin_of_stream, last, 0), axis=1)
