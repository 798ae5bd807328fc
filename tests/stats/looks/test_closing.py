"""Lack of contrast: an arm is held to be gone only where its absence is beyond chance."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from domain.metric import DAY
from domain.policy import Numbers
from domain.words import EndedBecause
from stats.counts.arrivals import Arrivals, Epoch
from stats.decision.decision import Decision
from stats.decision.evidence import evaluate
from stats.looks.series import Series

Maker = Callable[..., Series]
Row = tuple[int, ...]
HOUR = 12  # blocks
WHOLE_HOUR = 3600
# Every block is an analysis block, so that each row is a cell.
POLICY = Numbers(block_min_units=1)


def decided(
    series: Maker, rows: list[Row], *steps: tuple[int, float | None], **read: Any
) -> Decision:
    """The decision on rows (hour, stratum, n1, n0), with shares declared from some hours on."""
    cells = sorted((hour * HOUR, stratum, n1, 0, n0, 0) for hour, stratum, n1, n0 in rows)
    if steps:
        ends: list[int | None] = [hour * WHOLE_HOUR for hour, _ in steps[1:]]
        read["allocation"] = tuple(
            Epoch(start=hour * WHOLE_HOUR, end=end, share=share)
            for (hour, share), end in zip(steps, [*ends, None], strict=True)
        )
        nobody = np.zeros(0, dtype=np.int64)
        read["arrivals"] = Arrivals(block=nobody, treatment=nobody, others=nobody)
        read["cuts"] = tuple(hour * WHOLE_HOUR for hour, _ in steps[1:])
    as_of = (rows[-1][0] + 1) * WHOLE_HOUR + 300 + 1920
    (seen,) = evaluate([series(cells, as_of=as_of, policy=POLICY, **read)])
    return seen.decision


def alone(first: int, hours: int, n0: int, stratum: int = 0) -> list[Row]:
    return [(first + i, stratum, 0, n0) for i in range(hours)]


BOTH = [(hour, 0, 25, 75) for hour in range(4)]


@pytest.mark.parametrize(("last", "gone"), [(8, False), (9, True)])
def test_an_arm_is_gone_once_its_absence_has_a_chance_below_one_in_a_million(
    *, last, gone, series
) -> None:
    # Four cells of ten at a quarter, and another: (0.75 ** 10) ** 4 * 0.75 ** 8 = 1.006e-6.
    decision = decided(series, [*BOTH, *alone(4, 4, 10), *alone(30, 1, last)], (0, 0.25))
    assert (decision.ended_because == "withdrawn") == gone


def test_a_ramp_that_steps_down_is_judged_at_the_share_declared_now(series) -> None:
    quiet = alone(4, 60, 10)
    assert decided(series, [*BOTH, *quiet], (0, 0.25)).ended_because == "withdrawn"
    assert not decided(series, [*BOTH, *quiet], (0, 0.25), (4, 0.01)).decided
    # 1,400 units without treatment, at a declared share of 1 %, are no chance any more.
    assert decided(series, [*BOTH, *alone(4, 30, 47)], (0, 0.25), (4, 0.01)).decided


def test_a_share_declared_a_moment_ago_says_nothing_of_the_units_before_it(series) -> None:
    rows = [(0, 0, 1, 99), *alone(1, 30, 10), *alone(31, 1, 5)]
    assert not decided(series, rows, (0, 0.01), (31, 0.25)).decided


def test_a_share_that_is_served_below_its_declaration_counts_as_it_is_served(series) -> None:
    served = [(4, 0, 0, 1000), (5, 0, 1, 999)]
    rows = [*BOTH, *served, *alone(6, 40, 40)]
    assert not decided(series, rows, (0, 0.25), (4, 0.1)).decided
    dense = [(4, 0, 100, 900), (5, 0, 100, 900)]
    assert decided(series, [*BOTH, *dense, *alone(6, 40, 40)], (0, 0.25), (4, 0.1)).decided


@pytest.mark.parametrize(("share", "rest"), [(0.0, "withdrawn"), (1.0, "promoted")])
def test_a_declared_end_leaves_the_share_out_that_it_declares(share, rest, series) -> None:
    tail = [(4 + i, 0, *((3, 0) if share else (0, 3))) for i in range(30)]
    decision = decided(series, [*BOTH, *tail], (0, 0.25), (4, share))
    assert (decision.ended_because, decision.abstain_reason) == (rest, "power")


def test_where_nothing_is_declared_an_arm_may_be_as_thin_as_one_percent(series) -> None:
    assert not decided(series, [*BOTH, *alone(4, 60, 20)]).decided
    assert decided(series, [*BOTH, *alone(4, 60, 24)]).ended_because == "withdrawn"


def test_a_treatment_that_never_came_stays_open_while_a_share_is_declared(series) -> None:
    assert not decided(series, alone(0, 26, 10), (0, 0.5)).decided
    never = decided(series, alone(0, 30, 10), (0, 0.5), (25, 0))
    assert (never.ended_because, never.abstain_reason) == ("withdrawn", "non_identifiable")
    assert not decided(series, alone(0, 30, 10), (0, 0.01), (25, 0)).decided
    assert not decided(series, alone(0, 26, 10)).decided


def test_a_cell_of_one_unit_is_no_evidence_of_a_missing_arm(series) -> None:
    thin = [(4 + 24 * day, 1 + stratum, 0, 1) for day in range(6) for stratum in range(30)]
    assert not decided(series, [*BOTH, *thin], (0, 0.5)).decided
    dense = [(4 + 24 * day, 1, 0, 30) for day in range(6)]
    assert decided(series, [*BOTH, *dense], (0, 0.5)).decided


def test_arms_that_miss_each_other_in_thin_strata_are_not_superseded(series) -> None:
    def strata(units: int) -> list[Row]:
        decision: list[Row] = []
        for number in range(24):
            counts = (units, 0) if number % 2 else (0, units)
            decision.append((4 + 2 * number, number, *counts))
        return decision

    # Twelve pairs at a half: a chance of 1 in 4,000. Then fives: 1 in 10 ** 28.
    assert not decided(series, [*BOTH, *strata(2)], (0, 0.5)).decided
    decision = decided(series, [*BOTH, *strata(5)], (0, 0.5))
    assert (decision.ended_because, decision.abstain_reason) == ("superseded", "power")


def test_the_chance_of_two_arms_is_that_of_the_rarer_one(series) -> None:
    threes = [(20 + i, i, *((0, 3) if i else (3, 0))) for i in range(22)]
    assert decided(series, [*BOTH, *threes], (0, 0.5)).ended_because == "superseded"
    assert not decided(series, [*BOTH, *threes], (0, 0.5), (4, 0.97)).decided


@pytest.mark.parametrize(
    ("hours", "because"),
    [
        ([(4, "withdrawn")], "withdrawn"),
        ([(4, "promoted"), (20, "promoted")], "promoted"),
        ([(4, "withdrawn"), (20, None)], None),
        ([(4, "withdrawn"), (20, None), (25, "promoted")], None),
        # A canary whose base was replaced may go on rebased, however few come.
        ([(4, "superseded")], None),
        ([(30, "withdrawn")], None),
    ],
)
def test_a_deploy_that_ends_a_canary_closes_it_a_day_later_without_a_unit(
    hours, because, series
) -> None:
    endings = tuple((hour * WHOLE_HOUR, EndedBecause(why) if why else None) for hour, why in hours)
    decision = decided(series, [*BOTH, (40, 0, 0, 0)], (0, 0.5), endings=endings)
    assert (decision.ended_because, decision.decided) == (because, because is not None)


def test_lack_of_contrast_takes_a_day_however_many_units_come(series) -> None:
    assert not decided(series, [*BOTH, *alone(4, 22, 5000)], (0, 0.5), (4, 0.0)).decided
    decision = decided(series, [*BOTH, *alone(4, 30, 5000)], (0, 0.5), (4, 0.0))
    assert decision.at is not None
    assert decision.at - 1920 - (3 * WHOLE_HOUR + 300) >= DAY
