"""The surplus line: whether an answer holds beside units that a single arm got.

Units that come to a single arm and never convert, a bot on its build or a beacon that loses
bouncers, move a rate, a mean and a ratio, and hardly the sample ratio.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple, Self

import numpy as np

from stats.counts.arrivals import counted_blocks
from stats.counts.cell import Floats, Ints, Totals
from stats.counts.closed_cells import ClosedCells
from stats.counts.timeline import timeline
from stats.gates.sample_ratio import ALARM, log_two_sided
from stats.guardrails.guardrail import Watch
from stats.looks.lost_history import unadjusted
from stats.looks.series import Companion, Series
from stats.looks.trace import Batch, StageLooks, in_turn
from stats.sequential.harm import log_half
from stats.sequential.line import Line, LineGuard
from stats.sequential.mixture import Mixture, confidence_sequence

# Below this part of the information a declared share says too little.
ENOUGH = 0.5


@dataclass(frozen=True, kw_only=True)
class Surplus(LineGuard):
    """Treatment's units beyond its declared share, and the test beside them, an entry a look.

    The line is that of the cells whose share is declared, and asked where these have enough of the
    information; it says nothing on the opposite of the measured difference.

    Attributes:
        declared: Treatment's declared share, on average over the units that are read.
        served: Its share of them.
    """

    declared: Floats
    served: Floats
    units: Floats

    def on_side(self, side: float, score: Floats) -> Self:
        """The same with evidence of a positive `side`·S, none on the opposite of the score."""
        log_e = self.line.log_e(lambda own, variance, each: log_half(side * own, variance, each))
        return replace(self, log_e=np.where(self.line.totals.S * score > 0, log_e, 0.0))

    def intervals(
        self, totals: Totals, mixture: Mixture, history: LineGuard | None = None
    ) -> Floats:
        """The interval of the lift at each look (looks, 2), which holds 0 exactly while E < 1/α.

        Args:
            totals: Of all cells; W > 0 everywhere.
            history: The line on lost histories at these looks, where a mean is adjusted.
        """
        lines = (self,) if history is None else (history, self)
        ends, log_e = confidence_sequence(totals, mixture), mixture.log_e(totals.S, totals.V0)
        for line in lines:
            log_e = line.guarded(log_e)
        for line in lines:
            holds = log_e >= mixture.log_threshold
            ends = line.hull(ends, mixture.log_threshold, holds=holds)
        return ends


class _Closings(NamedTuple):
    """The moments at which a metric is read: how far each covers its cells, and S of all there."""

    looks: StageLooks
    metric: Companion
    at: Ints
    end: Ints
    score: Floats


def surpluses(batch: Batch) -> list[Surplus]:
    """Returns the surplus of each experiment of a batch."""
    components = batch.mixture.rho.shape[1]
    return [
        in_turn([_of_target(looks, components) for looks in own], [x.trace.at for x in own], own)
        for own in batch.stages
    ]


def _of_target(looks: StageLooks, components: int) -> Surplus:
    series, trace = looks.series, looks.trace
    target = Companion(window_seconds=series.policy.window_seconds, cells=series.target)
    return _read(_Closings(looks, target, trace.at, trace.end, trace.totals.S), components)


def beside_line(looks: StageLooks, watch: Watch) -> Watch:
    """A watch over a guardrail with the line beside its test, once that has found harm."""
    own, policy = watch.guardrail, looks.series.policy
    if own is None or watch.breached_at is None:
        return watch
    end, score = watch.at - own.window_seconds - policy.grace_seconds, np.nan_to_num(watch.lift)
    line = _read(_Closings(looks, own, watch.at, end, score), len(policy.rho))
    side = 1.0 if own.better == "lower" else -1.0
    return replace(watch, log_e=line.on_side(side, score).guarded(watch.log_e))


def _read(closings: _Closings, components: int) -> Surplus:
    looks, cells = closings.looks, closings.metric.cells
    end = looks.stage.blocks.end_of(cells.stratum, cells.block)
    share, order = _declared_shares(looks.series, cells), np.argsort(end, kind="stable")
    closed = np.searchsorted(end[order], closings.end, side="right")
    n1, n0 = (column[order].astype(np.float64) for column in (cells.n1, cells.n0))
    left = np.empty(cells.block.size, dtype=np.int64)
    left[order] = _left_at(looks, cells.stratum[order], share[order], (n1, n0), closed)
    whole, since, read = _running(n1 * n0 / np.maximum(n1 + n0, 1.0), closed), 0, list[Surplus]()
    for look in np.union1d(left, closed.size).tolist():
        kept = (share > 0) & (left >= look) & (end <= closings.end.max(initial=-1))
        parts = cells[kept], end[kept], share[kept]
        read.append(_surplus(closings, *parts, whole, components=components)[since:look])
        since = look
    return reduce(Surplus.then, read)


def _declared_shares(series: Series, cells: ClosedCells) -> Floats:
    """Treatment's declared share in each of some cells; 0 where none counts."""
    share = np.zeros(cells.block.size)
    for code, epochs in series.stratum_shares.items():
        size = series.policy.block_seconds
        for declared, inside in counted_blocks(epochs, cells.block, block_seconds=size):
            share[inside & (cells.stratum == code)] = declared
    return share


