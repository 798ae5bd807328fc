"""The evidence as a pure function of counts: what it may and may not depend on."""

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from domain.metric import DAY
from domain.policy import Numbers
from stats.counts.arrivals import Arrivals, Epoch
from stats.counts.finding import Findings, LateUnits
from stats.decision.evidence import Evidence, evaluate
from stats.looks.series import Guardrail, Series
from tests.oracle.analysis_blocks import joined
from tests.stats.conftest import look_times, make_guardrail

Maker = Callable[..., Series]
Row = tuple[int, ...]
MIRRORED = {"keep": "rollback", "rollback": "keep", "promoted": "withdrawn"}
MIRRORED["withdrawn"] = "promoted"


def bits(value: Any) -> Any:
    """A value that equals another exactly when every number has the same bits."""
    if is_dataclass(value):
        return [(field.name, bits(getattr(value, field.name))) for field in fields(value)]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, float):
        return value.hex()
    return bits(list(value)) if isinstance(value, tuple) else value


@st.composite
def histories(draw: st.DrawFn, strata: int = 3) -> list[Row]:
    """Cells (block, stratum, n1, x1, n0, x0): often with an effect, or ending in a single arm."""
    rates = draw(st.sampled_from([(0.1, 0.1), (0.3, 0.1), (0.05, 0.4), (0.0, 1.0)]))
    kept_arm = draw(st.sampled_from([None, None, 0, 1]))
    length = draw(st.integers(0, 16))
    one_armed_from = draw(st.integers(0, length))
    rows: list[Row] = []
    block = 0
    for number in range(length):
        block += draw(st.sampled_from([1, 1, 2, 40, 90]))
        for stratum in sorted(draw(st.sets(st.integers(0, strata - 1), min_size=1))):
            row: list[int] = [block, stratum]
            for arm, rate in zip((1, 0), rates, strict=True):
                units = draw(st.sampled_from([0, 1, 7, 60, 400]))
                if kept_arm not in {None, arm} and number >= one_armed_from:
                    units = 0
                noisy = round(units * rate) + draw(st.integers(-1, 1))
                row += [units, min(max(noisy, 0), units)]
            rows.append(tuple(row))
    return rows


@st.composite
def watched(draw: st.DrawFn, rows: list[Row]) -> tuple[Guardrail, ...]:
    """Guardrails on the same units: harmed or not, closing before the target or after it."""
    rails: list[Guardrail] = []
    for name in draw(st.sampled_from([[], ["error"], ["error", "bounce"]])):
        rates = draw(st.sampled_from([(0.02, 0.02), (0.4, 0.02), (0.0, 0.3)]))
        cells: list[Row] = [
            (block, stratum, n1, round(n1 * rates[0]), n0, round(n0 * rates[1]))
            for block, stratum, n1, _, n0, _ in rows
        ]
        rails.append(
            make_guardrail(
                cells,
                name=name,
                better=draw(st.sampled_from(["lower", "higher"])),
                window_seconds=draw(st.sampled_from([300, 1800, 7200])),
                margin=draw(st.sampled_from(["default", 0.3, None])),
            )
        )
    return tuple(rails)


@st.composite
def findings(draw: st.DrawFn, rows: list[Row]) -> dict[str, Any]:
    """What the gates read of the same units."""
    read: dict[str, Any] = {}
    blocks = np.array(sorted({row[0] for row in rows}), dtype=np.int64) * 300
    delays = st.integers(0, 2 * DAY)
    if draw(st.booleans()) and rows:
        chosen = draw(st.lists(st.tuples(st.sampled_from(rows), delays), max_size=30))
        read["crossings"] = Findings(
            block=np.array([row[0] * 300 for row, _ in chosen], dtype=np.int64),
            stratum=np.array([row[1] for row, _ in chosen], dtype=np.int64),
            at=np.array([row[0] * 300 + delay for row, delay in chosen], dtype=np.int64),
        )
    if draw(st.booleans()) and rows:
        late = draw(st.lists(st.tuples(st.sampled_from(rows), st.integers(0, 1), delays)))
        times = draw(st.sampled_from([1, 20]))
        read["late"] = LateUnits(
            block=np.array([row[0] * 300 for row, _, _ in late] * times, dtype=np.int64),
            stratum=np.array([row[1] for row, _, _ in late] * times, dtype=np.int64),
            arm=np.array([arm for _, arm, _ in late] * times, dtype=np.int64),
            at=np.array(
                [row[0] * 300 + 2220 + delay for row, _, delay in late] * times, dtype=np.int64
            ),
        )
    if draw(st.booleans()):
        turn = draw(st.integers(0, 4000))
        shares = draw(st.tuples(*[st.sampled_from([None, 0.0, 0.1, 0.5, 1.0])] * 2))
        n1, n0 = (
            np.array(
                [sum(row[arm] for row in rows if row[0] * 300 == block) for block in blocks],
                dtype=np.int64,
            )
            for arm in (2, 4)
        )
        read["allocation"] = (
            Epoch(start=0, end=turn, share=shares[0]),
            Epoch(start=turn, end=None, share=shares[1]),
        )
        read["arrivals"] = Arrivals(block=blocks, treatment=n1, others=n0)
    return read


