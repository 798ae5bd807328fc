"""Ratios of two counts: their test by the specification, and how often it answers."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.calibration.ratios import Requests, evaluated
from stats.counts.closed_cells import Pairs
from stats.decision.evidence import Evidence, evaluate
from stats.looks.policy import Policy

Arm = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
DELAY = 1920
SUMS = {
    "y": lambda y, _: y,
    "yy": lambda y, _: y * y,
    "d": lambda _, d: d,
    "dd": lambda _, d: d * d,
    "yd": lambda y, d: y * d,
}


def drawn(seed: int, *, times: float = 1.0, ratio: float = 0.2) -> list[tuple[Arm, Arm]]:
    """Blocks of both arms, each with y and d of its units; treatment first."""
    rng = np.random.default_rng(seed)

    def arm(size: int, mean: float, share: float) -> Arm:
        d = rng.poisson(mean, size)
        return rng.binomial(d, share).astype(float), d.astype(float)

    sizes = ((60, 2.0), (120, 5.0), (300, 1.0))
    return [(arm(n, times * mean, ratio), arm(300, mean, 0.2)) for n, mean in sizes]


def evidence_of(series: Any, blocks: list[tuple[Arm, Arm]]) -> Evidence:
    n, x = (
        [[int(of(arm[0])) for arm in block] for block in blocks]
        for of in (np.size, np.count_nonzero)
    )
    sums = {
        f"{name}{1 - own}": np.array([of(*block[own]).sum() for block in blocks])
        for own in (0, 1)
        for name, of in SUMS.items()
    }
    rows = [(i, 0, n[i][0], x[i][0], n[i][1], x[i][1]) for i in range(len(blocks))]
    read = {"policy": Policy(alpha=1e-300), "as_of": 300 * len(blocks) + DELAY}
    (evidence,) = evaluate([series(rows, values=Pairs(**sums), **read)])
    return evidence


def plain(blocks: list[tuple[Arm, Arm]]) -> dict[str, float]:
    """The specification in scalars, from the counts of units."""
    S = D = C = W = own = 0.0
    per_unit = [0.0, 0.0]
    r = [sum(b[a][0].sum() for b in blocks) / sum(b[a][1].sum() for b in blocks) for a in (0, 1)]
    for t, c in blocks:
        sizes, means = (t[0].size, c[0].size), (t[1].mean(), c[1].mean())
        w = sizes[0] * sizes[1] / sum(sizes)
        S += w * (t[0].mean() * means[1] - c[0].mean() * means[0])
        D, C, W = D + w * means[0] * means[1], C + w * c[0].mean() * means[0], W + w
        for arm, (y, d) in enumerate((t, c)):
            share = (w * means[1 - arm] / sizes[arm]) ** 2
            per_unit[arm] += sizes[arm] * share
            own += share * float(((y - r[arm] * d) ** 2).sum())
    pooled = sum(
        np.concatenate([b[arm][0] - r[arm] * b[arm][1] for b in blocks]).var(ddof=1) * per_unit[arm]
        for arm in (0, 1)
    )
    V = max(own, float(pooled))
    score, information = (C + S / 2) * S / V, (C + S / 2) ** 2 / V
    parts = [
        0.5 * math.log(rho / (rho + information)) + score**2 / (2 * (rho + information))
        for rho in (25.0, 4.0)
    ]
    log_e = float(np.logaddexp(*parts)) - math.log(2)
    return {"lift": S / D, "W": W, "V": V * (W / D) ** 2, "log_e": log_e}


@given(st.integers(0, 10**6), st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([0.05, 0.2, 0.3]))
def test_the_test_of_a_ratio_is_that_of_the_specification(series, seed, times, ratio) -> None:
    blocks = drawn(seed, times=times, ratio=ratio)
    evidence = evidence_of(series, blocks)
    totals, ci = evidence.totals, evidence.totals.ci
    computed = {"lift": totals.lift, "W": totals.W, "V": totals.V, "log_e": evidence.log_e}
    assert computed == pytest.approx(plain(blocks), rel=1e-9)
    assert ci is not None
    assert ci[0] < totals.lift < ci[1]
    for arm, own in enumerate((evidence.arms.treatment, evidence.arms.control)):
        y, d = (sum(block[arm][of].sum() for block in blocks) for of in (0, 1))
        assert (own.total, own.per, own.level) == (y, d, pytest.approx(y / d))
    mirror = evidence_of(series, [(c, t) for t, c in blocks])
    assert (mirror.totals.lift, mirror.log_e) == pytest.approx((-totals.lift, evidence.log_e))


@pytest.mark.parametrize(
    ("blocks", "tested"),
    [
        (drawn(1)[1:], True),
        (drawn(1)[:1], False),  # 60 units in treatment
        ([((0 * t[0], t[1]), (0 * c[0], c[1])) for t, c in drawn(1)], False),
        ([((t[1], t[1]), (c[1], c[1])) for t, c in drawn(1)], False),
        # Control without an error hides no harm.
        ([(t, (0 * c[0], c[1])) for t, c in drawn(1)], True),
    ],
)
def test_a_ratio_without_spread_or_of_few_units_says_nothing(series, blocks, tested) -> None:
    evidence = evidence_of(series, blocks)
    assert (evidence.totals.lift is not None) == tested
    assert (evidence.log_e != 0) == tested


@pytest.mark.parametrize(
    ("requests", "least", "most"),
    [
        (Requests(times=4, swing=0.5), 0, 2),
        (Requests(silent=0.9, times=2, requests=1, units=20), 0, 2),
        (Requests(lift=0.04, times=2), 20, 20),
    ],
)
def test_a_change_of_requests_alone_is_not_answered(requests, least, most) -> None:
    answered = [each.decision.verdict != "abstain" for each in evaluated(requests, 20, 2026)]
    assert least <= sum(answered) <= most
