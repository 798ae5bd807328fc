"""The peers beside which the test is set are looked at in the same way, and can fail."""

import numpy as np
import pytest

from benchmarks.calibration.traffic import Traffic, ramp
from benchmarks.peers import (
    ABSOLUTE,
    GBSTATS,
    GBSTATS_RELATIVE,
    OURS,
    PEEKED,
    RELATIVE,
    gbstats_p,
    planned_sessions,
    study,
)


def test_on_a_ramp_with_drift_a_pooled_test_answers_falsely_and_ours_does_not() -> None:
    result = study(Traffic(days=5, share=ramp), 40, 20_261_310)
    assert result.fired(PEEKED).share > 0.5
    assert result.fired(GBSTATS).share > 0.5
    assert result.fired(GBSTATS_RELATIVE).share > 0.5
    assert result.fired(OURS).judgement != "**OUTSIDE**"


def test_gbstats_s_formula_gives_what_gbstats_gave() -> None:
    counts = np.array(
        [[12000, 720, 12000, 600], [2000, 150, 9000, 450], [10, 0, 12, 3]], dtype=float
    )
    assert gbstats_p(counts, RELATIVE) == pytest.approx(
        [0.05774407866799514, 0.007521086218188919, 1.0], abs=1e-12
    )
    assert gbstats_p(counts, ABSOLUTE) == pytest.approx(
        [0.022503425607156458, 0.0026375460434119842, 1.0], abs=1e-12
    )


def test_the_planned_sample_is_the_textbook_s() -> None:
    assert planned_sessions() == pytest.approx(16_310, abs=5)
