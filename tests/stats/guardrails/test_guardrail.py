"""Guardrails: when harm is reported, when it is excluded, and what that does to a verdict."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from domain.document import moment
from domain.metric import DAY
from domain.policy import Numbers
from stats.decision.evidence import Evidence, evaluate
from stats.looks.series import Guardrail, Series
from stats.sequential.harm import log_harm
from tests.stats.conftest import look_times

Maker = Callable[..., Series]
RailMaker = Callable[..., Guardrail]
Row = tuple[int, ...]
HOUR = 12  # blocks
DELAY = 1920
RAIL_DELAY = 420

BETTER = (2000, 300, 2000, 200)
WORSE = (2000, 200, 2000, 300)
EVEN = (2000, 200, 2000, 200)
MILD = (2000, 260, 2000, 200)
# Of the same 2000 units an arm.
SAFE = (2000, 100, 2000, 400)
UNSURE = (2000, 20, 2000, 20)
HARMED = (2000, 120, 2000, 20)


def hourly(cells: list[tuple[int, int, int, int]]) -> list[Row]:
    return [(i * HOUR, 0, *cell) for i, cell in enumerate(cells)]


def seen_of(
    series: Maker, cells: list[tuple[int, int, int, int]], rails: tuple[Guardrail, ...], **read: Any
) -> Evidence:
    options = {"as_of": 40 * DAY, **read}
    (seen,) = evaluate([series(hourly(cells), guardrails=rails, **options)])
    return seen


@given(st.floats(-1e3, 1e3), st.floats(0, 1e5))
def test_harm_is_a_half_normal_mixture(score, variance) -> None:
    """The closed form against plain arithmetic."""
    parts = []
    for rho in (25.0, 4.0):
        total = rho + variance
        log = 0.5 * math.log(rho / total) + score**2 / (2 * total)
        parts.append(math.log(2) + log + float(norm.logcdf(score / math.sqrt(total))))
    expected = np.logaddexp(*parts) - math.log(2)
    computed = log_harm(np.array([score]), np.array([variance]), np.array([[25.0, 4.0]]))[0]
    assert computed == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("better", "cell", "breached"),
    [("lower", HARMED, True), ("lower", SAFE, False), ("higher", SAFE, True)],
)
def test_a_guardrail_is_breached_on_its_harmful_side_alone(
    *, better, cell, breached, series, guardrail
) -> None:
    rail = guardrail(hourly([cell]), better=better)
    seen = seen_of(series, [EVEN], (rail,), as_of=4000)
    assert seen.decision.guardrail_breaches == (("error",) if breached else ())
    (reading,) = seen.guardrails
    assert reading.lift == pytest.approx((cell[1] - cell[3]) / 2000)
    assert (reading.breached_at is not None) == (reading.e_value >= reading.threshold)


@pytest.mark.parametrize("cell", [(2000, 5, 500, 3), (300, 9, 2000, 20)])
def test_harm_is_set_against_the_larger_of_both_variances(cell, series, guardrail) -> None:
    n1, x1, n0, x0 = cell
    n, m = n1 + n0, x1 + x0
    w, score = n1 * n0 / n, (x1 * n0 - x0 * n1) / n
    V0 = w * m * (n - m) / (n * (n - 1))
    P = (n1**2 * x0 - n0**2 * x1 + n1 * n0 * (n0 - n1) / 2) / n**2
    V1 = score / w * P + (x1 * (n0 - x0) + x0 * (n1 - x1)) / (2 * n)
    arrays = [np.array([score]), np.array([max(V0, V1)]), np.array([[25.0, 4.0]])]
    rail = guardrail(hourly([cell]))
    seen = seen_of(series, [(n1, 0, n0, 0)], (rail,), as_of=4000)
    assert abs(V1 / V0 - 1) > 0.01
    assert seen.guardrails[0].e_value == pytest.approx(math.exp(log_harm(*arrays)[0]), rel=1e-9)


def test_each_closing_of_a_guardrail_is_a_look(series, guardrail) -> None:
    rail = guardrail(hourly([UNSURE, HARMED]))
    seen = seen_of(series, [EVEN, EVEN], (rail,), as_of=3600 + 300 + DELAY)
    closings = [300, 3600, 3900]
    assert look_times(seen) == sorted(
        {end + delay for end in (300, 3900) for delay in (DELAY, RAIL_DELAY)}
    ), closings
    early = seen_of(series, [EVEN, EVEN], (rail,), as_of=300 + RAIL_DELAY)
    assert (early.arms.treatment.units, early.vif, early.totals.lift) == (0, None, None)
    assert early.guardrails[0].lift == 0.0


def test_a_breach_is_told_before_the_target_has_closed_and_stays(series, guardrail) -> None:
    rail = guardrail(hourly([HARMED, *[SAFE] * 5]))
    early = seen_of(series, [EVEN] * 6, (rail,), as_of=300 + RAIL_DELAY)
    assert early.decision.guardrail_breaches == ("error",)
    late = seen_of(series, [EVEN] * 6, (rail,), as_of=DAY)
    assert late.guardrails[0].e_value < late.guardrails[0].threshold
    assert late.guardrails[0].breached_at == moment(300 + RAIL_DELAY)


def test_several_guardrails_share_their_level(series, guardrail) -> None:
    names = ["error", "bounce", "slow"]
    rails = tuple(guardrail(hourly([UNSURE]), name=name) for name in names)
    seen = seen_of(series, [EVEN], rails, as_of=4000, policy=Numbers(guardrail_alpha=0.06))
    assert [rail.threshold for rail in seen.guardrails] == pytest.approx([50.0] * 3)


def test_an_early_reading_takes_none_of_the_guardrails_level_and_breaches_nothing(
    series, guardrail
) -> None:
    early = replace(guardrail(hourly([HARMED]), name="paid so far"), watch_only=True)
    rails = (guardrail(hourly([UNSURE]), name="error"), early)
    seen = seen_of(series, [EVEN], rails, as_of=300 + RAIL_DELAY)
    assert [rail.metric for rail in seen.guardrails] == ["error"]
    assert seen.guardrails[0].threshold == pytest.approx(20.0)
    assert [row.state for row in seen.guardrail_rows] == ["fewer_so_far", "not_known"]
    assert seen.decision.guardrail_breaches == ()
    assert "fewer_so_far" in seen.warnings


def test_a_candidate_waits_for_its_guardrails_and_serves_the_numbers_of_the_look_that_decides(
    series, guardrail
) -> None:
    targets = [BETTER, MILD, MILD, MILD]
    rail = guardrail(hourly([UNSURE, UNSURE, UNSURE, SAFE]))
    waiting = seen_of(series, targets, (rail,), as_of=3 * 3600)
    assert (waiting.decision.verdict, waiting.decision.abstain_reason) == ("abstain", "power")
    assert (waiting.decision.decided, waiting.decision.lift) == (False, None)
    assert waiting.candidate is not None
    assert waiting.candidate.waits_for == ("error",)
    kept = seen_of(series, targets, (rail,))
    assert kept.decision.verdict == "keep"
    assert kept.decision.at == 3 * 3600 + 300 + RAIL_DELAY
    assert waiting.candidate.lift == pytest.approx(0.05)
    # The guardrail closes first: the target's fourth cell is not in yet.
    assert kept.decision.lift == kept.totals.lift == pytest.approx((0.05 + 2 * 0.03) / 3)
    assert kept.decision.ci == kept.totals.ci
    assert kept.decision.confidence == 1 - kept.totals.p_running_min
    assert kept.candidate is not None
    assert (kept.candidate.at, kept.candidate.lift) == (moment(300 + DELAY), waiting.candidate.lift)
    assert kept.warnings == ()


@pytest.mark.requirement("contract.confidence")
def test_confidence_keeps_the_strongest_look_though_a_later_one_decides(series, guardrail) -> None:
    even = (2000, 200, 2000, 200)
    rail = guardrail(hourly([UNSURE, UNSURE, SAFE]))
    kept = seen_of(series, [BETTER, even, even], (rail,))
    assert (kept.decision.verdict, kept.decision.at) == ("keep", 2 * 3600 + 300 + RAIL_DELAY)
    assert kept.candidate is not None
    assert kept.totals.p_value is not None
    assert kept.decision.confidence == kept.candidate.confidence > 1 - kept.totals.p_value


def test_a_candidate_is_kept_only_at_a_look_at_which_the_test_holds(series, guardrail) -> None:
    rail = guardrail(hourly([*[UNSURE] * 10, *[SAFE] * 60]), margin=0.001)
    faded = [BETTER, *[EVEN] * 40]
    waiting = seen_of(series, faded, (rail,), as_of=41 * 3600)
    assert waiting.guardrails[0].non_inferior_at is not None
    assert waiting.totals.p_value > 0.05
    assert (waiting.decision.decided, waiting.decision.lift) == (False, None)
    assert waiting.candidate is not None
    assert waiting.candidate.waits_for == ()
    kept = seen_of(series, [*faded, *[BETTER] * 10], (rail,), as_of=60 * 3600)
    assert kept.decision.verdict == "keep"
    assert kept.decision.at is not None
    assert kept.decision.at > 41 * 3600
    assert kept.totals.p_value <= 0.05
    assert kept.decision.ci is not None
    assert kept.decision.ci[0] > 0


def test_a_candidate_that_turns_out_worse_is_rolled_back(series, guardrail) -> None:
    rail = guardrail(hourly([UNSURE] * 9), margin=1e-4)
    seen = seen_of(series, [BETTER, *[WORSE] * 8], (rail,))
    assert (seen.decision.verdict, seen.decision.decided) == ("rollback", True)
    assert seen.candidate is not None
    assert seen.decision.lift is not None
    assert seen.decision.lift < 0


def test_a_waiting_candidate_is_not_ended_by_futility(series, guardrail) -> None:
    many = (4_000_000, 400_000, 4_000_000, 400_000)
    rail = guardrail(hourly([UNSURE] * 2), margin=1e-4)
    policy = Numbers(futility_margin=0.05)
    alone = seen_of(series, [EVEN, many], (rail,), policy=policy, as_of=9000)
    assert alone.decision.ended_because == "futility"
    waiting = seen_of(series, [BETTER, many], (rail,), policy=policy, as_of=9000)
    assert waiting.candidate is not None
    assert not waiting.decision.decided


def test_a_breach_while_waiting_is_to_be_iterated(series, guardrail) -> None:
    rail = guardrail(hourly([UNSURE, HARMED, SAFE]))
    seen = seen_of(series, [BETTER, EVEN, EVEN], (rail,))
    assert (seen.decision.verdict, seen.decision.at) == ("iterate", 3900 + RAIL_DELAY)


@pytest.mark.parametrize(("hours", "kept"), [(6, False), (25, True)])
def test_a_waiting_candidate_is_answered_at_the_horizon_only_by_its_own_rule(
    *, hours, kept, series, guardrail
) -> None:
    policy = Numbers(horizon_seconds=hours * 3600)
    # The other units come in the last block before the horizon: the wait ends there or never.
    last = hours * HOUR - 1
    rail = guardrail([(0, 0, *UNSURE), (last, 0, *UNSURE)], margin=1e-4)
    rows = [(0, 0, *BETTER), (last, 0, *BETTER)]
    (seen,) = evaluate([series(rows, guardrails=(rail,), policy=policy, as_of=40 * DAY)])
    assert seen.decision.at == hours * 3600 + DELAY
    assert seen.decision.decided
    assert seen.candidate is not None
    assert seen.decision.verdict == ("keep" if kept else "abstain")
    assert seen.decision.ended_because == (None if kept else "horizon")
    assert seen.warnings == (("guardrails_unproven",) if kept else ())


def test_a_waiting_candidate_is_not_closed_for_lack_of_contrast(series, guardrail) -> None:
    rail = guardrail([*hourly([UNSURE]), *[(i * HOUR, 0, 60, 0, 0, 0) for i in range(1, 80)]])
    rows = [*hourly([BETTER]), *[(i * HOUR, 0, 60, 6, 0, 0) for i in range(1, 80)]]
    for as_of, decided in ((2 * DAY, False), (10 * DAY, True)):
        (seen,) = evaluate([series(rows, guardrails=(rail,), as_of=as_of)])
        assert seen.decision.decided == decided
    assert (seen.decision.verdict, seen.warnings) == ("keep", ("guardrails_unproven",))


def test_a_waiting_candidate_can_be_closed_by_hand(series, guardrail) -> None:
    rail = guardrail(hourly([UNSURE] * 9))
    seen = seen_of(series, [BETTER] * 9, (rail,), closed_at=2 * 3600)
    assert (seen.decision.verdict, seen.decision.ended_because) == ("abstain", "closed")
    assert seen.decision.lift is None


def test_a_guardrail_without_a_margin_is_not_waited_for(series, guardrail) -> None:
    seen = seen_of(series, [BETTER], (guardrail(hourly([UNSURE]), margin=None),))
    assert (seen.decision.verdict, seen.decision.at) == ("keep", 300 + DELAY)
    assert seen.warnings == ()
    assert seen.guardrails[0].non_inferior_at is None


@pytest.mark.parametrize(
    ("margin", "rate", "rise", "proven"),
    [
        ("default", 0.1, 0.015, True),  # within a fifth
        ("default", 0.01, 0.003, True),  # within half a point
        ("default", 0.001, 0.002, False),  # half a point would let errors triple
        ("default", 0.001, 0.0003, True),  # they may double
        ("default", 0.0001, 0.0004, True),  # within a tenth of a point
        ("default", 0.0001, 0.0015, False),
        ("default", 0.0, 0.0, True),
        (0.002, 0.01, 0.003, False),
        (0.02, 0.01, 0.003, True),
    ],
)
def test_the_margin_is_as_registered_or_by_the_rate_and_no_less_than_a_tenth_of_a_point(
    *, margin, rate, rise, proven, series, guardrail
) -> None:
    n = 400_000
    cells = hourly([(n, round(n * (rate + rise)), n, round(n * rate))])
    rail = guardrail(cells, margin=margin)
    seen = seen_of(series, [(n, 0, n, 0)], (rail,), as_of=4000)
    assert (seen.guardrails[0].non_inferior_at is not None) == proven


def test_blocks_are_joined_by_the_metric_that_closes_first(series, guardrail) -> None:
    rows = [(block, 0, 10, 1, 10, 1) for block in range(12)]
    rail = guardrail(rows)
    (alone,) = evaluate([series(rows, as_of=3600 + DELAY)])
    (both,) = evaluate([series(rows, guardrails=(rail,), as_of=3600 + DELAY)])
    assert both.log_e == alone.log_e
    assert set(look_times(alone)) < set(look_times(both))
    (ahead,) = evaluate([series([], guardrails=(rail,), as_of=900 + RAIL_DELAY)])
    assert look_times(ahead) == [end + RAIL_DELAY for end in (300, 600, 900)]


@pytest.mark.parametrize(
    ("member", "value"),
    [("better", "faster"), ("window_seconds", -1), ("margin", 0.0), ("margin", math.inf)],
)
def test_a_guardrail_out_of_range_cannot_be_built(member, value, guardrail) -> None:
    with pytest.raises(ValueError, match=member):
        guardrail([], **{member: value})


def test_a_guardrail_stands_once(series, guardrail) -> None:
    with pytest.raises(ValueError, match="once"):
        series([], guardrails=(guardrail([]), guardrail([])))


# Units of a first value at the same speed in both arms, and their picks by position, each a cell.
FIRST = (2000, 200, 2000, 200)
SLOW_LATER = ((800, 80, 800, 80), (600, 240, 600, 60), (400, 160, 400, 40), (200, 80, 200, 20))
# At equal speed the latest events are the slowest in both arms, and treatment has more of them.
MORE_LATER = ((800, 80, 800, 80), (200, 40, 600, 120), (400, 120, 400, 120), (600, 360, 200, 120))


def log_harm_of(*cells: tuple[int, int, int, int]) -> float:
    """The evidence of a sum of cells, by the formulas of docs/statistics.md."""
    S = W = V0 = P = Q = 0.0
    for n1, x1, n0, x0 in cells:
        n, m = n1 + n0, x1 + x0
        w = n1 * n0 / n
        S, W = S + (x1 * n0 - x0 * n1) / n, W + w
        V0 += w * m * (n - m) / (n * (n - 1))
        P += (n1**2 * x0 - n0**2 * x1 + n1 * n0 * (n0 - n1) / 2) / n**2
        Q += (x1 * (n0 - x0) + x0 * (n1 - x1)) / (2 * n)
    arrays = [np.array([S]), np.array([max(V0, S / W * P + Q)]), np.array([[25.0, 4.0]])]
    return float(log_harm(*arrays)[0])


@pytest.mark.parametrize(
    ("picked", "breached"), [(SLOW_LATER, True), (MORE_LATER, False), ((FIRST,) * 1, False)]
)
def test_picked_events_breach_where_they_are_slower_within_their_positions_too(
    *, picked, breached, series, guardrail
) -> None:
    cells = tuple(guardrail(hourly([cell])).cells for cell in picked)
    rail = replace(guardrail(hourly([FIRST])), over=1000.0, picked=cells)
    seen = seen_of(series, [EVEN], (rail,), as_of=4000)
    assert seen.decision.guardrail_breaches == (("error",) if breached else ())
    whole = (2000, sum(cell[1] for cell in picked), 2000, sum(cell[3] for cell in picked))
    both = min(log_harm_of(whole), log_harm_of(*picked))
    expected = (math.exp(log_harm_of(FIRST)) + math.exp(both)) / 2
    assert seen.guardrails[0].e_value == pytest.approx(expected, rel=1e-9)
    # By the picks alone more requests of a slower kind would be harm.
    assert breached or picked[0] == FIRST or log_harm_of(whole) > math.log(100)
    (row,) = seen.guardrail_rows
    assert row.picked == breached


def log_differ_of(*cells: tuple[int, int, int, int]) -> float:
    """The evidence that the arms' rates differ, by the formulas of docs/statistics.md."""
    S = V = 0.0
    for n1, x1, n0, x0 in cells:
        n, m = n1 + n0, x1 + x0
        S, V = S + (x1 * n0 - x0 * n1) / n, V + n1 * n0 * m * (n - m) / (n * n * (n - 1))
    each = [math.sqrt(rho / (rho + V)) * math.exp(S * S / (2 * (rho + V))) for rho in (25, 4)]
    return math.log(sum(each) / 2)


