"""The gates: what each alarms at, what it leaves alone, and what it does to a verdict."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from domain.metric import DAY
from domain.policy import Numbers
from stats.counts.arrivals import Arrivals, Epoch, UnknownBuilds
from stats.counts.finding import Findings, LateUnits
from stats.decision.evidence import Evidence, evaluate
from stats.gates.sample_ratio import log_one_sided, log_two_sided, sample_ratio
from stats.looks.series import Guardrail, Series
from tests.stats.conftest import plain_e_value

Maker = Callable[..., Series]
RailMaker = Callable[..., Guardrail]
Cell = tuple[int, int, int, int]
HOUR = 12  # blocks
DELAY = 1920
EVEN = (500, 50, 500, 50)
BETTER = (2000, 300, 2000, 200)
WORSE = (2000, 200, 2000, 300)


def seen_of(series: Maker, strata: list[list[Cell]], **read: Any) -> Evidence:
    """Evidence of cells by stratum and hour."""
    rows = sorted(
        (i * HOUR, stratum, *cell)
        for stratum, cells in enumerate(strata)
        for i, cell in enumerate(cells)
    )
    hours = max(map(len, strata))
    (seen,) = evaluate([series(rows, **{"as_of": hours * 3600 + DELAY, **read})])
    return seen


def arriving(counts: list[tuple[int, int]]) -> Arrivals:
    treatment, others = np.array(counts, dtype=np.int64).T
    block = np.arange(len(counts), dtype=np.int64) * 3600
    return Arrivals(block=block, treatment=treatment, others=others)


def declared(*shares: float | None, every: int = 2 * 3600) -> tuple[Epoch, ...]:
    last = len(shares) - 1
    return tuple(
        Epoch(start=i * every, end=None if i == last else (i + 1) * every, share=share)
        for i, share in enumerate(shares)
    )


def crossed(count: int, *, at: int = 0, block: int = 0) -> Findings:
    computed = np.arange(count, dtype=np.int64)
    return Findings(block=0 * computed + block * 300, stratum=0 * computed, at=0 * computed + at)


def late(treated: int, controlled: int, *, at: int = 300 + DELAY, block: int = 0) -> LateUnits:
    arm = np.array([1] * treated + [0] * controlled, dtype=np.int64)
    return LateUnits(block=0 * arm + block * 300, stratum=0 * arm, arm=arm, at=0 * arm + at)


# Sample ratio


@given(st.integers(0, 250), st.integers(0, 250), st.sampled_from([0.01, 0.2, 0.5, 0.9]))
def test_the_one_sided_sample_ratio_averages_the_likelihood_over_smaller_shares(
    n1, n0, share
) -> None:
    def ratio(theta: float) -> float:
        log = n1 * math.log(theta / share) + n0 * math.log((1 - theta) / (1 - share))
        return math.exp(log)

    peak = min(max(n1 / max(n1 + n0, 1), 1e-9 * share), share)
    value, _ = quad(ratio, 1e-12 * share, share, points=[peak], epsabs=0, epsrel=1e-9, limit=500)
    computed = log_one_sided(np.array([float(n1)]), np.array([float(n0)]), share)[0]
    expected = math.log(value / share)
    assert computed == pytest.approx(expected, abs=1e-6) or computed < expected < -2


def test_far_too_many_treatment_units_leave_the_one_sided_evidence_finite_and_small() -> None:
    computed = log_one_sided(np.array([1e6]), np.array([1e6]), 0.01)[0]
    assert -20 < computed < -10


def test_the_evidence_averages_to_one_under_the_declared_share() -> None:
    n = 40
    k = np.arange(n + 1)
    chance = np.array([math.comb(n, i) * 0.3**i * 0.7 ** (n - i) for i in k])
    treated, others = k.astype(float), (n - k).astype(float)
    for log_e in (log_two_sided(treated, others, 0.3), log_one_sided(treated, others, 0.3)):
        assert np.sum(chance * np.exp(log_e)) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(
    ("known", "unknown", "alarms"),
    [
        # Others' jobs, or a frontend that names no commit in either arm.
        ((500, 500), 900, False),
        ((200, 500), 900, True),
        # The base alone names none, in a frontend of two, or in all.
        ((500, 250), 250, False),
        ((500, 0), 500, False),
        ((200, 0), 500, True),
    ],
)
def test_units_of_an_unknown_build_are_no_evidence_beside_shares_that_are_kept(
    known, unknown, alarms
) -> None:
    zeros = np.zeros((1, 1), dtype=np.int64)
    reading = sample_ratio(
        declared(0.5),
        Arrivals(
            block=np.zeros(1, dtype=np.int64),
            treatment=np.array(known[:1]),
            others=np.array(known[1:]),
            nameless=UnknownBuilds(
                units=zeros, named=zeros, treatment=zeros, others=zeros + unknown
            ),
        ),
        at=np.array([DELAY]),
        block_seconds=300,
        grace_seconds=120,
    )
    assert [reading.alarm[0], reading.log_too_few[0] >= math.log(1000)] == [alarms] * 2


def test_the_alarm_stays_also_when_the_shares_even_out(series) -> None:
    read = {
        "allocation": declared(0.5),
        "arrivals": arriving([(600, 100), *[(500, 1000)] * 1, *[(500, 500)] * 8]),
    }
    seen = seen_of(series, [[EVEN] * 10], **read)
    assert seen.gates.sample_ratio_e is not None
    assert seen.gates.sample_ratio_e < 1000
    assert seen.gates.interacting_because == ("sample_ratio",)


def test_the_first_hour_of_a_later_share_is_left_out(series) -> None:
    lagging = [(10, 990), (10, 990), (10, 990), (500, 500), (500, 500)]
    read = {"allocation": declared(0.01, 0.5), "arrivals": arriving(lagging)}
    seen = seen_of(series, [[EVEN] * 5], **read)
    assert seen.gates.interacting_because == ()
    slower = [*lagging[:3], (10, 990), (500, 500)]
    seen = seen_of(series, [[EVEN] * 5], **{**read, "arrivals": arriving(slower)})
    assert seen.gates.interacting_because == ("sample_ratio",)


def test_a_block_that_reaches_over_a_change_of_share_is_in_no_epoch(series) -> None:
    allocation = (
        Epoch(start=0, end=3600 + 60, share=0.5),
        Epoch(start=3600 + 60, end=None, share=None),
    )
    read = {"allocation": allocation, "arrivals": arriving([(500, 500), (900, 10)])}
    assert seen_of(series, [[EVEN] * 2], **read).gates.interacting_because == ()


def test_undeclared_shares_are_not_held_against_arrivals_and_a_warning_says_so(series) -> None:
    read = {"allocation": declared(None), "arrivals": arriving([(900, 100)] * 2)}
    seen = seen_of(series, [[EVEN] * 2], **read)
    assert seen.gates.sample_ratio_e is None
    assert seen.warnings == ("allocation_undeclared",)
    assert seen.guardrails == ()


def test_a_block_of_arrivals_counts_once_its_grace_has_passed(series) -> None:
    read = {"allocation": declared(0.5), "arrivals": arriving([(500, 500), (900, 100)])}
    seen = seen_of(series, [[EVEN] * 2], **read, as_of=300 + DELAY)
    assert seen.gates.interacting_because == ()


def test_a_candidate_whose_treatment_dies_is_not_kept(series) -> None:
    # Few enough missing that only the evidence of harm has reached its threshold.
    for missing in range(80, 200):
        counts = (500 - missing, 500)
        arrays = [np.array([float(one_sided)]) for one_sided in counts]
        one_sided, two_sided = log_one_sided(*arrays, 0.5)[0], log_two_sided(*arrays, 0.5)[0]
        if one_sided >= math.log(1000) > two_sided:
            break
    else:
        pytest.skip("both evidences reach the threshold together")
    read = {"allocation": declared(0.5), "arrivals": arriving([counts])}
    seen = seen_of(series, [[BETTER]], **read)
    assert (seen.decision.verdict, seen.decision.guardrail_breaches) == ("iterate", ("arrival",))


# Crossover


@pytest.mark.parametrize(
    ("count", "units", "alarm"),
    [(9, 100, False), (10, 200, False), (10, 198, True), (51, 1000, True), (50, 1000, False)],
)
def test_ten_units_and_more_than_five_percent_found_in_both_arms_are_a_router_fault(
    *, count, units, alarm, series
) -> None:
    cell = (units // 2, 5, units // 2, 5)
    seen = seen_of(series, [[cell]], crossings=crossed(count))
    assert seen.gates.crossover_share == pytest.approx(count / units)
    assert (seen.gates.interacting_because == ("crossover",)) == alarm
    assert (seen.decision.abstain_reason == "interacting") == alarm


def test_a_crossing_counts_once_received_and_with_the_cell_of_its_unit(series) -> None:
    cells = [[(100, 5, 100, 5)] * 3]
    later = crossed(40, at=2 * 3600)
    assert seen_of(series, cells, crossings=later, as_of=6000).gates.crossover_share == 0.0
    assert seen_of(series, cells, crossings=later).gates.crossover_share == pytest.approx(40 / 600)
    open_still = crossed(40, at=10, block=HOUR)
    seen = seen_of(series, cells, crossings=open_still, as_of=300 + DELAY)
    assert seen.gates.crossover_share == 0.0
    assert seen.gates.interacting_because == ()


# Lateness


def test_outcomes_that_come_too_late_in_one_arm_are_interacting(series) -> None:
    cell = (5000, 400, 5000, 500)
    seen = seen_of(series, [[cell, cell]], late=late(100, 5))
    assert seen.gates.lateness_e == pytest.approx(plain_e_value((500, 100), (505, 5)), rel=1e-9)
    assert seen.gates.interacting_because == ("lateness",)
    assert seen.decision.abstain_reason == "interacting"


def test_a_late_outcome_counts_once_received(series) -> None:
    cells = [[(5000, 400, 5000, 400)] * 3]
    computed = late(100, 0, at=3600 + 300 + DELAY)
    before = seen_of(series, cells, late=computed, as_of=3600 + 300 + DELAY - 1)
    assert before.gates.lateness_e == 1.0
    then = seen_of(series, cells, late=computed, as_of=3600 + 300 + DELAY)
    assert then.gates.lateness_e == pytest.approx(plain_e_value((500, 100), (400, 0)), rel=1e-9)


# Interaction


def scaled(rate: float, ratio: float, units: int = 4000) -> Cell:
    return units, round(units * rate * ratio), units, round(units * rate)


def test_the_evidence_of_interaction_is_that_of_the_specification(series) -> None:
    a, b = (4000, 560, 3000, 300), (2000, 130, 2500, 180)
    seen = seen_of(series, [[a], [b]])

    def log_ratio(n1: int, x1: int, n0: int, x0: int) -> tuple[float, float]:
        n, m = n1 + n0, x1 + x0
        R1, R0 = x1 * n0 / n, x0 * n1 / n
        return math.log(R1 / R0), (m * n1 * n0 / n**2 - x1 * x0 / n) / (R1 * R0)

    (g, v), (h, w) = log_ratio(*a), log_ratio(*b)
    S, V = (g - h) / (v + w), 1 / (v + w)
    parts = [math.sqrt(r / (r + V)) * math.exp(S * S / (2 * (r + V))) for r in (25.0, 4.0)]
    assert seen.gates.interaction_e == pytest.approx(sum(parts) / 2, rel=1e-9)


def test_with_more_strata_the_evidence_is_shared_by_their_number(series) -> None:
    two_sided = seen_of(series, [[scaled(0.1, 1.5)], [scaled(0.1, 1.0, 8000)]])
    three = seen_of(series, [[scaled(0.1, 1.5)], [scaled(0.1, 1.0)], [scaled(0.1, 1.0)]])
    assert two_sided.gates.interaction_e is not None
    assert three.gates.interaction_e == pytest.approx(two_sided.gates.interaction_e / 3, rel=1e-9)


@pytest.mark.parametrize("cell", [(500, 9, 500, 50), (500, 50, 500, 9), (500, 50, 0, 0)])
def test_a_stratum_is_compared_once_each_arm_has_ten_conversions(cell, series) -> None:
    seen = seen_of(series, [[EVEN], [cell]])
    assert seen.gates.interaction_e is None


def test_interaction_is_told_as_it_is_now(series) -> None:
    even = [scaled(0.1, 1.0, 40_000)] * 4
    seen = seen_of(
        series, [[scaled(0.1, 1.5), *even], [scaled(0.1, 0.8), *even]], policy=Numbers(alpha=1e-9)
    )
    assert seen.looks[0].gated
    assert not seen.looks[-1].gated
    assert seen.gates.interacting_because == ()


def test_strata_that_differ_do_not_hold_back_harm_that_is_in_all_of_them(series) -> None:
    seen = seen_of(series, [[scaled(0.1, 0.9)] * 3, [scaled(0.1, 0.4)] * 3])
    assert seen.decision.verdict == "rollback"
    assert seen.gates.interacting_because == ("interaction",)
    mixed = seen_of(series, [[scaled(0.1, 1.1)] * 3, [scaled(0.1, 0.4)] * 3])
    assert mixed.decision.abstain_reason == "interacting"
    lower = Numbers(better="lower")
    flipped = seen_of(series, [[scaled(0.1, 1.1)] * 3, [scaled(0.1, 1.8)] * 3], policy=lower)
    assert flipped.decision.verdict == "rollback"
    good = seen_of(series, [[scaled(0.1, 1.1)] * 3, [scaled(0.1, 1.8)] * 3])
    assert good.decision.abstain_reason == "interacting"


def test_a_gain_made_of_strata_too_thin_to_compare_is_held_back(series) -> None:
    falling = [[scaled(0.1, 0.9)] * 3, [scaled(0.1, 0.4)] * 3]
    thin = [(2000, 1900, 2000, 3)] * 3
    seen = seen_of(series, [*falling, thin])
    assert seen.totals.S > 0
    assert seen.totals.p_value < 0.05
    assert seen.decision.abstain_reason == "interacting"


def test_evidence_below_its_alarm_holds_nothing_back(series) -> None:
    seen = seen_of(series, [[scaled(0.1, 1.3)], [scaled(0.1, 1.0)]], late=late(20, 1))
    for e_value in (seen.gates.interaction_e, seen.gates.lateness_e):
        assert e_value is not None
        assert 10 < e_value < 100
    assert seen.gates.interacting_because == ()


@pytest.mark.parametrize(
    "read",
    [
        {"allocation": declared(0.5), "arrivals": arriving([(720, 500)] * 4)},
        {"crossings": crossed(4000)},
        {"late": late(500, 5)},
    ],
)
def test_the_other_gates_hold_back_harm_too(read, series) -> None:
    for strata in ([[WORSE] * 3], [[WORSE] * 3] * 2):
        assert seen_of(series, strata, **read).decision.abstain_reason == "interacting"


# Several at once, and their order


def test_the_evidence_shows_every_gate_also_where_one_masks_the_others(series) -> None:
    cells = [[(50_000, 5000, 5, 1), (5, 1, 50_000, 2500)]] * 1
    read = {
        "allocation": declared(0.5),
        "arrivals": arriving([(900, 500)] * 2),
        "crossings": crossed(10_000),
        "late": late(900, 0),
    }
    seen = seen_of(series, cells, **read)
    assert seen.decision.abstain_reason == "non_identifiable"
    assert seen.gates.interacting_because[:2] == ("sample_ratio", "crossover")
    assert seen.gates.vif == seen.vif


def test_closing_comes_before_a_gate_and_keeps_its_reason(series) -> None:
    policy = Numbers(horizon_seconds=4 * 3600)
    seen = seen_of(series, [[BETTER] * 6], crossings=crossed(9000), policy=policy, as_of=2 * DAY)
    assert (seen.decision.ended_because, seen.decision.abstain_reason) == ("horizon", "interacting")
    assert seen.decision.decided


def test_a_sticky_gate_holds_a_waiting_candidate_back(series, guardrail) -> None:
    unsure = guardrail([(i * HOUR, 0, 2000, 5, 2000, 5) for i in range(60)], margin=1e-4)
    cells = [[BETTER, *[(2000, 250, 2000, 200)] * 59]]
    free = seen_of(series, cells, guardrails=(unsure,))
    assert free.decision.verdict == "keep"
    held = seen_of(series, cells, guardrails=(unsure,), crossings=crossed(900, at=2 * 3600))
    assert held.candidate is not None
    assert (held.decision.abstain_reason, held.decision.decided) == ("interacting", False)


def test_strata_that_come_to_differ_hold_a_waiting_candidate_back_while_they_do(
    series, guardrail
) -> None:
    first, then = [scaled(0.1, 1.5)] * 2, ([scaled(0.1, 2.0)] * 40, [scaled(0.1, 0.8)] * 40)
    cells = [[first[0], *then[0]], [first[1], *then[1]]]
    rows = sorted((i * HOUR, s, 4000, 4, 4000, 4) for s in range(2) for i in range(41))
    rail = guardrail(rows, margin=1e-4)
    held = seen_of(series, cells, guardrails=(rail,))
    assert held.candidate is not None
    assert held.gates.interacting_because == ("interaction",)
    assert (held.decision.abstain_reason, held.decision.decided) == ("interacting", False)
    again = [[*cells[0], *then[1]], [*cells[1], *then[0]]]
    rows = sorted((i * HOUR, s, 4000, 4, 4000, 4) for s in range(2) for i in range(81))
    free = seen_of(series, again, guardrails=(guardrail(rows, margin=1e-4),))
    assert free.gates.interacting_because == ()
    assert (free.decision.verdict, free.warnings) == ("keep", ("guardrails_unproven",))


def test_a_candidate_that_is_held_back_is_closed_for_lack_of_contrast(series, guardrail) -> None:
    rows = [(0, 0, *BETTER), *[(i * HOUR, 0, 60, 6, 0, 0) for i in range(1, 60)]]
    rail = guardrail([(b, s, n1, 0, n0, 0) for b, s, n1, _, n0, _ in rows], margin=1e-4)
    (seen,) = evaluate(
        [series(rows, guardrails=(rail,), crossings=crossed(900, at=4000), as_of=3 * DAY)]
    )
    # Whatever ended it, what was compared is not the change's alone.
    assert (seen.decision.ended_because, seen.decision.abstain_reason) == (
        "promoted",
        "interacting",
    )


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (lambda: Epoch(start=0, end=None, share=1.5), "share"),
        (lambda: Epoch(start=10, end=5, share=0.5), "end"),
        (lambda: Arrivals(block=np.zeros(2), treatment=np.zeros(2), others=np.zeros(2)), "ascend"),
        (lambda: Arrivals(block=np.zeros(2), treatment=np.zeros(1), others=np.zeros(2)), "length"),
    ],
)
def test_what_contradicts_itself_cannot_be_built(build, rule) -> None:
    with pytest.raises(ValueError, match=rule):
        build()
