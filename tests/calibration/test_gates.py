"""Calibration of guardrails, gates, futility and continuous metrics on simulated traffic."""

from typing import Any

import numpy as np
import pytest

from benchmarks.calibration.proportion import Proportion, bounds
from benchmarks.calibration.scenario import (
    better_target,
    evaluated,
    family_of_guardrails,
    of_one_stratum,
    of_shares,
    of_two_segments,
    partly_after_the_window,
    partly_left_out,
    ramp_declared,
    shares_seen,
    small_difference,
    stratified,
    units,
    with_a_cold_start,
    with_effects,
    with_forged_units,
    with_late_outcomes,
)
from benchmarks.calibration.traffic import BLOCKS_A_DAY, Floats, Ints
from stats.counts.closed_cells import Values
from stats.looks.series import Series
from tests.repetition import also_nightly


def sizes(small: int, full: int) -> list[Any]:
    return [
        pytest.param(small, id="small"),
        pytest.param(full, id="full", marks=[pytest.mark.calibration, pytest.mark.timeout(3600)]),
    ]


def report(name: str, hits: int, count: int, claim: float | None) -> tuple[float, float]:
    """Prints a row of the calibration's table, and gives the share's sure bounds."""
    row = Proportion(name=name, hits=hits, count=count, at_most=claim).row()
    print(row)  # noqa: T201  # the table is what the full calibration is run for
    return bounds(hits, count)


# Guardrails


@pytest.mark.parametrize("count", sizes(100, 2000))
@pytest.mark.parametrize("family", also_nightly([10], [1, 3, 5]))
def test_a_family_of_guardrails_is_falsely_breached_no_more_often_than_its_level(
    family: int, count: int
) -> None:
    draw = family_of_guardrails(family, days=3 if count < 1000 else 7)
    hits = sum(bool(seen.guardrail_breaches) for seen in evaluated(draw, count, 20_261_201))
    low, _ = report(f"false breaches of {family} guardrails", hits, count, 0.05)
    assert low <= 0.05


@pytest.mark.parametrize("count", sizes(100, 2000))
def test_a_change_that_helps_the_target_and_raises_errors_is_seldom_kept(count: int) -> None:
    """Target +20 %, errors 1 → 1.5 %."""
    draw = better_target(errors=0.015)
    result = [seen.decision for seen in evaluated(draw, count, 20_261_202)]
    kept = sum(each.verdict == "keep" for each in result)
    iterated = sum(each.verdict == "iterate" for each in result)
    report("target +20 %, errors 1 → 1.5 %: iterate", iterated, count, None)
    low, _ = report("target +20 %, errors 1 → 1.5 %: kept", kept, count, 0.1)
    assert low <= 0.1
    assert iterated > 0.8 * count


@pytest.mark.parametrize("count", sizes(60, 1000))
def test_a_change_that_harms_no_guardrail_is_kept(count: int) -> None:
    waited: list[int] = []

    draw = better_target(errors=0.01)
    kept = 0
    for seen in evaluated(draw, count, 20_261_203):
        kept += seen.decision.verdict == "keep"
        if seen.candidate is not None and seen.decision.at is not None:
            waited.append(seen.decision.at - seen.candidate.at.timestamp())
    name = f"target +20 %, errors 1 %: kept (waited {np.mean(waited) / 3600:.1f} h)"
    _, high = report(name, kept, count, None)
    assert high >= 0.9


# Sample ratio


@pytest.mark.parametrize("count", sizes(150, 5000))
@pytest.mark.parametrize(
    "name", also_nightly(["ramp, router ten minutes late"], ["1 %", "50 %", "ramp"])
)
def test_declared_shares_that_are_kept_raise_no_alarm(name: str, count: int) -> None:
    rng = np.random.default_rng(20_261_204)
    allocation = {"1 %": ramp_declared(0.01), "50 %": ramp_declared(0.5)}.get(
        name, ramp_declared(0.01, 0.05, 0.25, 0.5)
    )
    days = 6 if count < 1000 else 28
    lag = 600 if "late" in name else 0
    both = few = 0
    for _ in range(count):
        result = shares_seen(rng, allocation, days=days, lag=lag)
        both += bool(np.any(result.statistic >= np.log(1000)))
        few += bool(np.any(result.log_too_few >= np.log(1000)))
    low, _ = report(f"sample-ratio alarms, {name}", both, count, 0.001)
    assert low <= 0.001
    low, _ = report(f"arrival breaches, {name}", few, count, 0.001)
    assert low <= 0.001


