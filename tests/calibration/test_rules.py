"""Calibration of the rules that end an experiment: closing, a candidate's wait and numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.calibration.proportion import Proportion, bounds
from benchmarks.calibration.scenario import better_target, evaluated, quiet
from benchmarks.calibration.traffic import DELAY
from stats.looks.policy import DAY

Steps = Sequence[tuple[float, float]]


def sizes(small: int, full: int) -> list[Any]:
    return [
        pytest.param(small, id="small"),
        pytest.param(full, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(3600)]),
    ]


def report(name: str, hits: int, count: int) -> tuple[float, float]:
    """Prints a row of the calibration's table, and gives the share's sure bounds."""
    print(Proportion(name=name, hits=hits, count=count).row())  # noqa: T201  # the table
    return bounds(hits, count)


# Closing


@pytest.mark.parametrize("count", sizes(20, 400))
@pytest.mark.parametrize(
    ("per_day", "shares"),
    [
        (240, [(0, 0.25), (3, 0.01)]),
        (240, [(0, 0.1), (3, 0.01)]),
        (240, [(0, 0.01), (1.2, 0.25)]),
        (100, [(0, 0.01)]),
    ],
)
def test_a_thin_canary_that_runs_as_declared_is_not_closed(
    per_day: int, shares: Steps, count: int
) -> None:
    draw = quiet(days=27, per_day=per_day, shares=shares, declared=shares)
    closed = sum(seen.decision.decided for seen in evaluated(draw, count, 20_261_501))
    low, _ = report(f"closed, declared {shares}, {per_day} units a day", closed, count)
    assert low <= 0.001


@pytest.mark.parametrize("count", sizes(10, 60))
@pytest.mark.parametrize(
    ("strata", "per_day", "share"),
    [
        (64, 24, 0.5),
        (64, 100, 0.05),
        pytest.param(512, 240, 0.5, marks=pytest.mark.nightly),
    ],
)
def test_arms_in_many_thin_strata_are_not_held_to_be_superseded(
    strata: int, per_day: int, share: float, count: int
) -> None:
    shares = [(0.0, share)]
    draw = quiet(days=14, per_day=per_day, shares=shares, declared=shares, strata=strata)
    closed = sum(seen.decision.decided for seen in evaluated(draw, count, 20_261_502))
    low, _ = report(f"closed, {strata} strata, {per_day} units a day", closed, count)
    assert low <= 0.001


@pytest.mark.parametrize("count", sizes(20, 200))
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
def test_what_is_gone_is_closed(
    name: str, shares: Steps, declared: Steps, days: tuple[float, float], count: int
) -> None:
    draw = quiet(days=27, per_day=240, shares=shares, declared=declared)
    after: list[float] = []
    for seen in evaluated(draw, count, 20_261_503):
        decision = seen.decision
        if decision.ended_because == name and decision.at is not None:
            after.append((decision.at - DELAY) / DAY - 3)
    report(f"closed after {np.median(after):.2f} days, declared {declared}", len(after), count)
    assert bounds(len(after), count)[1] >= 0.99
    assert days[0] <= np.median(after) <= days[1]


# The wait of a candidate


@pytest.mark.parametrize("count", sizes(30, 600))
@pytest.mark.parametrize(("lift", "at_most"), [(0.2, 0.25), (0.5, 0.5)])
def test_errors_that_triple_from_a_thousandth_are_seldom_kept(
    lift: float, at_most: float, count: int
) -> None:
    draw = better_target(errors=0.003, before=0.001, lift=lift)
    kept = sum(seen.decision.verdict == "keep" for seen in evaluated(draw, count, 20_261_504))
    low, _ = report(f"target +{lift:.0%}, errors 0.1 → 0.3 %: kept", kept, count)
    assert low <= at_most


@pytest.mark.parametrize("count", sizes(30, 600))
@pytest.mark.parametrize("rate", [0.001, 0.0001])
def test_a_service_with_hardly_any_errors_keeps_what_harms_none(rate: float, count: int) -> None:
    draw = better_target(errors=rate, before=rate)
    kept = sum(seen.decision.verdict == "keep" for seen in evaluated(draw, count, 20_261_505))
    _, high = report(f"target +20 %, errors {rate:.2%}: kept", kept, count)
    assert high >= 0.95


# The numbers of a keep


@pytest.mark.parametrize("count", sizes(40, 1000))
def test_a_keep_serves_the_lift_of_the_look_that_decides(count: int) -> None:
    """Which lies nearer to the truth than the estimate at which the test first held."""
    kept = [
        (seen.decision.lift / 0.01, seen.candidate.lift / 0.01)
        for seen in evaluated(better_target(errors=0.01), count, 20_261_506)
        if seen.decision.lift is not None and seen.candidate is not None
    ]
    served, first = np.array(kept).T
    for name, ratios in (("that decides", served), ("of the candidate", first)):
        rmse = float(np.sqrt(np.mean((ratios - 1) ** 2)))
        report(f"lift over truth at the look {name}: {ratios.mean():.2f}, rmse {rmse:.2f}", 0, 1)
    assert np.mean(np.abs(served - 1)) < np.mean(np.abs(first - 1))
    assert served.mean() < first.mean()


@pytest.mark.parametrize("count", sizes(40, 1000))
@pytest.mark.parametrize("lift", [0.1, 0.2])
def test_the_effect_of_a_keep_lies_nearer_to_the_truth_than_its_lift(
    lift: float, count: int
) -> None:
    kept = [
        (seen.decision.lift / (0.05 * lift), seen.effect.estimate / (0.05 * lift))
        for seen in evaluated(better_target(errors=0.01, lift=lift), count, 20_261_507)
        if seen.decision.lift is not None and seen.effect is not None
    ]
    served, shrunk = np.array(kept).T
    for name, ratios in (("lift", served), ("effect", shrunk)):
        rmse = float(np.sqrt(np.mean((ratios - 1) ** 2)))
        report(
            f"{name} of a keep over a true {lift:+.0%}: {ratios.mean():.2f}, rmse {rmse:.2f}", 0, 1
        )
    assert np.mean((shrunk - 1) ** 2) < np.mean((served - 1) ** 2)
    assert abs(shrunk.mean() - 1) < abs(served.mean() - 1)
