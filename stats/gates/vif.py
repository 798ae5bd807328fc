"""The variance inflation factor: the price in information of comparing within cells only."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from stats.counts.cell import Floats, Ints
from stats.gates.gate import Gate, Reading
from stats.looks.trace import StageLooks

MIN_TREATMENT_UNITS = 50


class Contrast(Gate):
    """Treatment has units enough, but too little to compare them with, or another flag with it.

    The statistic is the variance inflation factor; infinite where W = 0.
    """

    member = "vif"
    title = "Both builds served at the same time"
    why = (
        "treatment and control were not served side by side, so the change cannot be separated from"
        " what else differs between them"
    )
    step = "Serve both builds at the same time, so that there is something to compare."

    def readings(self, stages: Sequence[StageLooks]) -> Sequence[Reading]:
        """The readings of several experiments, whose targets are the first streams of a line."""
        line = stages[0].line
        cells, first = line.cells.of_streams(0, len(stages)), line.first[: len(stages) + 1]
        vif = variance_inflation(
            look=cells.row,
            experiment=cells.stream,
            stratum=cells.stratum,
            n1=cells.n1,
            n0=cells.n0,
            W=line.weight[: first[-1]],
            first=first,
        )
        return [self._judged(looks, np.append(vif, np.nan)[looks.row]) for looks in stages]

    def _judged(self, looks: StageLooks, vif: Floats) -> Reading:
        trace = looks.trace
        aliased = (vif > looks.series.policy.vif_limit) | looks.strata.is_confounded(trace.at)
        return Reading(statistic=vif, alarm=(trace.n1 >= MIN_TREATMENT_UNITS) & aliased)

    def text(self, value: float) -> str:
        """The factor as people read it."""
        return f"VIF {value:.4g}"


def variance_inflation(
    *, look: Ints, experiment: Ints, stratum: Ints, n1: Ints, n0: Ints, W: Floats, first: Ints
) -> Floats:
    """VIF = Σ over strata (N₁N₀/N) / W at every look; infinite where W = 0.

    N₁ and N₀ are a stratum's units over all closed cells, also of a single arm, up to the
    last analysis block in which some stratum holds both arms, so that the tail after a promotion
    costs nothing. With a single stratum this is 1/(1−R²) of the regression of treatment on the
    dummies of analysis blocks.

    Args:
        look: The look with which each cell closes, numbered through all experiments; ascending.
    """
    order = np.lexsort((look, stratum, experiment))
    begins = _begins_of_groups(experiment[order], stratum[order])
    t, c = (_running(n[order], begins).astype(np.float64) for n in (n1, n0))
    information = t * c / np.maximum(t + c, 1.0)
    gained = np.diff(information, prepend=0.0)
    gained[begins] = information[begins]
    by_look = np.bincount(look[order], weights=gained, minlength=W.size)
    pooled = np.empty(W.size)
    for begin, stop in pairwise(first.tolist()):
        np.cumsum(by_look[begin:stop], out=pooled[begin:stop])
    contrast = _last_contrast(W, np.repeat(first[:-1], np.diff(first)))
    unbounded = np.full(W.size, np.inf)
    return np.divide(pooled[contrast], W, out=unbounded, where=W > 0)


def _begins_of_groups(experiment: Ints, stratum: Ints) -> Ints:
    """Returns the first cell of each stratum; cells are ordered by experiment and stratum."""
    changes = (np.diff(experiment) != 0) | (np.diff(stratum) != 0)
    return np.flatnonzero(np.concatenate((np.ones(min(1, stratum.size), dtype=bool), changes)))


def _running(units: Ints, begins: Ints) -> Ints:
    """Units of each cell's stratum up to it; whole numbers, so exact."""
    total = np.cumsum(units)
    before = np.repeat((total - units)[begins], np.diff(np.append(begins, units.size)))
    return total - before


def _last_contrast(W: Floats, owner_first: Ints) -> Ints:
    """The last look up to each look at which W grew; the experiment's first where none did."""
    number = np.arange(W.size)
    before = np.where(number > owner_first, np.roll(W, 1), 0.0)
    grew = np.where(before < W, number, -1)
    return np.maximum(np.maximum.accumulate(grew), owner_first) if W.size else number