def _surplus(
    read: _Closings, cells: ClosedCells, end: Ints, share: Floats, whole: Floats, *, components: int
) -> Surplus:
    """The surplus of the cells whose share counts, at all looks."""
    looks, window, until = read.looks, read.metric.window_seconds, read.end
    closings = timeline([looks.stream(Companion(window_seconds=window, cells=cells))])
    row = closings.row_at(0, read.at)
    totals, factor = closings.totals.gathered(row), np.append(closings.factor, 1.0)[row]
    if closings.histories is not None and (history := looks.trace.history) is not None:
        known = np.pad(closings.histories, ((0, 0), (0, 1)))[:, row]
        differ = (looks.trace.totals.W > 0) & ~history.is_asked
        totals, factor = unadjusted(differ, known, totals, factor)
    t, n = cells.n1.astype(np.float64), (cells.n1 + cells.n0).astype(np.float64)
    units = np.stack((t - share * n, n * share * (1 - share), n, share * n, t))
    both = closings.cells
    m = np.maximum(both.n1 + both.n0, 1)
    levels = np.stack((both.n1 * both.n0 / m, both.y0 * both.d1 / m, both.d1 * both.d0 / m))
    weight, count, declared, served, product = np.zeros((5, until.size))
    surplus, information, moved, spread = np.zeros((4, until.size))
    of_strata = zip(
        _by_stratum(cells.stratum, end, units, until),
        _by_stratum(both.stratum, closings.end[both.row], levels, until),
        strict=True,
    )
    for (beyond, expected, came, due, treated), (w, own, of_both) in of_strata:
        level = np.divide(own, w, out=np.zeros_like(w), where=w > 0)
        surplus, information = surplus + beyond, information + expected
        moved, spread = moved - level * beyond, spread + level**2 * expected
        weight, product = weight + w, product + of_both
        count, declared, served = count + came, declared + due, served + treated
    # A ratio's score is divided by the mean of both arms' other count.
    scale = np.divide(weight, product, out=np.ones_like(weight), where=product > 0)
    rho = np.full((until.size, components), np.nan)
    rho[:, : len(looks.series.policy.rho)] = looks.series.policy.rho
    own = Line(
        rho=rho * factor[:, None],
        totals=totals,
        surplus=surplus,
        information=information,
        moved=moved * scale,
        spread=spread * scale**2,
    )
    return Surplus(
        # Undeclared cells may turn the measured difference round.
        log_e=np.where(totals.S * read.score > 0, own.log_e(), 0.0),
        line=own,
        is_asked=(whole > 0) & (weight >= ENOUGH * whole),
        declared=declared / np.maximum(count, 1.0),
        served=served / np.maximum(count, 1.0),
        units=count,
    )


def _by_stratum(stratum: Ints, end: Ints, columns: Floats, until: Ints) -> Iterator[Floats]:
    """Yields the sums of each stratum's columns by how far each look covers, (columns, looks)."""
    order = np.lexsort((end, stratum))
    for own in np.split(order, np.flatnonzero(np.diff(stratum[order])) + 1):
        sums = np.cumsum(columns[:, own], axis=1, dtype=np.float64)
        yield np.pad(sums, [(0, 0), (1, 0)])[:, np.searchsorted(end[own], until, side="right")]


def _running(column: Floats, closed: Ints) -> Floats:
    """The sum of the cells that have closed by each look, by how many they are."""
    return np.concatenate((np.zeros(1), np.cumsum(column)))[closed]


def _left_at(
    looks: StageLooks, stratum: Ints, share: Floats, units: tuple[Floats, Floats], closed: Ints
) -> Ints:
    """The look from which on each cell takes no part; of others the number of looks.

    A value of a split flag whose own sample ratio alarms is shared otherwise than declared.
    """
    dependence, size = looks.stage.population.dependence, closed.size
    left = np.full(stratum.size, size)
    if dependence is None:
        return left
    codes = dependence.strata(looks.stage.flags)
    for flag in looks.stage.flags:
        classes = np.zeros(int(codes.max()) + 1, dtype=np.int64)
        classes[codes[codes >= 0]] = dependence.classes[flag][codes >= 0]
        for value in np.unique(classes).tolist():
            carried, log_e = classes[stratum] == value, np.zeros(size)
            for declared in np.unique(share[carried & (share > 0)]).tolist():
                there = carried & (share == declared)
                treated, others = (
                    _running(np.where(there, column, 0.0), closed) for column in units
                )
                log_e += log_two_sided(treated, others, declared)
            alarms = np.flatnonzero(log_e >= math.log(ALARM))
            left[carried] = np.minimum(left[carried], alarms[0] if alarms.size else size)
    return left