@pytest.mark.parametrize("count", sizes(60, 1000))
@pytest.mark.parametrize(("share", "seen"), [(0.5, 0.45), (0.05, 0.04)])
def test_arms_that_lose_units_are_found(share: float, seen: float, count: int) -> None:
    rng = np.random.default_rng(20_261_205)
    split = np.full(3 * BLOCKS_A_DAY, seen)
    first: dict[str, list[int]] = {"sample ratio": [], "arrival": []}
    for _ in range(count):
        result = of_shares(rng, ramp_declared(share), split)
        for name, log_e in (("sample ratio", result.statistic), ("arrival", result.log_too_few)):
            reached = np.flatnonzero(log_e >= np.log(1000))
            first[name].append(int(reached[0]) if reached.size else split.size)
    for name, looks in first.items():
        hits = sum(look < split.size for look in looks)
        text = f"{name} at {seen:.0%} for {share:.0%} (median {np.median(looks) / 12:.1f} h)"
        low, _ = report(text, hits, count, None)
        assert low > 0.5


# Interaction


@pytest.mark.parametrize("count", sizes(100, 2000))
@pytest.mark.parametrize(
    ("name", "strata", "claim"),
    [
        ("constant +50 %, baselines 2 and 10 %", [(0.02, 1.5), (0.1, 1.5)], 0.01),
        ("+50 % and -20 %", [(0.05, 1.5), (0.05, 0.8)], None),
        *(
            pytest.param(name, strata, 0.01, marks=pytest.mark.nightly)
            for name, strata in [
                ("none, two strata", [(0.05, 1.0), (0.05, 1.0)]),
                ("none, baselines 2 and 10 %", [(0.02, 1.0), (0.1, 1.0)]),
                ("none, four strata", [(0.05, 1.0)] * 4),
                ("constant +20 %, baselines 2 and 10 %", [(0.02, 1.2), (0.1, 1.2)]),
            ]
        ),
    ],
)
def test_an_interaction_is_told_where_the_relative_effects_differ_alone(
    name: str, strata: list[tuple[float, float]], claim: float | None, count: int
) -> None:
    draw = stratified(strata, days=2 if count < 1000 else 7)
    hits = sum(bool(seen.looks.gated.any()) for seen in evaluated(draw, count, 20_261_206))
    low, high = report(f"interaction alarms, {name}", hits, count, claim)
    if claim is None:
        assert high > 0.9
    else:
        assert low <= claim


# Futility


@pytest.mark.parametrize("count", sizes(60, 1000))
@pytest.mark.parametrize(("relative", "claim"), [(0.0, None), (0.05, 0.05), (-0.05, 0.05)])
def test_futility_ends_what_makes_no_difference_and_seldom_what_does(
    relative: float, claim: float | None, count: int
) -> None:
    draw = small_difference(relative)
    hits = sum(
        seen.decision.ended_because == "futility" for seen in evaluated(draw, count, 20_261_207)
    )
    low, high = report(f"ended by futility at {relative:+.0%}, margin 5 %", hits, count, claim)
    assert high > 0.9 if claim is None else low <= claim


# Lateness


@pytest.mark.parametrize("count", sizes(60, 1000))
@pytest.mark.parametrize(("share", "claim"), [(0.01, 0.05), (0.05, 0.1)])
def test_an_arm_whose_outcomes_come_late_is_not_taken_for_harm(
    share: float, claim: float, count: int
) -> None:
    """An A/A test where 5 % of treatment's outcomes are late, and 1 % of control's."""
    draw = with_late_outcomes(share, 0.01)
    answers = alarms = 0
    for seen in evaluated(draw, count, 20_261_208):
        answers += seen.decision.verdict != "abstain"
        alarms += "lateness" in seen.gates.interacting_because
    even = share == 0.01
    low, high = report(
        f"lateness alarms, {share:.0%} against 1 %", alarms, count, 0.01 if even else None
    )
    assert low <= 0.01 if even else high > 0.9
    low, _ = report(f"false answers, late {share:.0%} against 1 %", answers, count, claim)
    assert low <= claim


# After the window


@pytest.mark.parametrize("count", sizes(30, 600))
@pytest.mark.parametrize(
    ("is_read", "at_most", "at_least"), [(False, None, 0.8), (True, 0.1, None)]
)
def test_an_arm_that_converts_later_is_not_taken_for_harm(
    is_read: bool, at_most: float | None, at_least: float | None, count: int
) -> None:
    """Equal rates in the end, of which the window holds 92 % in treatment and 97 % in control."""
    days = 14 if count < 100 else 28
    draw = partly_after_the_window((0.92, 0.97), lift=0.0, days=days, is_read=is_read)
    hits = sum(seen.decision.verdict == "rollback" for seen in evaluated(draw, count, 20_261_501))
    name = "with the gate" if is_read else "without it"
    low, high = report(f"92 % against 97 % in the window, {name}: rollback", hits, count, at_most)
    assert at_most is None or low <= at_most
    assert at_least is None or high >= at_least


