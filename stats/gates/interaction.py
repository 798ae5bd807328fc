"""Interaction: whether the relative effect differs between strata."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Self

import numpy as np

from domain.cause import Cause
from domain.policy import Numbers
from stats.counts.cell import Floats, Ints
from stats.counts.timeline import AnalysisCells, Stream, timeline
from stats.gates.gate import ALARM, Flags, Gate, Reading
from stats.looks.block import AnalysisBlocks
from stats.looks.series import Series
from stats.looks.splits import Dependence
from stats.looks.stratification import Population
from stats.looks.trace import StageLooks
from stats.sequential.mixture import Mixture

MIN_CONVERSIONS = 10
AT_ONCE = 65_536  # sums of strata at closings: bounds the memory; results don't depend on it


@dataclass(frozen=True, kw_only=True)
class InteractionReading(Reading):
    """Evidence of interaction, an entry a closing, or a look.

    The statistic is the logarithm of the largest evidence of a stratum against the rest, divided
    by the number of strata where there are more than two; NaN before two can be compared.
    """

    rises: Flags
    falls: Flags

    @classmethod
    def of(cls, log_e: Floats, rises: Flags, falls: Flags) -> Self:
        """The reading of such evidence."""
        return cls(statistic=log_e, alarm=log_e >= math.log(ALARM), rises=rises, falls=falls)

    def gathered(self, rows: Ints) -> Self:
        """Selects the evidence at closings; −1 means before any."""
        return self.of(
            np.append(self.statistic, np.nan)[rows],
            rises=np.append(self.rises, False)[rows],
            falls=np.append(self.falls, False)[rows],
        )


# The closings of a table of an experiment's units, and the interaction that each shows.
_Table = tuple[Ints, InteractionReading]


class Interaction(Gate):
    """The relative effect differs between strata, or between the values of a flag."""

    cause = Cause.INTERACTION
    member = "interaction_e"
    title = "Other changes do not alter the effect"
    why = "the effect differs with what else a build carries"
    step = (
        "The effect differs with what else a build carries: wait until the other change is decided."
    )

    def readings(self, stages: Sequence[StageLooks]) -> Sequence[InteractionReading]:
        """The readings of several experiments, each at all looks of a stage."""
        tables: dict[int, Sequence[_Table]] = {}
        for looks in stages:
            population = looks.stage.population
            if id(population) not in tables:
                tables[id(population)] = _marginal_tables(population)
        return [_reading(looks, tables[id(looks.stage.population)]) for looks in stages]

    def spares(self, reading: Reading, policy: Numbers) -> Flags:
        """A harm in each stratum is a harm."""
        if not isinstance(reading, InteractionReading):
            raise TypeError("an interaction is read of strata")
        return reading.falls if policy.better == "higher" else reading.rises


def interaction(cells: AnalysisCells, *, first_row: int, mixture: Mixture) -> InteractionReading:
    """The interaction between the strata of an experiment.

    Per stratum R₁ = Σx₁n₀/n, R₀ = Σx₀n₁/n, g = log(R₁/R₀) and v = Σ(m·n₁n₀/n² − x₁x₀/n)/(R₁R₀)
    (Greenland & Robins, Biometrics 41, 1985), once each arm has 10 conversions in it. For a
    stratum against the rest, pooled, D = g_a − g_b and V_D = v_a + v_b; the mixture is taken on
    the score D/V_D with variance 1/V_D. On this relative scale a constant relative lift over
    unequal baselines is no interaction.

    Args:
        cells: The closed cells of its target, in order of their rows; their strata are
            compared.
        mixture: Precisions and threshold, an entry a closing.
    """
    closings = mixture.log_threshold.size
    cells = _comparable(cells)
    if not cells.row.size:
        return no_interaction(closings)
    code = np.unique(cells.stratum, return_inverse=True)[1]
    order = np.lexsort((code, cells.row))
    row, code = cells.row[order] - first_row, code[order]
    # A stratum may have several cells in a closing: of builds that are compared apart.
    begins = np.flatnonzero(np.append(True, (np.diff(row) != 0) | (np.diff(code) != 0)))
    parts = np.add.reduceat(_parts(cells)[:, order], begins, axis=1)
    row, code = row[begins], code[begins]
    strata = int(code.max()) + 1
    before = np.zeros((parts.shape[0], strata))
    at_once = max(1, AT_ONCE // strata)
    bounds = np.arange(0, closings + at_once, at_once).clip(max=closings)
    cell_bounds = np.searchsorted(row, bounds)
    pieces: list[InteractionReading] = []
    spans = zip(pairwise(bounds.tolist()), pairwise(cell_bounds.tolist()), strict=True)
    for (begin, stop), (first, last) in spans:
        sums = np.zeros((*before.shape, stop - begin))
        sums[:, code[first:last], row[first:last] - begin] = parts[:, first:last]
        sums[:, :, 0] += before
        before = np.cumsum(sums, axis=2, out=sums)[:, :, -1]
        pieces.append(_compared(sums, mixture[slice(begin, stop)]))
    return reduce(InteractionReading.then, pieces)


def _compared(sums: Floats, mixture: Mixture) -> InteractionReading:
    """The interaction at some closings, of sums (5, strata, closings) up to each."""
    R1, R0, _, x1, x0 = sums
    enough = (x1 >= MIN_CONVERSIONS) & (x0 >= MIN_CONVERSIONS)
    parts = np.where(enough, sums[:3], 0.0)
    # Added stratum by stratum: a sum in pairs would depend on how many there are.
    rest = np.cumsum(parts, axis=1)[:, -1:] - parts
    g, v = _log_ratio(*parts)
    g_rest, v_rest = _log_ratio(*rest)
    difference, variance = g - g_rest, v + v_rest
    count = enough.sum(axis=0)
    testable = enough & (count >= 2) & (variance > 0)
    information = np.divide(1.0, variance, out=np.zeros_like(variance), where=testable)
    score = np.where(testable, difference, 0.0) * information
    log_e = np.where(testable, mixture.log_e(score, information), -np.inf).max(axis=0)
    log_e -= np.log(np.where(count > 2, count, 1))
    some = enough.any(axis=0)
    return InteractionReading.of(
        np.where(testable.any(axis=0), log_e, np.nan),
        rises=some & np.all((R1 > R0) | ~enough, axis=0),
        falls=some & np.all((R1 < R0) | ~enough, axis=0),
    )


def no_interaction(closings: int) -> InteractionReading:
    """The interaction without evidence: of a single stratum, or of a continuous metric."""
    nothing = np.zeros(closings, dtype=np.bool_)
    return InteractionReading.of(np.full(closings, np.nan), rises=nothing, falls=nothing)


def _comparable(cells: AnalysisCells) -> AnalysisCells:
    """The cells that hold both arms, of strata that have conversions enough in the end."""
    both = (cells.n1 > 0) & (cells.n0 > 0)
    codes, code = np.unique(cells.stratum, return_inverse=True)
    enough = np.ones(codes.size, dtype=np.bool_)
    for conversions in (cells.x1, cells.x0):
        total = np.bincount(code, weights=conversions * both, minlength=codes.size)
        enough &= total >= MIN_CONVERSIONS
    return cells[both & enough[code]]


def _parts(cells: AnalysisCells) -> Floats:
    """Computes each cell's terms of R₁, R₀, the sum in v, x₁ and x₀: (5, cells)."""
    t, c = cells.n1.astype(np.float64), cells.n0.astype(np.float64)
    a, b = cells.x1.astype(np.float64), cells.x0.astype(np.float64)
    n = t + c
    return np.stack((a * c / n, b * t / n, (a + b) * (t * c) / (n * n) - a * b / n, a, b))


