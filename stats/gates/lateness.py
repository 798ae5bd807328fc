"""Lateness: whether outcomes come too late to count more often in either arm."""

import numpy as np

from domain.cause import Cause
from stats.counts.cell import Floats, Ints, terms
from stats.counts.finding import NEVER, LateUnits, counted_from
from stats.counts.timeline import AnalysisCells
from stats.gates.gate import Gate, Reading, evidence_reading, no_reading
from stats.looks.trace import StageLooks

SCORE, VARIANCE = 0, 2


class Lateness(Gate):
    """Outcomes come too late more often in an arm."""

    cause = Cause.LATENESS
    member = "lateness_e"
    is_sticky = True
    title = "Outcomes arrive as soon in both arms"
    why = "an arm's outcomes come too late more often than the other's"
    step = (
        "An arm's outcomes come late more often than the other's: check how each build sends its"
        " events."
    )

    def reading(self, looks: StageLooks) -> Reading:
        """The evidence of units whose outcomes are late, at all looks of a stage."""
        late, size = looks.series.late, len(looks.trace)
        if late is None:
            return no_reading(looks)
        score, variance = np.zeros(size), np.zeros(size)
        if late.at.size:
            line, rows = looks.line, looks.closings
            ends = looks.stage.blocks.end_of(late.stratum, late.block)
            row = np.searchsorted(line.end[rows], ends)
            score, variance = lateness(
                late,
                line.cells.of_streams(looks.number, looks.number + 1),
                row=row + rows.start,
                counted_from=counted_from(row, late.at, closings=line.at[rows]),
                at=looks.trace.at,
            )
        return evidence_reading(looks.mixture(size).log_e(score, variance))


def lateness(
    late: LateUnits, cells: AnalysisCells, *, row: Ints, counted_from: Ints, at: Ints
) -> tuple[Floats, Floats]:
    """Score and variance of lateness at each look: late units out of those with an outcome.

    The cells are those of the target with n_a = x_a + late_a and x_a = late_a. They change after
    they closed; so the sums run over the differences that each receipt makes.
    """
    order = np.lexsort((late.arm, late.stratum, late.block, late.at, counted_from))
    order = order[counted_from[order] < NEVER]
    cell, known = _cell_of(cells, row[order], late.stratum[order])
    order, cell = order[known], cell[known]
    treated = late.arm[order] == 1
    late1 = _count_within(cell, treated)
    late0 = _count_within(cell, ~treated)
    x1, x0 = cells.x1[cell], cells.x0[cell]
    after = terms(x1 + late1, late1, x0 + late0, late0)
    late1, late0 = late1 - treated, late0 - ~treated
    before = terms(x1 + late1, late1, x0 + late0, late0)
    change = (after - before)[[SCORE, VARIANCE]]
    sums = np.concatenate((np.zeros((2, 1)), np.cumsum(change, axis=1)), axis=1)
    score, variance = sums[:, np.searchsorted(counted_from[order], at, side="right")]
    # A sum of differences ends a rounding error below zero where nothing is left.
    return score, np.maximum(variance, 0.0)


def _cell_of(
    cells: AnalysisCells, row: Ints, stratum: Ints
) -> tuple[Ints, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """The number of the cell that each unit is in, and whether it is in any."""
    strata = 1 + max(int(cells.stratum.max(initial=0)), int(stratum.max(initial=0)))
    keys = cells.row * strata + cells.stratum
    wanted = row * strata + stratum
    place = np.searchsorted(keys, wanted)
    inside = place < keys.size
    known = inside & (keys[np.where(inside, place, 0)] == wanted) if keys.size else inside
    return place, known


def _count_within(group: Ints, mine: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Ints:
    """How many of mine there are in an element's group up to it, itself included."""
    order = np.argsort(group, kind="stable")
    ordered = mine[order].astype(np.int64)
    total = np.cumsum(ordered)
    begins = np.searchsorted(group[order], group[order], side="left")
    count = np.empty(group.size, dtype=np.int64)
    count[order] = total - (total - ordered)[begins]
    return count