@st.composite
def experiments(draw: st.DrawFn) -> dict[str, Any]:
    rows = draw(histories())
    policy = Numbers(
        better=draw(st.sampled_from(["higher", "lower"])),
        attempt=draw(st.sampled_from([1, 3])),
        horizon_seconds=draw(st.sampled_from([28 * DAY, 28 * DAY, 2 * DAY, 6000])),
        contrast_seconds=draw(st.sampled_from([DAY, 7200])),
        futility_margin=draw(st.sampled_from([None, 0.05, 0.5])),
        value_per_conversion=draw(st.sampled_from([None, 2.5])),
    )
    last = rows[-1][0] * 300 if rows else 0
    times = st.integers(0, last + DAY)
    return {
        "rows": rows,
        "policy": policy,
        "as_of": draw(st.just(last + DAY) | times),
        "closed_at": draw(st.none() | st.none() | st.none() | times),
        "cuts": tuple(draw(st.lists(times, max_size=3))),
        "guardrails": draw(watched(rows)),
        **draw(findings(rows)),
    }


def evidence_of(series: Maker, experiment: dict[str, Any], **changed: Any) -> Evidence:
    (seen,) = evaluate([series(**{**experiment, **changed})])
    return seen


@given(st.lists(experiments(), max_size=5))
def test_a_batch_gives_each_experiment_what_it_gets_alone_to_the_bit(series, many) -> None:
    built = [series(**experiment) for experiment in many]
    assert [bits(seen) for seen in evaluate(built)] == [bits(evaluate([s])[0]) for s in built]


@given(experiments())
def test_cells_that_close_later_change_nothing(series, experiment) -> None:
    given_all = evidence_of(series, experiment)
    as_of = experiment["as_of"]
    closed = [row for row in experiment["rows"] if row[0] * 300 + 300 <= as_of - 1920]
    guardrails = tuple(
        replace(rail, cells=rail.cells[rail.cells.block + 300 + rail.window_seconds + 120 <= as_of])
        for rail in experiment["guardrails"]
    )
    changed = {"rows": closed, "guardrails": guardrails}
    for name in ("crossings", "late"):
        if name in experiment:
            changed[name] = experiment[name][experiment[name].at <= as_of]
    assert bits(evidence_of(series, experiment, **changed)) == bits(given_all)


@given(experiments(), st.integers(0, 3 * DAY))
def test_what_is_decided_stays_decided_to_the_bit(series, experiment, later) -> None:
    now = evidence_of(series, experiment)
    if now.decision.decided:
        assert bits(evidence_of(series, experiment, as_of=experiment["as_of"] + later)) == bits(now)


@given(experiments())
def test_between_looks_nothing_changes(series, experiment) -> None:
    now = evidence_of(series, experiment, closed_at=None)
    if now.as_of is not None:
        assert bits(evidence_of(series, experiment, closed_at=None, as_of=now.as_of)) == bits(now)


@given(experiments())
def test_the_running_p_never_rises_and_gated_looks_do_not_enter_it(series, experiment) -> None:
    before = 1.0
    for look in evidence_of(series, experiment).looks:
        assert look.p_running_min <= before
        if look.gated:
            assert look.p_running_min == before
        else:
            assert look.p_running_min <= min(1.0, 1.0 / look.e_value) * (1 + 1e-12)
        before = look.p_running_min


