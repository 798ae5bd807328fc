"""Regression adjustment: the slope is statsmodels', has seen no unit of its block, and helps."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from statsmodels.regression.linear_model import WLS

from benchmarks.calibration.histories import Renamed
from benchmarks.calibration.sections.adjustment import Buyers, evaluated
from benchmarks.calibration.traffic import BLOCK
from stats.counts.adjustment import slopes
from stats.decision.evidence import evaluate
from stats.looks.stratification import stratified
from stats.looks.trace import target_cells, traced

OPEN_FOR = 1920
BUYERS = Buyers(r2=0.4, strata=2, days=1, history=1.0, lift=0.1)


def test_the_slope_is_that_of_a_regression_with_a_dummy_for_each_cell() -> None:
    cell, _, y, x = BUYERS.users(np.random.default_rng(3))
    cells = BUYERS.series(np.random.default_rng(3)).target
    users = pd.DataFrame({"cell": cell, "x": x, "y": y})[cell < 60 * BUYERS.strata]
    dummies = pd.get_dummies(users.cell, dtype=float)
    regressed = WLS(users.y, dummies.assign(x=users.x)).fit().params["x"]
    closes = cells.block + BLOCK + OPEN_FOR
    theta = slopes(closes, cells.block, cells.n1 + cells.n0, cells.values)
    then = cells.block == 67 * BLOCK
    assert theta[then] == pytest.approx([regressed] * BUYERS.strata, rel=1e-9)


def test_the_sums_are_those_of_the_specification() -> None:
    series = BUYERS.series(np.random.default_rng(3))
    (evidence,) = evaluate([series])
    cells = target_cells(stratified(series), series.as_of)
    v, n, closes = cells.values, cells.n1 + cells.n0, cells.begin + BLOCK + OPEN_FOR
    S, V, arms = 0.0, 0.0, np.zeros((2, 4))
    for at, size in enumerate(n):
        seen = closes <= cells.begin[at]
        xx, xy, theta = 0.0, 0.0, 0.0
        if n[seen].sum() >= 500:
            d, y = (v.d1 + v.d0)[seen], (v.y1 + v.y0)[seen]
            xx = ((v.dd1 + v.dd0)[seen] - d * d / n[seen]).sum()
            theta = ((v.yd1 + v.yd0)[seen] - d * y / n[seen]).sum() / xx
        own, mean = v[at : at + 1], ((v.d1 + v.d0) / n)[at]
        w = cells.n1[at] * cells.n0[at] / size
        for arm, (units, y, yy, d, dd, yd) in enumerate(
            (
                (cells.n1[at], own.y1, own.yy1, own.d1, own.dd1, own.yd1),
                (cells.n0[at], own.y0, own.yy0, own.d0, own.dd0, own.yd0),
            )
        ):
            squares = dd - 2 * mean * d + units * mean**2
            adjusted = (y - theta * (d - units * mean))[0]
            of_squares = (yy - 2 * theta * (yd - mean * y) + theta**2 * squares)[0]
            arms[arm] += units, adjusted, of_squares, w * w / units
            S += (1 - 2 * arm) * w * adjusted / units
            xy += adjusted
            xx = of_squares if arm == 0 else xx + of_squares
        V += w / (size - 1) * (xx - xy**2 / size)
    spread = [(yy - y * y / units) / (units - 1) * share for units, y, yy, share in arms]
    assert pytest.approx((S, max(V, sum(spread)))) == (evidence.totals.S, evidence.totals.V)


def test_lost_histories_answer_nothing_and_are_not_read_once_they_are_seen() -> None:
    """An eighth of treatment's users has a new pseudonym: the adjusted mean alone reaches 42."""
    lost = Renamed(r2=0.4, days=2, history=1.0, renamed=0.12)
    adjusted, plain = (
        traced([stratified(replace(lost, adjusted=each).series(np.random.default_rng(8)))])
        for each in (True, False)
    )
    trace, without = adjusted.trace, plain.trace
    read = trace.history.is_asked
    alone = adjusted.mixture.log_e(trace.totals.S, trace.totals.V0)
    assert alone[read].max() > np.log(20)
    assert trace.log_e.max() < np.log(5)
    differ = ~read & (trace.totals.W > 0)
    assert differ.sum() > 300
    assert trace.totals.S[differ] == pytest.approx(without.totals.S[differ], rel=1e-12)
    assert trace.log_e[differ] == pytest.approx(without.log_e[differ], rel=1e-12)


@pytest.mark.parametrize(("history", "least", "most"), [(0.0, 1.0, 1.0), (1.0, 0.6, 0.8)])
def test_a_history_narrows_the_interval_around_the_same_level(history, least, most) -> None:
    plain, adjusted = (
        next(evaluated(replace(BUYERS, history=history, adjusted=adjusted), 1, 5))
        for adjusted in (False, True)
    )
    assert adjusted.arms == plain.arms
    assert adjusted.totals.W == plain.totals.W
    assert least <= adjusted.totals.V / plain.totals.V <= most
