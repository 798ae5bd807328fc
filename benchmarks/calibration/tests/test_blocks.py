"""Calibration of analysis blocks: what strata cost, and shares that drift with the baseline."""

import numpy as np
import pytest

from benchmarks.calibration.strata import Strata, inflation_if_joined_together
from stats.decision.evidence import evaluate


@pytest.mark.parametrize(
    ("strata", "declared", "at_most"),
    [(32, 0.5, 1.04), (512, 0.5, 1.04), (32, None, 1.07), (256, None, 1.4)],
)
def test_many_thin_strata_cost_hardly_any_information(strata, declared, at_most) -> None:
    series = Strata(number=strata, days=3, declared=declared).drawn(
        np.random.default_rng(20_261_601)
    )
    (seen,) = evaluate([series])
    assert seen.vif is not None
    assert seen.vif < at_most
    if strata == 512:
        assert inflation_if_joined_together(series) > 10