@pytest.mark.parametrize("count", sizes(30, 600))
@pytest.mark.parametrize("inside", [(0.92, 0.97), (0.97, 0.97)])
def test_a_gain_is_kept_where_its_arm_converts_later_too(
    inside: tuple[float, float], count: int
) -> None:
    draw = partly_after_the_window(inside, lift=0.2, days=14)
    hits = sum(seen.decision.verdict == "keep" for seen in evaluated(draw, count, 20_261_502))
    _, high = report(f"+20 %, {inside[0]:.0%} in the window: kept", hits, count, None)
    assert high >= 0.9


@pytest.mark.parametrize("count", sizes(60, 2000))
@pytest.mark.parametrize("share", [0.97, 0.6])
def test_arms_that_convert_alike_raise_no_alarm(share: float, count: int) -> None:
    draw = partly_after_the_window((share, share), lift=0.0, days=4 if count < 100 else 14)
    hits = sum(
        seen.gates.after_window_e is not None and bool(seen.looks.gated.any())
        for seen in evaluated(draw, count, 20_261_503)
    )
    low, _ = report(f"after-window alarms, {share:.0%} in the window of both", hits, count, 0.01)
    assert low <= 0.01


# Left out


@pytest.mark.parametrize("count", sizes(30, 600))
@pytest.mark.parametrize(
    ("is_read", "at_most", "at_least"), [(False, None, 0.8), (True, 0.1, None)]
)
def test_an_arm_that_pays_in_another_currency_is_not_taken_for_harm(
    is_read: bool, at_most: float | None, at_least: float | None, count: int
) -> None:
    """As many payments in both arms, of which 10 % are left out in treatment and 3 % in control."""
    draw = partly_left_out((0.1, 0.03), days=14 if count < 100 else 28, is_read=is_read)
    hits = sum(seen.decision.verdict == "rollback" for seen in evaluated(draw, count, 20_261_505))
    name = "with the gate" if is_read else "without it"
    low, high = report(f"10 % against 3 % left out, {name}: rollback", hits, count, at_most)
    assert at_most is None or low <= at_most
    assert at_least is None or high >= at_least


@pytest.mark.parametrize("count", sizes(60, 2000))
@pytest.mark.parametrize("share", [0.03, 0.5])
def test_arms_that_leave_out_alike_raise_no_alarm(share: float, count: int) -> None:
    draw = partly_left_out((share, share), days=4 if count < 100 else 28)
    hits = sum(bool(seen.looks.gated.any()) for seen in evaluated(draw, count, 20_261_506))
    low, _ = report(f"left-out alarms, {share:.0%} of both arms", hits, count, 0.01)
    assert low <= 0.01


# Warm-up


@pytest.mark.parametrize("count", sizes(30, 600))
@pytest.mark.parametrize(("warm_up", "at_most", "at_least"), [(0, None, 0.9), (12, 0.05, None)])
def test_a_cold_start_is_no_harm_where_its_time_is_left_out(
    warm_up: int, at_most: float | None, at_least: float | None, count: int
) -> None:
    draw = with_a_cold_start(warm_up=warm_up, days=3 if count < 100 else 14)
    hits = sum(seen.decision.verdict != "abstain" for seen in evaluated(draw, count, 20_261_504))
    name = f"half the rate in the first hour, warm-up of {5 * warm_up} minutes: an answer"
    low, high = report(name, hits, count, at_most)
    assert at_most is None or low <= at_most
    assert at_least is None or high >= at_least


# Vouched outcomes


@pytest.mark.parametrize("count", sizes(30, 300))
@pytest.mark.parametrize(("share", "lift", "unverified"), [(0.01, 0.0, 1.0), (0.0, 0.2, 0.0)])
def test_a_keep_that_forged_sessions_made_is_unverified(
    share: float, lift: float, unverified: float, count: int
) -> None:
    draw = with_forged_units(share, lift=lift, days=7)
    result = list(evaluated(draw, count, 20_261_505))
    kept = [seen for seen in result if seen.decision.verdict == "keep"]
    warned = sum("unverified" in seen.warnings for seen in kept)
    name = f"{share:.0%} forged, {lift:+.0%}"
    _, high = report(f"{name}: kept", len(kept), count, None)
    assert high >= 0.9
    low, high = report(f"{name}: unverified keeps", warned, len(kept), None)
    assert low <= unverified <= high


