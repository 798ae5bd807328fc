"""Calibration of closing: after how long an experiment ends whose arm is gone."""

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.calibration.proportion import bounds
from benchmarks.calibration.scenario import evaluated, quiet
from benchmarks.calibration.traffic import DELAY
from domain.metric import DAY

Steps = Sequence[tuple[float, float]]


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(20, id="small"),
        pytest.param(200, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(3600)]),
    ],
)
@pytest.mark.parametrize(
    ("name", "shares", "declared", "days"),
    [
        ("withdrawn", [(0, 0.5), (3, 0.0)], [(0, 0.5), (3, 0.0)], (1.0, 1.25)),
        ("promoted", [(0, 0.5), (3, 1.0)], [(0, 0.5), (3, 1.0)], (1.0, 1.25)),
        ("withdrawn", [(0, 0.5), (3, 0.0)], [(0, 0.5)], (1.0, 1.5)),
        ("withdrawn", [(0, 0.01), (3, 0.0)], [(0, 0.01), (3, 0.0)], (2.0, 20.0)),
        ("withdrawn", [(0, 0.5), (3, 0.0)], [], (5.0, 6.5)),
    ],
)
def test_what_is_gone_is_closed(name, shares, declared, days, count) -> None:
    draw = quiet(days=27, per_day=240, shares=shares, declared=declared)
    after: list[float] = []
    for seen in evaluated(draw, count, 20_261_503):
        decision = seen.decision
        if decision.ended_because == name and decision.at is not None:
            after.append((decision.at - DELAY) / DAY - 3)
    assert bounds(len(after), count)[1] >= 0.99
    assert days[0] <= np.median(after) <= days[1]
