"""Ratios of two counts: their test by the specification, and how often it answers."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.calibration.ratios import Requests, evaluated
from domain.policy import Numbers
from stats.decision.evidence import evaluate


def plain(cells: Any) -> dict[str, float]:
    """The specification, from the cells of analysis blocks."""
    v, n = cells.values, (cells.n1, cells.n0)
    y, d = (v.y1, v.y0), (v.d1, v.d0)
    w = n[0] * n[1] / (n[0] + n[1])
    (y1, y0), (d1, d0) = (
        [own / units for own, units in zip(sums, n, strict=True)] for sums in (y, d)
    )
    S, D, C = ((w * part).sum() for part in (y1 * d0 - y0 * d1, d1 * d0, y0 * d1))
    own = pooled = weights = 0.0
    ratio = (v.y1 + v.y0).sum() / (v.d1 + v.d0).sum()
    both = (v.yy1 + v.yy0) - 2 * ratio * (v.yd1 + v.yd0) + ratio**2 * (v.dd1 + v.dd0)
    moments = ((v.yy1, v.yd1, v.dd1), (v.yy0, v.yd0, v.dd0))
    for arm, ((yy, yd, dd), other) in enumerate(zip(moments, (d0, d1), strict=True)):
        r = y[arm].sum() / d[arm].sum()
        squares, share = yy - 2 * r * yd + r * r * dd, (w * other / n[arm]) ** 2
        own += (share * squares).sum()
        weights += (share * n[arm]).sum()
        pooled += squares.sum() / (n[arm].sum() - 1) * (share * n[arm]).sum()
    V = max(own, pooled, both.sum() / (n[0].sum() + n[1].sum() - 2) * weights)
    level = C + S / 2
    score, information = level * S / V, level**2 / V
    parts = [
        0.5 * math.log(rho / (rho + information)) + score**2 / (2 * (rho + information))
        for rho in (25.0, 4.0)
    ]
    log_e = float(np.logaddexp(*parts)) - math.log(2)
    return {"lift": S / D, "W": w.sum(), "V": V * (w.sum() / D) ** 2, "log_e": log_e}


@pytest.mark.parametrize(("times", "lift"), [(0.5, 0.0), (1.0, -0.02), (3.0, 0.02)])
def test_the_test_of_a_ratio_is_that_of_the_specification(times, lift) -> None:
    requests = Requests(units=200, times=times, lift=lift, swing=0.3)
    series = requests.series(np.random.default_rng(7))
    (evidence,) = evaluate([replace(series, policy=Numbers(alpha=1e-300))])
    totals, treatment = evidence.totals, evidence.arms.treatment
    computed = {"lift": totals.lift, "W": totals.W, "V": totals.V, "log_e": evidence.log_e}
    assert computed == pytest.approx(plain(series.target), rel=1e-9)
    assert totals.ci is not None
    assert totals.ci[0] < computed["lift"] < totals.ci[1]
    assert treatment.level == pytest.approx((treatment.total or 0) / (treatment.per or 1))


@pytest.mark.parametrize(
    ("silenced", "cells", "is_tested"),
    [((), 9, True), ((), 1, False), (("0",), 9, True), (("1", "0"), 9, False)],
)
def test_a_ratio_is_tested_once_units_suffice_and_an_arm_has_errors(
    silenced, cells, is_tested
) -> None:
    series = Requests().series(np.random.default_rng(7))
    none = {
        f"{name}{arm}": 0 * series.target.block for arm in silenced for name in ("y", "yy", "yd")
    }
    target = replace(series.target, values=replace(series.target.values, **none))[:cells]
    (evidence,) = evaluate([replace(series, target=target)])
    assert (evidence.totals.lift is not None, evidence.log_e != 0) == (is_tested, is_tested)


@pytest.mark.parametrize(
    ("requests", "answers"),
    [
        (Requests(times=4, swing=0.5), range(3)),
        (Requests(silent=0.9, times=2, requests=1, units=20), range(3)),
        (Requests(lift=0.04, times=2), [20]),
    ],
)
def test_a_change_of_requests_alone_is_not_answered(requests, answers) -> None:
    seen = [each.decision.verdict != "abstain" for each in evaluated(requests, 20, 2026)]
    assert sum(seen) in answers