# Segments


@pytest.mark.parametrize("count", sizes(30, 600))
@pytest.mark.parametrize("rates", also_nightly([(0.02, 0.08)], [(0.1, 0.6)]))
@pytest.mark.parametrize(
    ("treated", "is_read", "at_most", "at_least"),
    [
        ((0.52, 0.48), False, None, 0.8),
        ((0.52, 0.48), True, 0.05, None),
        ((0.51, 0.49), True, 0.06, None),
        ((0.5, 0.5), True, 0.05, None),
    ],
)
def test_segments_that_the_arms_share_unequally_make_no_effect(
    rates: tuple[float, float],
    treated: tuple[float, float],
    is_read: bool,
    at_most: float | None,
    at_least: float | None,
    count: int,
) -> None:
    days = 7 if count < 100 and is_read else 28
    draw = of_two_segments(rates, treated=treated, days=days, is_read=is_read)
    result = list(evaluated(draw, count, 20_261_506))
    hits = sum(seen.decision.verdict != "abstain" for seen in result)
    split = sum(bool(seen.splits) for seen in result)
    kind = "split by need" if is_read else "never split"
    name = f"segments at {treated[0]:.0%}, rates {rates[0]:.0%} and {rates[1]:.0%}, {kind}"
    report(f"{name}: split", split, count, None)
    low, high = report(f"{name}: an answer", hits, count, at_most)
    assert at_most is None or low <= at_most
    assert at_least is None or high >= at_least


# Continuous metrics


def lognormal(rng: np.random.Generator, size: int) -> Floats:
    return rng.lognormal(0.0, 2.0, size)


def normal(rng: np.random.Generator, size: int) -> Floats:
    return rng.normal(1.0, 1.0, size)


def zero_inflated(rng: np.random.Generator, size: int) -> Floats:
    return np.where(rng.random(size) < 0.05, rng.lognormal(3.0, 1.0, size), 0.0)


LAWS = {"normal": normal, "log-normal, σ = 2": lognormal, "5 % pay": zero_inflated}


@pytest.mark.parametrize("count", sizes(60, 2000))
@pytest.mark.parametrize("share", also_nightly([0.05], [0.5]))
@pytest.mark.parametrize("law", [*LAWS, "spread half as large again"])
def test_the_mean_of_a_continuous_metric_is_answered_falsely_no_more_often_than_alpha(
    law: str, share: float, count: int
) -> None:
    looks = 288 * (1 if count < 1000 else 3)

    def drawn(rng: np.random.Generator, n: Ints, *, treated: bool) -> tuple[Floats, Floats]:
        if law in LAWS:
            y = LAWS[law](rng, int(n.sum()))
        else:
            y = rng.normal(1.0, 1.5 if treated else 1.0, int(n.sum()))
        block = np.repeat(np.arange(n.size), n)
        return (
            np.bincount(block, weights=y, minlength=n.size),
            np.bincount(block, weights=y * y, minlength=n.size),
        )

    def draw(rng: np.random.Generator) -> Series:
        n1, n0 = units(rng, looks, 83, share)
        y1, yy1 = drawn(rng, n1, treated=True)
        y0, yy0 = drawn(rng, n0, treated=False)
        values = Values(y1=y1, yy1=yy1, y0=y0, yy0=yy0)
        return of_one_stratum(n1, n1, n0, n0, values=values)

    hits = sum(seen.decision.verdict != "abstain" for seen in evaluated(draw, count, 20_261_209))
    low, _ = report(f"type-I error of a mean, {law}, share {share:.0%}", hits, count, 0.05)
    assert low <= 0.05


# Fading


@pytest.mark.parametrize("count", sizes(40, 1000))
@pytest.mark.parametrize(
    ("first", "second", "at_most", "at_least"),
    [(0.0, 0.0, 0.01, 0.0), (0.2, 0.2, 0.01, 0.0), (0.3, 0.0, 1.0, 0.9)],
)
def test_a_warning_says_whether_the_effect_is_another_one_in_the_second_half(
    first: float, second: float, at_most: float, at_least: float, count: int
) -> None:
    draw = with_effects(first, second, days=4)
    hits = sum("fading" in seen.warnings for seen in evaluated(draw, count, 20_261_401))
    low, high = report(f"{first:+.0%}, then {second:+.0%}: fading", hits, count, at_most)
    assert low <= at_most
    assert high >= at_least
