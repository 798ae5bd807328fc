"""Calibration of analysis blocks: what strata cost, and shares that drift with the baseline."""

import numpy as np
import pytest

from benchmarks.calibration.proportion import Proportion, bounds
from benchmarks.calibration.strata import Strata, in_phase, inflation_if_joined_together
from stats.decision.evidence import evaluate
from tests.repetition import also_nightly

ALPHA = 0.05
FULL = pytest.mark.calibration, pytest.mark.timeout(3600)


@pytest.mark.parametrize(
    ("strata", "declared", "at_most"),
    [(32, 0.5, 1.04), (512, 0.5, 1.04), (32, None, 1.07), (256, None, 1.4)],
)
def test_many_thin_strata_cost_hardly_any_information(
    strata: int, declared: float | None, at_most: float
) -> None:
    series = Strata(number=strata, days=3, declared=declared).drawn(
        np.random.default_rng(20_261_601)
    )
    (seen,) = evaluate([series])
    assert seen.vif is not None
    assert seen.vif < at_most
    if strata == 512:
        assert inflation_if_joined_together(series) > 10


@pytest.mark.parametrize(
    "count", [pytest.param(150, id="small"), pytest.param(2000, id="full", marks=FULL)]
)
@pytest.mark.parametrize("baseline", also_nightly([0.3], [0.05]))
def test_a_share_that_drifts_undeclared_with_the_baseline_answers_no_more_often_than_alpha(
    baseline: float, count: int
) -> None:
    thin = Strata(number=1, per_day=60, days=28, share=in_phase, baseline=baseline)
    hits = thin.answers(count, 20_261_602)
    report(f"undeclared, 60 units a day, baseline {baseline:.0%}", hits, count)
    assert bounds(hits, count)[0] <= ALPHA


@pytest.mark.parametrize(
    ("strata", "count"),
    [
        pytest.param(32, 10, id="small"),
        pytest.param(32, 400, id="32 strata", marks=FULL),
        pytest.param(256, 400, id="256 strata", marks=FULL),
    ],
)
@pytest.mark.parametrize("baseline", also_nightly([0.3], [0.05]))
def test_strata_whose_share_drifts_undeclared_answer_no_more_often_than_alpha(
    baseline: float, strata: int, count: int
) -> None:
    drifting = Strata(number=strata, per_day=60 * strata, share=in_phase, baseline=baseline)
    hits = drifting.answers(count, 20_261_604)
    report(f"undeclared, {strata} strata, baseline {baseline:.0%}", hits, count)
    assert bounds(hits, count)[0] <= ALPHA


@pytest.mark.parametrize(
    "count", [pytest.param(10, id="small"), pytest.param(200, id="full", marks=FULL)]
)
@pytest.mark.parametrize("declared", [0.5, None])
def test_thin_strata_answer_no_more_often_than_alpha(declared: float | None, count: int) -> None:
    many = Strata(number=64, per_day=2400, declared=declared)
    hits = many.answers(count, 20_261_603)
    report(f"64 strata, declared {declared}", hits, count)
    assert bounds(hits, count)[0] <= ALPHA


def report(name: str, hits: int, count: int) -> None:
    row = Proportion(name=name, hits=hits, count=count, at_most=ALPHA).row()
    print(row)  # noqa: T201  # the table is what the full calibration is run for