def slower_everywhere(treatment: int, control: int) -> tuple[tuple[int, int, int, int], ...]:
    """Picks of 2,000 units an arm at two positions, slower in treatment at the later.

    Args:
        treatment: Units of treatment whose pick is beyond the first position.
    """
    firsts, later = (2000 - treatment, 2000 - control), (treatment, control)
    return (
        (firsts[0], firsts[0] // 10, firsts[1], firsts[1] // 10),
        (later[0], 4 * later[0] // 10, later[1], later[1] // 10),
    )


@pytest.mark.parametrize(
    ("blocks", "read"),
    [
        ([(1000, 1000)], True),
        ([(1114, 1000)], True),
        ([(1115, 1000)], False),
        ([(1000, 1115)], False),
        # That the arms differ is known from then on; and of a breach before it nothing is undone.
        ([(1115, 1000), (1000, 1115)], False),
        ([(1000, 1000), (1300, 1000)], True),
    ],
)
def test_picks_are_read_until_the_arms_differ_in_requests_per_unit(
    *, blocks, read, series, guardrail
) -> None:
    picked = zip(*(slower_everywhere(*later) for later in blocks), strict=True)
    cells = tuple(guardrail(hourly(own)).cells for own in picked)
    rail = replace(guardrail(hourly([FIRST] * len(blocks))), over=1000.0, picked=cells)
    rows = [EVEN] * len(blocks)
    seen = seen_of(series, rows, (rail,), as_of=len(blocks) * 3600 + 400)
    assert seen.decision.guardrail_breaches == (("error",) if read else ())
    (treatment, control), *_ = blocks
    known = log_differ_of((2000, treatment, 2000, control)) >= math.log(100)
    assert known != read
    if known:
        first = log_harm_of(*[FIRST] * len(blocks))
        assert seen.guardrails[0].e_value == pytest.approx(math.exp(first) / 2, rel=1e-9)