def _log_ratio(R1: Floats, R0: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """The logarithm of R₁/R₀ and its variance; both 0 where there is nothing to compare."""
    defined = (R1 > 0) & (R0 > 0)
    treatment, control = np.where(defined, R1, 1.0), np.where(defined, R0, 1.0)
    # v > 0 but for rounding
    return np.log(treatment) - np.log(control), np.where(defined, np.maximum(spread, 0.0), 0.0) / (
        treatment * control
    )


def _reading(looks: StageLooks, tables: Sequence[_Table]) -> InteractionReading:
    """The interaction between the values of flags, where any are known; else between strata."""
    if tables:
        return _of_all(tables, looks.trace.at)
    rows, cells = looks.closings, looks.line.cells.of_streams(looks.number, looks.number + 1)
    closings = rows.stop - rows.start
    # Most have a single stratum.
    one_stratum = not np.any(cells.stratum[1:] != cells.stratum[:-1])
    if looks.series.target.values is not None or one_stratum:
        return no_interaction(looks.row.size)
    strata = interaction(cells, first_row=rows.start, mixture=looks.mixture(closings))
    return strata.gathered(np.where(looks.row < 0, -1, looks.row - rows.start))


def _of_all(tables: Sequence[_Table], looks: Ints) -> InteractionReading:
    """The interaction that all tables together show at each look.

    The evidence is the largest of any table, divided by their number: Bonferroni.
    """
    read = [table.gathered(np.searchsorted(at, looks, side="right") - 1) for at, table in tables]
    log_e = np.stack([table.statistic for table in read])
    compared = ~np.isnan(log_e)
    count = compared.sum(axis=0)
    largest = np.where(compared, log_e, -np.inf).max(axis=0)
    some = compared.any(axis=0)
    # Counts only the tables in which strata can be compared.
    return InteractionReading.of(
        np.where(count > 0, largest - np.log(np.maximum(count, 1)), np.nan),
        rises=some & np.all(~compared | np.stack([table.rises for table in read]), axis=0),
        falls=some & np.all(~compared | np.stack([table.falls for table in read]), axis=0),
    )


def _marginal_tables(population: Population) -> list[_Table]:
    """The tables of lineages, and of the values of each flag; never of segments.

    There are none where no flag is known, or the target is continuous.
    """
    series, dependent, pooled = population.series, population.dependence, population.blocks
    if dependent is None or not dependent.classes.shape[0] or series.target.values is not None:
        return []
    tables = [_table(series, dependent, pooled, flags=(), classes=dependent.lineage)]
    tables += [
        _table(series, dependent, pooled, flags=(flag,), classes=classes)
        for flag, classes in enumerate(dependent.classes)
        if not dependent.is_segment[flag]
    ]
    return tables


def _table(
    series: Series,
    dependent: Dependence,
    blocks: AnalysisBlocks,
    *,
    flags: Sequence[int],
    classes: Ints,
) -> _Table:
    code, policy = dependent.strata(flags), series.policy
    strata = int(code.max(initial=-1)) + 1
    lineage_of, class_of = np.zeros(strata, dtype=np.int64), np.zeros(strata, dtype=np.int64)
    lineage_of[code[code >= 0]], class_of[code[code >= 0]] = (
        dependent.lineage[code >= 0],
        classes[code >= 0],
    )
    cells = series.target.regrouped(code)
    closes_after = policy.closes_after
    closed = int(np.searchsorted(blocks.ends, series.as_of - closes_after, side="right"))
    line = timeline(
        [
            Stream(
                cells=cells,
                cell_end=blocks.end_of(lineage_of[cells.stratum], cells.block),
                ends=blocks.ends[:closed],
                closes_after=closes_after,
            )
        ]
    )
    by_class = replace(line.cells, stratum=class_of[line.cells.stratum])
    mixture = Mixture(rho=np.tile(policy.rho, (closed, 1)), log_threshold=np.zeros(closed))
    return line.at, interaction(by_class, first_row=0, mixture=mixture)
