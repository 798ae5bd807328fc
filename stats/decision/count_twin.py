"""The count twin: whether a keep holds on the counts of conversions alone.

Units that come to a single arm and never convert, a bot on its build or a beacon that loses
bouncers, move a rate and hardly the sample ratio. They cannot move whose conversions there are.
"""

import math
from dataclasses import dataclass

import numpy as np

from stats.counts.arrivals import counted_blocks
from stats.counts.cell import Floats, Ints
from stats.counts.columns import Columns
from stats.gates.sample_ratio import ALARM, log_two_sided
from stats.looks.trace import Batch, StageLooks, in_turn

Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
# Below this part of the information a declared share says too little.
ENOUGH = 0.5


@dataclass(frozen=True, kw_only=True)
class CountTwin(Columns):
    """The test of whose conversions there are, an entry a look.

    Attributes:
        score: S_c = Σ(x₁ − πm), treatment's conversions beyond its declared share of all.
        variance: V_c = Σmπ(1−π).
        is_asked: Whether shares are declared for enough of the information.
        declared: Treatment's declared share, on average over the units that are read.
        served: Its share of them.
    """

    score: Floats
    variance: Floats
    log_e: Floats
    is_asked: Flags
    declared: Floats
    served: Floats
    units: Floats

    def stands(self, score: Floats, log_threshold: float) -> Flags:
        """Whether it says the same as the test, at each look."""
        return (self.log_e >= log_threshold) & (self.score * score > 0)

    def disagrees(self, score: Floats, variance: Floats, rate: Floats) -> Flags:
        """Whether it shows less than half of the test's difference, at each look."""
        with np.errstate(invalid="ignore", divide="ignore"):
            own = np.sign(score) * self.score / np.sqrt(self.variance)
            expected = np.sqrt(1 - rate) * np.abs(score) / np.sqrt(variance)
        return self.is_asked & ~(own >= expected / 2)


def count_twins(batch: Batch) -> list[CountTwin]:
    """Returns the count twin of each experiment of a batch; it is asked of no mean."""
    return [
        in_turn([_read(looks) for looks in own], [looks.trace.at for looks in own], own)
        for own in batch.stages
    ]


def _read(looks: StageLooks) -> CountTwin:
    series, size = looks.series, len(looks.trace)
    if series.target.values is not None or not series.stratum_shares:
        sums = CountTwin.__dataclass_fields__.keys() - {"is_asked"}
        is_asked = np.zeros(size, dtype=np.bool_)
        return CountTwin(is_asked=is_asked, **dict.fromkeys(sums, np.zeros(size)))
    cells = series.target
    end = looks.stage.blocks.end_of(cells.stratum, cells.block)
    order = np.argsort(end, kind="stable")
    block, stratum = cells.block[order], cells.stratum[order]
    x1, n1, x0, n0 = (
        column[order].astype(np.float64) for column in (cells.x1, cells.n1, cells.x0, cells.n0)
    )
    m, n = x1 + x0, n1 + n0
    share = np.full(block.size, np.nan)
    for code, epochs in series.stratum_shares.items():
        size_of_block = series.policy.block_seconds
        for declared, inside in counted_blocks(epochs, block, block_seconds=size_of_block):
            share[inside & (stratum == code)] = declared
    known = ~np.isnan(share)
    share = np.where(known, share, 0.0)
    weight = n1 * n0 / np.maximum(n, 1.0)
    closed = np.searchsorted(end[order], looks.trace.end, side="right")

    left = _left_at(looks, stratum, share, (n1, n0), closed)

    def summed(column: Floats) -> Floats:
        sums = np.zeros(size)
        for look in np.unique(left).tolist():
            sums[:look] += _running(np.where(left == look, column, 0.0), closed)[:look]
        return sums

    score = summed(np.where(known, x1 - share * m, 0.0))
    variance = summed(m * (share * (1 - share)))
    units = summed(np.where(known, n, 0.0))
    count = np.maximum(units, 1.0)
    read, whole = summed(np.where(known, weight, 0.0)), _running(weight, closed)
    return CountTwin(
        score=score,
        variance=variance,
        log_e=looks.mixture(size).log_e(score, variance),
        is_asked=(whole > 0) & (read >= ENOUGH * whole),
        declared=summed(share * n) / count,
        served=summed(np.where(known, n1, 0.0)) / count,
        units=units,
    )


def _running(column: Floats, closed: Ints) -> Floats:
    """The sum of the cells that have closed by each look, by how many they are."""
    return np.concatenate((np.zeros(1), np.cumsum(column)))[closed]


def _left_at(
    looks: StageLooks, stratum: Ints, share: Floats, units: tuple[Floats, Floats], closed: Ints
) -> Ints:
    """The look from which on each cell takes no part; of others the number of looks.

    A value of a split flag whose own sample ratio alarms is shared otherwise than declared.
    """
    dependence, size = looks.stage.population.dependence, len(looks.trace)
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
