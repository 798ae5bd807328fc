"""Continuous metrics: the score, its variance, and what waits until they can be compared."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from domain.policy import Numbers
from domain.words import Verdict
from stats.counts.closed_cells import ClosedCells, Values
from stats.decision.evidence import Evidence, evaluate
from stats.looks.series import Guardrail, Series
from stats.sequential.mixture import Mixture
from stats.sequential.requirement import required_sessions, smallest_lift_of_mean

Maker = Callable[..., Series]
Sample = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
DELAY = 1920


def valued(blocks: list[tuple[Sample, Sample]]) -> tuple[list[tuple[int, ...]], Values]:
    """Rows and sums of blocks that hold the values of treatment's and control's units."""
    rows = [
        (i, 0, t.size, np.count_nonzero(t), c.size, np.count_nonzero(c))
        for i, (t, c) in enumerate(blocks)
    ]
    sums = [(t.sum(), (t * t).sum(), c.sum(), (c * c).sum()) for t, c in blocks]
    y1, yy1, y0, yy0 = np.array(sums, dtype=np.float64).reshape(-1, 4).T
    return rows, Values(y1=y1, yy1=yy1, y0=y0, yy0=yy0)


def seen_of(series: Maker, blocks: list[tuple[Sample, Sample]], **read: Any) -> Evidence:
    rows, values = valued(blocks)
    as_of = 300 * len(blocks) + DELAY
    (seen,) = evaluate([series(rows, values=values, **{"as_of": as_of, **read})])
    return seen


def plain(blocks: list[tuple[Sample, Sample]]) -> dict[str, float]:
    """The specification in scalars, from the values themselves."""
    S = W = V0 = C = 0.0
    per_unit = [0.0, 0.0]
    for t, c in blocks:
        both = np.concatenate((t, c))
        n, w = both.size, t.size * c.size / both.size
        S += w * (t.mean() - c.mean())
        W += w
        C += w * c.mean()
        V0 += w * float(((both - both.mean()) ** 2).sum()) / (n - 1)
        per_unit[0] += w * w / t.size
        per_unit[1] += w * w / c.size
    arms = [np.concatenate([block[arm] for block in blocks]) for arm in (0, 1)]
    V = max(
        V0, sum(arm.var(ddof=1) * per_cell for arm, per_cell in zip(arms, per_unit, strict=True))
    )
    scale = max(abs(C + S / 2), 0.05 * math.sqrt(V * W)) / V0
    parts = []
    for rho in (25.0, 4.0):
        total = rho + scale**2 * V
        parts.append(0.5 * math.log(rho / total) + (scale * S) ** 2 / (2 * total))
    return {"S": S, "W": W, "V": V, "log_e": float(np.logaddexp(*parts)) - math.log(2)}


SCALES = [2.0**power for power in (-480, -332, -40, -1, 3, 40, 332, 480)]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("shift", [0.0, 0.6, -0.6])
def test_values_of_any_scale_give_the_same_evidence(series, scale, shift) -> None:
    blocks = drawn(7, shift=shift)
    plainly = seen_of(series, blocks)
    scaled = seen_of(series, [(t * scale, c * scale) for t, c in blocks])
    assert (scaled.log_e, scaled.totals.p_value, scaled.gates.vif) == pytest.approx(
        (plainly.log_e, plainly.totals.p_value, plainly.gates.vif), rel=1e-12
    )
    assert scaled.decision.verdict is plainly.decision.verdict
    assert plainly.totals.ci is not None
    assert scaled.totals.ci == pytest.approx([scale * end for end in plainly.totals.ci], rel=1e-9)


def test_values_whose_squares_no_double_holds_say_nothing(series) -> None:
    seen = seen_of(series, [(t * 1e-170, c * 1e-170) for t, c in drawn(7)])
    assert (seen.totals.e_value, seen.totals.ci) == (1.0, None)
    assert seen.decision.verdict is Verdict.ABSTAIN


def drawn(seed: int, *, shift: float = 0.0, spread: float = 1.0) -> list[tuple[Sample, Sample]]:
    rng = np.random.default_rng(seed)
    return [(rng.normal(5 + shift, spread, size), rng.normal(5, 1, 300)) for size in (60, 120, 300)]


@given(st.integers(0, 10**6), st.floats(-0.5, 0.5), st.sampled_from([0.5, 1.0, 1.5]))
def test_the_test_of_a_mean_is_that_of_the_specification(series, seed, shift, spread) -> None:
    blocks = drawn(seed, shift=shift, spread=spread)
    seen = seen_of(series, blocks, policy=Numbers(alpha=1e-300))
    expected = plain(blocks)
    computed = {"S": seen.totals.S, "W": seen.totals.W, "V": seen.totals.V, "log_e": seen.log_e}
    assert computed == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert seen.arms.control.mean == pytest.approx(
        np.concatenate([c for _, c in blocks]).mean(), rel=1e-9
    )


@given(st.integers(0, 10**6), st.floats(-0.4, 0.4), st.sampled_from([0.5, 1.0, 1.5]))
def test_p_reaches_alpha_exactly_when_the_interval_of_a_mean_excludes_zero(
    series, seed, shift, spread
) -> None:
    seen = seen_of(series, drawn(seed, shift=shift, spread=spread))
    assert seen.totals.ci is not None
    assert (seen.totals.p_value <= 0.05) == (seen.totals.ci[0] > 0 or seen.totals.ci[1] < 0)
    assert seen.totals.lift is not None
    assert seen.totals.ci[0] + seen.totals.ci[1] == pytest.approx(
        2 * seen.totals.lift, rel=1e-6, abs=1e-9
    )


@pytest.mark.parametrize(("units", "answered"), [(99, False), (100, True)])
def test_a_mean_is_looked_at_from_a_hundred_units_in_each_arm(*, units, answered, series) -> None:
    rng = np.random.default_rng(5)
    seen = seen_of(series, [(rng.normal(9, 1, units), rng.normal(5, 1, 400))])
    assert (seen.decision.verdict == "keep") == answered
    assert (seen.totals.lift is not None) == answered
    assert (seen.totals.ci is not None) == answered
    assert (seen.log_e == 0.0) != answered
    assert seen.vif == pytest.approx(1.0)


@pytest.mark.parametrize("value", [0.0, 0.1, 7.0])
def test_a_mean_without_spread_or_without_any_value_says_nothing(value, series) -> None:
    same = [(np.full(200, value), np.full(300, value))] * 3
    seen = seen_of(series, same)
    assert (seen.log_e, seen.totals.lift) == (0.0, None)
    assert seen.decision.abstain_reason == "power"


def test_a_larger_spread_in_one_arm_is_not_taken_for_the_pooled_one(series) -> None:
    rng = np.random.default_rng(7)
    blocks = [(rng.normal(5, 3, 50), rng.normal(5, 1, 950)) for _ in range(20)]
    seen = seen_of(series, blocks)
    pooled = sum(
        t.size * c.size / 1000 * float(np.concatenate((t, c)).var(ddof=1)) for t, c in blocks
    )
    assert seen.totals.V / pooled > 4


def test_a_continuous_guardrail_is_watched_in_its_own_unit(series) -> None:
    def rail(blocks: list[tuple[Sample, Sample]], **named: Any) -> Guardrail:
        rows, values = valued(blocks)
        columns = np.ascontiguousarray(np.array(rows, dtype=np.int64).T)
        block, stratum, n1, x1, n0, x0 = columns
        cells = ClosedCells(
            block=block * 300, stratum=stratum, n1=n1, x1=x1, n0=n0, x0=x0, values=values
        )
        assert cells.kind == "mean"
        return Guardrail(name="wait", better="lower", window_seconds=300, cells=cells, **named)

    rows = [(i, 0, size, 5, 300, 5) for i, size in enumerate((60, 120, 300))]
    for shift, breached, proven in ((1.0, True, False), (0.0, False, True)):
        guardrail = rail(drawn(11, shift=shift))
        (seen,) = evaluate([series(rows, guardrails=(guardrail,), as_of=900 + DELAY)])
        (reading,) = seen.guardrails
        assert (reading.breached_at is not None) == breached
        assert (reading.non_inferior_at is not None) == proven
        assert reading.lift == pytest.approx(shift, abs=0.2)
    tight = rail(drawn(11), margin=0.01)
    (seen,) = evaluate([series(rows, guardrails=(tight,), as_of=900 + DELAY)])
    assert seen.guardrails[0].non_inferior_at is None


@pytest.mark.parametrize("is_target", [True, False])
def test_what_control_has_none_of_is_answered_and_breached(series, *, is_target) -> None:
    paid = np.repeat([3.0, 0.0], [20, 980])
    rows, values = valued([(paid, np.zeros(1000))] * 2)
    rail = series(rows, values=values).target
    rails = (Guardrail(name="cost", better="lower", window_seconds=300, cells=rail),)
    read = {"values": values} if is_target else {"guardrails": rails}
    (seen,) = evaluate([series(rows, as_of=600 + DELAY, **read)])
    assert (seen.decision.verdict == "keep") == is_target
    assert [reading.breached_at is not None for reading in seen.guardrails] == [True] * (
        not is_target
    )
    assert seen.effect is not None
    assert (seen.effect.posterior.relative is None) == is_target
    assert 0 < seen.effect.posterior.estimate < seen.effect.posterior.observed


Z_POWER = 0.8416


def at_scale(scale: float) -> Mixture:
    """The precisions at which the test of a mean runs on its own score: ρ/c²."""
    rho = np.array([[25.0, 4.0]]) / scale**2
    return Mixture(rho=rho, log_threshold=np.array([math.log(20)]))


@pytest.mark.parametrize(("mean", "spread"), [(40.0, 90.0), (-3.0, 1.0), (0.02, 0.4)])
@pytest.mark.parametrize("relative", [0.2, 0.5])
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_what_a_mean_needs_is_where_its_lift_is_found_in_80_of_100(
    mean, spread, relative, share
) -> None:
    known = [np.array([value]) for value in (mean, share, relative)]
    variance, mixture = np.array([spread**2]), at_scale(abs(mean) / spread**2)
    (needed,) = required_sessions(*known, mixture, variance=variance)
    V = needed * share * (1 - share) * spread**2
    drift = relative * abs(mean) * needed * share * (1 - share)
    # At the lower fifth of all scores under this lift the test just fires.
    score = np.array([drift - Z_POWER * math.sqrt(V)])
    assert mixture.excess(score, np.array([V]))[0] == pytest.approx(0, abs=1e-8)
    computed = smallest_lift_of_mean(variance, known[1], np.array([needed]), mixture)
    assert computed[0] == pytest.approx(relative * abs(mean), rel=1e-8)


def test_what_a_mean_needs_is_told_of_its_own_values(series) -> None:
    generator = np.random.default_rng(20261121)
    blocks = [
        (generator.exponential(50.0, size=40), generator.exponential(50.0, size=60))
        for _ in range(15)
    ]
    seen = seen_of(series, blocks)
    both = np.concatenate([values for block in blocks for values in block])
    control = np.concatenate([block[1] for block in blocks]).mean()
    sizes = {0.2: seen.sessions.required, 0.5: seen.sessions.required_fast}
    for relative, needed in sizes.items():
        known = [np.array([value]) for value in (control, 0.4, relative)]
        variance, scale = np.array([both.var()]), at_scale(control / both.var())
        (expected,) = required_sessions(*known, scale, variance=variance)
        assert needed == pytest.approx(expected, rel=0.1)
    assert seen.sessions.required is not None
    assert seen.sessions.required > seen.sessions.accumulated
    assert seen.sessions.projected_decision_at is not None
    assert seen.known.smallest_lift_by_horizon is not None
    assert 0 < seen.known.smallest_lift_by_horizon < 0.2


def test_what_a_mean_needs_is_unknown_while_it_can_not_be_tested(series) -> None:
    generator = np.random.default_rng(20261121)
    few = [(generator.exponential(size=90), generator.exponential(size=200))]
    assert seen_of(series, few).sessions.required is None
    flat = [(np.full(200, 5.0), np.full(200, 5.0))]
    assert seen_of(series, flat).sessions.required is None


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=4))
def test_means_and_rates_in_one_batch_are_what_they_are_alone(series, seeds) -> None:
    built = [series([(0, 0, 900, 90, 800, 60), (1, 0, 10, 3, 10, 1)], as_of=9000)]
    for seed in seeds:
        rows, values = valued(drawn(seed, shift=0.1))
        built.append(series(rows, values=values, as_of=9000))
    together = evaluate(built)
    for per_cell, seen in zip(built, together, strict=True):
        (alone,) = evaluate([per_cell])
        sums, expected = seen.totals, alone.totals
        assert (sums.S, sums.V, sums.ci) == (expected.S, expected.V, expected.ci)
        assert seen.log_e == alone.log_e
        assert seen.decision == alone.decision


@given(st.integers(0, 10**6))
def test_swapping_the_arms_of_a_mean_mirrors_its_score(series, seed) -> None:
    blocks = drawn(seed, shift=0.3)
    seen = seen_of(series, blocks)
    mirror = seen_of(series, [(c, t) for t, c in blocks])
    assume(seen.as_of == mirror.as_of)
    computed, expected = (mirror.totals.S, mirror.totals.V), (-seen.totals.S, seen.totals.V)
    assert computed == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("wrong", [np.array([math.nan]), np.array([1.0, 2.0])])
def test_values_that_are_no_numbers_or_too_many_cannot_be_built(wrong, series) -> None:
    fine = np.array([1.0])
    with pytest.raises(ValueError, match=r"finite|length"):
        series([(0, 0, 1, 1, 1, 1)], values=Values(y1=wrong, yy1=fine, y0=fine, yy0=fine))


@pytest.mark.parametrize("whale", [0.0, 500_000.0])
def test_the_yes_no_twin_of_a_mean_shows_what_a_whale_hides(whale, series) -> None:
    x1, x0 = np.full(12, 90), np.full(12, 60)
    y1, y0 = 20.0 * x1, 20.0 * x0
    yy1, yy0 = 500.0 * x1, 500.0 * x0
    y1[0] += whale
    yy1[0] += whale**2
    rows = [(block, 0, 2000, 90, 2000, 60) for block in range(12)]
    values = Values(y1=y1, yy1=yy1, y0=y0, yy0=yy0)
    (mean,) = evaluate([series(rows, as_of=3600 + 1920, values=values)])
    (rate,) = evaluate([series(rows, as_of=3600 + 1920, policy=Numbers(alpha=1e-290))])
    assert (mean.decision.verdict == "abstain") == (whale > 0)
    assert mean.yes_no is not None
    assert mean.yes_no.ci[0] > 0
    assert mean.yes_no.lift == pytest.approx(0.015)
    assert rate.yes_no is None
    if whale:
        assert mean.yes_no.e_value == pytest.approx(rate.totals.e_value)
