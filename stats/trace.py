"""A trace: counts, totals, e-process and VIF of experiments at every look."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from stats.block import analysis_block_ends
from stats.cell import Floats, Ints, Rows, Totals, terms
from stats.mixture import Mixture, log_component
from stats.series import Series
from stats.vif import variance_inflation


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What is known at each look, one entry a look; counts are cumulative over closed cells.

    Attributes:
        at: When the look is taken, epoch seconds.
        end: Exposure time that it covers: the end of its analysis block.
        n1: Units of treatment.
        x1: Conversions of treatment.
        n0: Units of control.
        x0: Conversions of control.
        totals: The sums that the test reads.
        log_day: Logarithm of the day component of E(0).
        log_fast: Logarithm of the fast component of E(0).
        log_e: Logarithm of E(0).
        vif: Variance inflation factor; infinite where W = 0.
    """

    at: Ints
    end: Ints
    n1: Ints
    x1: Ints
    n0: Ints
    x0: Ints
    totals: Totals
    log_day: Floats
    log_fast: Floats
    log_e: Floats
    vif: Floats

    def __getitem__(self, rows: Rows) -> Self:
        return type(self)(
            at=self.at[rows],
            end=self.end[rows],
            n1=self.n1[rows],
            x1=self.x1[rows],
            n0=self.n0[rows],
            x0=self.x0[rows],
            totals=self.totals[rows],
            log_day=self.log_day[rows],
            log_fast=self.log_fast[rows],
            log_e=self.log_e[rows],
            vif=self.vif[rows],
        )

    def __len__(self) -> int:
        return self.at.size


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The looks of several experiments in one trace.

    Attributes:
        trace: All looks, experiment after experiment.
        first: The first look of each experiment, and the number of looks at the end.
        mixture: The precisions and thresholds, one entry a look.
    """

    trace: Trace
    first: Ints
    mixture: Mixture

    def rows(self, experiment: int) -> slice:
        """The looks of one experiment."""
        return slice(int(self.first[experiment]), int(self.first[experiment + 1]))


def traced(series: Sequence[Series]) -> Batch:
    """The trace of several experiments, each element's numbers as if it were traced alone.

    Sums of whole numbers are exact in any order; sums of fractions run cell by cell within one
    experiment, in the order (analysis block, stratum).
    """
    ends = [np.array(analysis_block_ends(one), dtype=np.int64) for one in series]
    first = np.concatenate(([0], np.cumsum([end.size for end in ends]))).astype(np.int64)
    cells = _joined(series, ends, first)
    sums = _sums_at_looks(cells, first)
    totals = Totals.from_rows(sums[4:])
    mixture = _mixture(series, np.diff(first))
    n1, x1, n0, x0 = sums[:4].astype(np.int64)
    log_day = log_component(totals.S, totals.V0, mixture.rho_day)
    log_fast = log_component(totals.S, totals.V0, mixture.rho_fast)
    end = np.concatenate(ends)
    delay = [one.policy.window_seconds + one.policy.grace_seconds for one in series]
    trace = Trace(
        at=end + np.repeat(np.array(delay, dtype=np.int64), np.diff(first)),
        end=end,
        n1=n1,
        x1=x1,
        n0=n0,
        x0=x0,
        totals=totals,
        log_day=log_day,
        log_fast=log_fast,
        log_e=mixture.log_e(totals.S, totals.V0),
        vif=variance_inflation(
            look=cells.look,
            experiment=cells.experiment,
            stratum=cells.stratum,
            n1=cells.n1,
            n0=cells.n0,
            W=totals.W,
            first=first,
        ),
    )
    return Batch(trace=trace, first=first, mixture=mixture)


@dataclass(frozen=True, kw_only=True)
class _Cells:
    """Closed cells of analysis blocks, ordered by (look, stratum)."""

    look: Ints
    experiment: Ints
    stratum: Ints
    n1: Ints
    x1: Ints
    n0: Ints
    x0: Ints


def _joined(series: Sequence[Series], ends: Sequence[Ints], first: Ints) -> _Cells:
    """The cells of blocks, added up to those of closed analysis blocks."""
    own = [
        np.searchsorted(end, one.block, side="right") for one, end in zip(series, ends, strict=True)
    ]
    closed = [int(np.searchsorted(look, end.size)) for look, end in zip(own, ends, strict=True)]
    experiment = np.repeat(np.arange(len(series)), closed)
    look = np.concatenate([look[:count] for look, count in zip(own, closed, strict=True)])
    look += first[experiment]
    columns = {
        name: np.concatenate(
            [getattr(one, name)[:count] for one, count in zip(series, closed, strict=True)]
        )
        for name in ("stratum", "n1", "x1", "n0", "x0")
    }
    order = np.lexsort((columns["stratum"], look))
    look, stratum = look[order], columns.pop("stratum")[order]
    new = np.ones(look.size, dtype=bool)
    new[1:] = (look[1:] != look[:-1]) | (stratum[1:] != stratum[:-1])
    begins = np.flatnonzero(new)
    return _Cells(
        look=look[begins],
        experiment=experiment[order][begins],
        stratum=stratum[begins],
        **{name: np.add.reduceat(column[order], begins) for name, column in columns.items()},
    )


def _sums_at_looks(cells: _Cells, first: Ints) -> Floats:
    """n₁, x₁, n₀, x₀ and the terms of the test, summed up to each look: an array (10, looks)."""
    counts = np.stack((cells.n1, cells.x1, cells.n0, cells.x0)).astype(np.float64)
    parts = np.concatenate((counts, terms(cells.n1, cells.x1, cells.n0, cells.x0)))
    sums = np.zeros((parts.shape[0], cells.look.size + 1))
    bounds = np.searchsorted(cells.look, first)
    for begin, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        np.cumsum(parts[:, begin:stop], axis=1, out=sums[:, begin + 1 : stop + 1])
    looks = np.arange(first[-1])
    last = np.searchsorted(cells.look, looks, side="right")
    begin_of_look = np.repeat(bounds[:-1], np.diff(first))
    return np.take(sums, np.where(last > begin_of_look, last, 0), axis=1)


def _mixture(series: Sequence[Series], looks: Ints) -> Mixture:
    def repeated(values: list[float]) -> Floats:
        return np.repeat(np.array(values), looks)

    return Mixture(
        rho_day=repeated([one.policy.rho_day for one in series]),
        rho_fast=repeated([one.policy.rho_fast for one in series]),
        log_threshold=repeated([one.policy.log_threshold for one in series]),
    )
