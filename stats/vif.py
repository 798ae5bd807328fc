"""The variance inflation factor: the price in information of comparing within cells only."""

import numpy as np

from stats.cell import Floats, Ints


def variance_inflation(
    *, look: Ints, experiment: Ints, stratum: Ints, n1: Ints, n0: Ints, W: Floats, first: Ints
) -> Floats:
    """VIF = Σ over strata (N₁N₀/N) / W at every look; infinite where W = 0.

    N₁ and N₀ are a stratum's units over all closed cells, one-armed ones included, up to the
    last analysis block in which some stratum holds both arms, so that the tail after a promotion
    costs nothing. With one stratum this is 1/(1−R²) of the regression of treatment on the
    dummies of analysis blocks.

    Args:
        look: The look with which each cell closes, numbered through all experiments; ascending.
        experiment: The number of each cell's experiment.
        stratum: The stratum of each cell.
        n1: Units of treatment in each cell.
        n0: Units of control in each cell.
        W: Mantel-Haenszel weight at each look.
        first: The first look of each experiment, and the number of looks at the end.

    Returns:
        An array with one entry a look.
    """
    owner_first = np.repeat(first[:-1], np.diff(first))
    pooled = np.zeros(W.size)
    rank = _ranks(experiment, stratum)
    for r in range(int(rank.max(initial=-1)) + 1):
        rows = rank == r
        pooled += _information(
            _running(look[rows], n1[rows], owner_first),
            _running(look[rows], n0[rows], owner_first),
        )
    contrast = _last_contrast(W, owner_first)
    unbounded = np.full(W.size, np.inf)
    return np.divide(pooled[contrast], W, out=unbounded, where=W > 0)


def _ranks(experiment: Ints, stratum: Ints) -> Ints:
    """The place of each cell's stratum among those of its experiment."""
    order = np.lexsort((stratum, experiment))
    e, s = experiment[order], stratum[order]
    new = np.ones(e.size, dtype=bool)
    new[1:] = (e[1:] != e[:-1]) | (s[1:] != s[:-1])
    number = np.cumsum(new) - 1
    start_of_experiment = np.searchsorted(e, e, side="left")
    rank = np.empty(e.size, dtype=np.int64)
    rank[order] = number - number[start_of_experiment]
    return rank


def _running(look: Ints, units: Ints, owner_first: Ints) -> Ints:
    """Units of one stratum up to each look of its experiment; whole numbers, so exact."""
    cumulative = np.zeros(owner_first.size + 1, dtype=np.int64)
    cumulative[look + 1] = units
    cumulative = np.cumsum(cumulative)
    return cumulative[1:] - cumulative[owner_first]


def _information(n1: Ints, n0: Ints) -> Floats:
    t, c = n1.astype(np.float64), n0.astype(np.float64)
    return t * c / np.maximum(t + c, 1.0)


def _last_contrast(W: Floats, owner_first: Ints) -> Ints:
    """The last look up to each look at which W grew; the experiment's first where none did."""
    number = np.arange(W.size)
    before = np.where(number > owner_first, np.roll(W, 1), 0.0)
    grew = np.where(before < W, number, -1)
    return np.maximum(np.maximum.accumulate(grew), owner_first) if W.size else number