@given(experiments())
def test_swapping_the_arms_mirrors_verdict_and_sign(series, experiment) -> None:
    policy = structs.replace(experiment["policy"], vif_limit=math.inf)
    swapped = [(b, s, n0, x0, n1, x1) for b, s, n1, x1, n0, x0 in experiment["rows"]]
    plain: dict[str, Any] = {"policy": policy, "guardrails": (), "allocation": None}
    late = experiment.get("late")
    seen = evidence_of(series, experiment, **plain)
    if late is not None:
        plain["late"] = replace(late, arm=1 - late.arm)
    mirror = evidence_of(series, experiment, **plain, rows=swapped)
    ours, theirs = seen.decision, mirror.decision
    assert theirs.verdict == MIRRORED.get(ours.verdict, ours.verdict)
    if seen.arms.control.units and seen.arms.treatment.units:
        # Without a unit of control there was nothing to compare, which treatment has no word for.
        assert theirs.ended_because == MIRRORED.get(ours.ended_because or "", ours.ended_because)
    assert (theirs.at, theirs.decided) == (ours.at, ours.decided)
    assert theirs.confidence == ours.confidence
    assert (mirror.log_e, mirror.vif) == (seen.log_e, seen.vif)
    assert mirror.totals.S == -seen.totals.S
    if seen.totals.ci and mirror.totals.ci:
        assert mirror.totals.ci == (-seen.totals.ci[1], -seen.totals.ci[0])


@given(experiments())
def test_an_answer_carries_its_numbers_and_an_abstention_none(series, experiment) -> None:
    seen = evidence_of(series, experiment)
    decision = seen.decision
    answered = decision.verdict != "abstain"
    carried = (decision.lift, decision.confidence, decision.ci)
    assert all((number is not None) == answered for number in carried)
    assert (decision.abstain_reason is None) == answered
    assert (decision.ended_because is not None) == (decision.decided and not answered)
    assert (decision.value_at_risk is not None) == (
        answered and experiment["policy"].value_per_conversion is not None
    )
    if decision.lift is not None and decision.ci is not None and decision.confidence is not None:
        better = (decision.lift > 0) == (experiment["policy"].better == "higher")
        assert (decision.verdict != "rollback") == better
        assert (decision.verdict == "iterate") == (better and bool(decision.guardrail_breaches))
        assert decision.confidence >= 1 - experiment["policy"].level
        assert decision.ci[0] > 0 or decision.ci[1] < 0


@given(experiments())
def test_what_is_kept_breaches_no_guardrail(series, experiment) -> None:
    seen = evidence_of(series, experiment)
    breached = tuple(rail.metric for rail in seen.guardrails if rail.breached_at is not None)
    assert seen.decision.guardrail_breaches == breached
    if seen.decision.verdict == "keep":
        assert not breached
        proven = {rail.metric for rail in seen.guardrails if rail.non_inferior_at is not None}
        awaited = {rail.name for rail in experiment["guardrails"] if rail.margin is not None}
        assert ("guardrails_unproven" in seen.warnings) == (not awaited <= proven)


@given(experiments(), st.integers(0, 3 * DAY))
def test_a_breach_and_a_sticky_gate_stay(series, experiment, later) -> None:
    now = evidence_of(series, experiment)
    then = evidence_of(series, experiment, as_of=experiment["as_of"] + later)
    assert set(now.decision.guardrail_breaches) <= set(then.decision.guardrail_breaches)
    stay = set(now.gates.interacting_because) - {"interaction"}
    assert stay <= set(then.gates.interacting_because)


@given(histories(strata=3), st.permutations(range(3)))
def test_names_of_strata_do_not_matter(series, rows, names) -> None:
    renamed = sorted((b, names[s], *rest) for b, s, *rest in rows)
    (seen,) = evaluate([series(rows, as_of=10**6)])
    (other,) = evaluate([series(renamed, as_of=10**6)])
    assert other.arms == seen.arms
    assert other.decision.verdict == seen.decision.verdict
    assert other.log_e == pytest.approx(seen.log_e, rel=1e-9, abs=1e-9)
    assert other.vif == pytest.approx(seen.vif, rel=1e-9)


