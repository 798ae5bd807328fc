"""The variance inflation factor, against regression and by hand."""

from collections.abc import Callable

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import example, given
from hypothesis import strategies as st

from domain.policy import Numbers
from orchestration.pipeline.regression import regressed_inflation
from stats.decision.evidence import Evidence, evaluate
from stats.looks.series import Series
from stats.looks.stratification import stratified
from stats.looks.trace import target_cells

Maker = Callable[..., Series]
Arms = list[tuple[int, int]]


def seen_of(series: Maker, arms: Arms, **options: object) -> Evidence:
    """Evidence of a stratum whose blocks hold (n1, n0), each its own analysis block."""
    rows = [(i, 0, n1, 0, n0, 0) for i, (n1, n0) in enumerate(arms)]
    as_of = 300 * len(arms) + 1920
    (seen,) = evaluate(
        [series(rows, as_of=as_of, policy=Numbers(undeclared_min_units=1), **options)]
    )
    return seen


def regression(arms: Arms) -> float:
    """1/(1−R²) of treatment on the dummies of blocks, units as frequency weights."""
    treated, blocks, units = [], [], []
    for block, (n1, n0) in enumerate(arms):
        treated += [1.0, 0.0]
        blocks += [block, block]
        units += [n1, n0]
    keep = np.array(units) > 0
    dummies = np.eye(len(arms))[np.array(blocks)][:, [n1 + n0 > 0 for n1, n0 in arms]]
    model = sm.WLS(np.array(treated)[keep], dummies[keep], weights=np.array(units)[keep])
    return 1.0 / (1.0 - model.fit(hasconst=True).rsquared)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), min_size=1, max_size=8))
def test_with_one_stratum_it_is_that_of_a_weighted_regression(series, arms) -> None:
    arms = [*[pair for pair in arms if sum(pair)], (30, 70)]
    seen = seen_of(series, arms)
    assert seen.vif == pytest.approx(regression(arms), rel=1e-8)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 400), st.integers(0, 400)),
        min_size=1,
        max_size=12,
    )
)
@example(cells=[(i % 4, 30 + i % 50, 70) for i in range(700)])
def test_with_any_strata_it_is_that_of_the_regression_that_the_check_takes(series, cells) -> None:
    rows = [(i, stratum, n1, 0, n0, 0) for i, (stratum, n1, n0) in enumerate([*cells, (0, 30, 70)])]
    own = series(rows, as_of=300 * len(rows) + 1920, policy=Numbers(undeclared_min_units=1))
    (seen,) = evaluate([own])
    assert seen.as_of is not None
    assert seen.vif == pytest.approx(
        regressed_inflation(target_cells(stratified(own), seen.as_of)), rel=1e-8
    )


def test_the_ramp_of_1_5_25_50_percent_costs_what_is_specified(series) -> None:
    seen = seen_of(series, [(10, 990), (50, 950), (250, 750), (500, 500)])
    assert f"{seen.vif:.3f}" == "1.305"


@pytest.mark.requirement("abstain.non_identifiable")
@pytest.mark.parametrize("leak", [0.01, 0.0256, 0.0258, 0.1])
def test_before_and_after_a_deploy_it_is_told_by_the_leak(leak, series) -> None:
    kept, leaked = round(10_000 * (1 - leak)), round(10_000 * leak)
    seen = seen_of(series, [(leaked, kept), (kept, leaked)])
    assert seen.vif == pytest.approx(1 / (4 * leak * (1 - leak)))
    assert (seen.decision.abstain_reason == "non_identifiable") == (leak < 0.0257)


def test_the_tail_after_a_promotion_or_a_rollback_costs_nothing(series) -> None:
    ramp = [(10, 990), (500, 500)]
    before = seen_of(series, ramp).vif
    assert seen_of(series, [*ramp, (1000, 0), (1000, 0)]).vif == before
    assert seen_of(series, [*ramp, (0, 1000), (0, 1000)]).vif == before


def test_fewer_than_fifty_treatment_units_are_no_ground_to_call_a_design_aliased(series) -> None:
    assert seen_of(series, [(0, 500), (49, 0)]).decision.abstain_reason == "power"
    assert seen_of(series, [(0, 500), (50, 0)]).decision.abstain_reason == "non_identifiable"
