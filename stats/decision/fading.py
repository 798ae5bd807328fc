"""Fading: whether the relative effect differs in the second half of an experiment."""

from dataclasses import replace

import numpy as np

from stats.counts.cell import Ints
from stats.counts.timeline import AnalysisCells
from stats.gates.interaction import interaction
from stats.sequential.mixture import Mixture


def fading_log_e(cells: AnalysisCells, *, mixture: Mixture) -> float:
    """The logarithm of the evidence that the relative effect differs between two halves.

    The first half are the analysis blocks that closed before half of the information W had come.
    The test is that of an interaction between strata: NaN before both halves can be compared, and
    of a continuous metric.

    Args:
        cells: The cells of a target that had closed by a look, in order of their rows.
        mixture: The precisions of the look, an entry.
    """
    if cells.values is not None or not cells.row.size:
        return float("nan")
    t, c = cells.n1.astype(np.float64), cells.n0.astype(np.float64)
    information = np.cumsum(t * c / (t + c))
    by_row = information[np.searchsorted(cells.row, cells.row, side="right") - 1]
    half: Ints = (by_row > information[-1] / 2).astype(np.int64)
    halves = replace(cells, stratum=half, row=np.zeros_like(cells.row))
    return float(interaction(halves, first_row=0, mixture=mixture).statistic[0])