@given(histories(strata=1))
def test_counts_add_within_an_analysis_block(series, rows) -> None:
    """Halves of a block in two blocks of an analysis block count as the block itself."""
    wide = Numbers(block_min_units=10**9, undeclared_min_units=10**9)
    whole = [(2 * b, s, *counts) for b, s, *counts in rows]
    halves: list[Row] = []
    for b, s, *counts in whole:
        halves += [(b, s, *[c // 2 for c in counts]), (b + 1, s, *[c - c // 2 for c in counts])]
    seen, split = evaluate([series(cells, policy=wide, as_of=10**7) for cells in (whole, halves)])
    assert bits(split) == bits(seen)


@given(experiments())
def test_the_arms_are_those_of_closed_analysis_blocks_of_strata_with_both_arms(
    series, experiment
) -> None:
    seen = evidence_of(series, experiment)
    ended = {
        (evidence_of.stratum, block)
        for evidence_of in joined(series(**experiment))
        if evidence_of.end is not None and evidence_of.end <= seen.closed_until
        for block in range(evidence_of.begin, evidence_of.end, 300)
    }
    inside = [row for row in experiment["rows"] if (row[1], row[0] * 300) in ended]
    treated, untreated = ({row[1] for row in inside if row[arm]} for arm in (2, 4))
    alone = [row for row in inside if row[1] not in (treated & untreated or treated | untreated)]
    inside = [row for row in inside if row not in alone]
    assert seen.compared_with_none == tuple(sum(row[arm] for row in alone) for arm in (4, 2))
    assert seen.units_in_cells == seen.sessions.accumulated
    assert seen.units_in_cells == sum(row[2] + row[4] for row in inside)
    for arm in (seen.arms.treatment, seen.arms.control):
        assert arm.rate == (arm.conversions / arm.units if arm.units else None)
    assert seen.arms.treatment.units == sum(row[2] for row in inside)
    assert seen.arms.treatment.conversions == sum(row[3] for row in inside)
    assert seen.arms.control.units == sum(row[4] for row in inside)
    assert seen.arms.control.conversions == sum(row[5] for row in inside)


def test_before_any_look_there_is_nothing_to_say(series) -> None:
    (seen,) = evaluate([series([(0, 0, 100, 5, 100, 5)], start=299, as_of=2219)])
    assert seen.as_of is None
    assert (seen.log_e, seen.totals.p_value, seen.totals.p_running_min) == (0.0, 1.0, 1.0)
    assert (seen.totals.lift, seen.totals.ci) == (None, None)
    assert (seen.vif, seen.eligible_per_day) == (None, None)
    assert seen.arms.control.rate is None
    assert seen.looks == ()
    assert seen.closed_until == 0
    assert (seen.decision.verdict, seen.decision.abstain_reason) == ("abstain", "power")
    assert not seen.decision.decided
    assert seen.decision.at is None


def test_many_looks_are_thinned_to_the_first_the_last_and_every_nth(series) -> None:
    rows = [(block, 0, 30, 1, 30, 1) for block in range(1201)]
    (seen,) = evaluate([series(rows, as_of=1201 * 300 + 1920)])
    blocks = [(at - 1920) // 300 - 1 for at in look_times(seen)]
    assert blocks == list(range(0, 1201, 3))
    (seen,) = evaluate([series(rows, as_of=1200 * 300 + 1920)])
    blocks = [(at - 1920) // 300 - 1 for at in look_times(seen)]
    assert blocks == [*range(0, 1200, 3), 1199]
    assert seen.as_of == look_times(seen)[-1]


def test_a_candidate_that_the_line_holds_back_is_among_the_looks(series) -> None:
    rows = [(block, 0, 30, 18, 33, 18) for block in range(1601)]
    half = {0: (Epoch(start=0, end=None, share=0.5),)}
    (seen,) = evaluate([series(rows, as_of=1601 * 300 + 1920, stratum_shares=half)])
    assert seen.decision.verdict == "abstain"
    assert seen.candidate is not None
    assert seen.candidate.at in {look.at for look in seen.looks}


def test_strong_evidence_is_served_capped_and_logged_whole(series) -> None:
    rows = [(0, 0, 100_000, 90_000, 100_000, 100)]
    (seen,) = evaluate([series(rows, as_of=10**4)])
    assert seen.totals.e_value == 1e300
    assert seen.log_e > 1000
    assert seen.totals.p_value == 0.0
    assert seen.decision.verdict == "keep"


def test_what_is_known_is_relative_to_control_and_told_by_the_better_side(series) -> None:
    rows = [(0, 0, 5000, 250, 5000, 250)]
    higher, lower = (
        evaluate([series(rows, as_of=3000, policy=Numbers(better=better))])[0]
        for better in ("higher", "lower")
    )
    assert higher.totals.ci is not None
    assert higher.known.not_worse_than == pytest.approx(higher.totals.ci[0] / 0.05)
    assert higher.known.not_better_than == pytest.approx(higher.totals.ci[1] / 0.05)
    assert lower.known.not_worse_than == higher.known.not_better_than
    assert lower.known.not_better_than == higher.known.not_worse_than


def test_without_conversions_in_control_nothing_relative_is_known(series) -> None:
    (seen,) = evaluate([series([(0, 0, 500, 0, 500, 0)], as_of=3000)])
    assert seen.known.not_worse_than is None
    assert seen.sessions.required is None
    assert seen.totals.lift == 0.0
