"""Quantiles of both arms, read between the thresholds that units' values exceed."""

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from domain.evidence.results import MetricRow, QuantileLevels
from domain.metric import quantile_share
from stats.counts.cell import Floats


def quantile_levels(
    over: Sequence[tuple[float, str | None]], rows: Sequence[MetricRow]
) -> list[QuantileLevels | None]:
    """Returns the quantile of both arms that each threshold was; None beyond the thresholds.

    Between two thresholds values are taken as log-normal. The interval is that of the shares.

    Args:
        over: The thresholds, ascending, and which quantile of the history each was.
        rows: The shares of units that exceed each, and their interval.
    """
    arms = [(row.control, row.treatment) for row in rows]
    shares = [(a, b) for a, b in arms if a is not None and b is not None]
    if len(shares) < len(rows):
        return [None] * len(rows)
    control, treatment = np.array(shares).T
    low, high = np.array([row.interval or (-1.0, 1.0) for row in rows]).T
    exceeding = (control, treatment, control + low, control + high)
    values = np.array([value for value, _ in over])
    return [
        None if quantile is None else _levels(1 - quantile_share(quantile), values, exceeding)
        for _, quantile in over
    ]


def _levels(share: float, over: Floats, exceeding: Sequence[Floats]) -> QuantileLevels | None:
    control, treatment, low, high = (_level(share, over, each) for each in exceeding)
    if control is None or treatment is None:
        return None
    return QuantileLevels(control=control, treatment=treatment, low=low, high=high)


def _level(share: float, over: Floats, exceeding: Floats) -> float | None:
    """The value that a share of units exceeds; None where it is below or above all thresholds."""
    shares = np.minimum.accumulate(np.clip(exceeding, 1e-9, 1 - 1e-9))
    if over[0] <= 0 or not shares[-1] <= share <= shares[0]:
        return None
    return float(np.exp(np.interp(-ndtri(share), -ndtri(shares), np.log(over))))
