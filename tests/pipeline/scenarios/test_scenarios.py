"""Guardrails, gates and concurrent changes, over REST: each gets its answer."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from orchestration.pipeline.audit import audit
from tests.stores.example import example_document
from tests.world import DAY, A, K

B, L, M = "bbbbbbb2", "ddddddd4", "eeeeeee5"


def at(minutes: float) -> str:
    return (datetime(2026, 10, 1, tzinfo=UTC) + timedelta(minutes=minutes)).isoformat()


def canary(story, *, share: float | None = 0.5) -> None:
    story.canary(share)


# --- Value --------------------------------------------------------------------------------


def test_the_value_that_an_interval_leaves_open_is_by_the_units_of_a_week(story) -> None:
    canary(story)
    for start, units in ((0, 2000), (2 * DAY, 100)):
        for commit in (A, K):
            story.crowd(commit, start=start, minutes=600, units=units, rates={"order": 0.10})
    story.send()
    worth_two = {"name": "order", "value_per_conversion": 2}
    experiment = story.register(treatment_commit=K, target_metric=worth_two)
    assert story.answer(experiment, minutes=2 * DAY + 700) == ("abstain", "power", False)
    evidence = story.evidence(experiment)
    between, interval = evidence["value_range"], evidence["totals"]["ci"]
    units_a_day = between["high"] / (2 * interval[1])
    # 4,200 units in two and a half days; of the last day they were 200.
    assert between["low"] == pytest.approx(2 * units_a_day * interval[0])
    assert 1500 < units_a_day < 2000
    assert evidence["sessions"]["per_day"] < 300


# --- Guardrails ---------------------------------------------------------------------------


def test_the_wait_for_guardrails_is_over_after_a_day_and_twice_the_units(story) -> None:
    canary(story, share=None)
    for start, minutes, units in ((0, 120, 400), (120, 1.5 * DAY, 600)):
        story.crowd(A, start=start, minutes=minutes, units=units, rates={"order": 0.10})
        story.crowd(K, start=start, minutes=minutes, units=units, rates={"order": 0.40})
    story.send()
    story.goes_on()
    experiment = story.register(treatment_commit=K, guardrails=["error"])
    assert story.answer(experiment, minutes=DAY) == ("abstain", "power", False)
    never, waiting = "No error event was ever received.", story.evidence(experiment)
    assert waiting["candidate"]["waits_for"] == ["error"]
    assert waiting["sentence"].endswith(f"to be sure that error did not get worse. {never}")
    assert never in story.bound(experiment)["situation"]["advice"][1]
    # The horizon is four weeks away.
    assert story.answer(experiment, minutes=1.6 * DAY) == ("keep", None, True)
    assert "guardrails_unproven" in story.evidence(experiment)["warnings"]


def test_only_a_metric_of_which_no_event_came_was_never_received(story) -> None:
    canary(story)
    sessions = [
        session
        for commit in (A, K)
        for session in story.crowd(commit, start=0, minutes=60, units=600, rates={"browse": 0.5})
    ]
    for event in ("order", "error"):  # hours after the window
        late = {"event": event, "session_id": sessions[0], "commit": A}
        story.events.append({**late, "occurred_at": story.at(0.5 * DAY)})
    story.send()
    late, absent = (
        story.register(treatment_commit=K, target_metric=metric, guardrails=["error"])
        for metric in ("order", "purchase")
    )
    story.tick(minutes=DAY)
    evidence = story.evidence(late)
    assert ("none_in_window" in evidence["warnings"], evidence["never_received"]) == (True, [])
    evidence = story.evidence(absent)
    assert "metric_never_seen" in evidence["warnings"]
    assert evidence["never_received"] == ["purchase"]


# --- Gates --------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_step_of_the_ramp_that_is_posted_late_counts_from_then_on(story) -> None:
    canary(story, share=0.05)
    for commit, units in ((A, 2850), (K, 150)):
        story.crowd(commit, start=0, minutes=300, units=units, rates={"order": 0.10})
        story.crowd(commit, start=300, minutes=600, units=3000, rates={"order": 0.10})
    story.send()
    experiment = story.register(treatment_commit=K)
    story.deploy(K, minutes=300, allocation=0.5)
    # It is posted ten minutes late, after blocks had closed; a reading of that time saw it so.
    known = f"UPDATE commits SET recorded_at = '{at(-DAY)}', base_recorded_at = '{at(-DAY)}'"
    for statement in (
        "UPDATE deploys SET recorded_at = deployed_at",
        f"UPDATE deploys SET recorded_at = '{at(310)}' WHERE allocation = 0.5",
        f"UPDATE experiments SET bound_at = '{at(1)}'",
        f"WITH ids AS (UPDATE commit_ids SET recorded_at = '{at(-DAY)}') {known}",
    ):
        story.in_store(lambda connection, each=statement: connection.execute(text(each)))
    story.tick(minutes=DAY)
    gates = story.evidence(experiment)["gates"]
    assert gates["interacting_because"] == []
    assert audit(story.store.engine, experiment).equal


def test_a_move_between_arms_that_a_deploy_explains_is_no_crossing(story) -> None:
    canary(story, share=None)
    sessions = story.crowd(K, start=0, minutes=5, units=300)
    story.crowd(A, start=0, minutes=5, units=300)
    # Rolled back after six minutes: the sessions go on with the old build.
    story.deploy(A, minutes=6)
    moved = {"commit": A, "event": "page_view", "occurred_at": at(7)}
    story.events += [{"session_id": session, **moved} for session in sessions]
    story.send()
    experiment = story.register(treatment_commit=K)
    story.as_live()
    story.tick(minutes=DAY)
    evidence = story.evidence(experiment)
    assert evidence["counts"]["crossover"] == 0
    assert evidence["warnings"] == ["turnover_unseen"]
    # A check does not pass where a warning says that nobody can tell.
    checks = {check["cause"]: check for check in evidence["gates"]["checks"]}
    assert (checks["turnover"]["state"], checks["turnover"]["number"]) == ("not_known", None)
    # The digest holds what was recorded at the second of the binding.
    names = {"experiment_id": "exp_1", "digest": example_document()["digest"], "warnings": []}
    stored = story.in_store(lambda c: c.execute(text("SELECT evidence FROM verdicts")).scalar())
    assert json.dumps({**stored, **names}) == json.dumps(example_document())


@pytest.mark.requirement("abstain.interacting")
def test_an_effect_that_turns_round_with_another_change_is_an_interaction(story) -> None:
    two_strata(story, low=(0.10, 0.20), high=(0.20, 0.10))
    experiment = story.register(treatment_commit=K)
    story.tick(minutes=DAY)
    evidence = story.evidence(experiment)
    assert "interaction" in evidence["gates"]["interacting_because"]
    assert story.contract(experiment)["abstain_reason"] == "interacting"


def two_strata(story, *, low: tuple[float, float], high: tuple[float, float]) -> None:
    """K beside A, and K beside A on top of a flag that another experiment tests."""
    canary(story, share=None)
    flag = {"flags": {"new_cart": True}}
    for (control, treatment), flags in ((low, {}), (high, flag)):
        story.crowd(A, start=0, minutes=400, units=2000, rates={"order": control}, **flags)
        story.crowd(K, start=0, minutes=400, units=2000, rates={"order": treatment}, **flags)
    story.send()
    story.register(
        deploy_id=None, treatment_flag={"name": "new_cart", "treatment": True}, target_metric="x"
    )


# --- Concurrent changes -------------------------------------------------------------------


def test_a_change_without_concurrent_control_is_refused_by_name(story) -> None:
    story.deploy(A, minutes=-DAY)
    story.deploy(B, minutes=0, base=A)
    story.deploy(K, minutes=0, base=B)
    story.crowd(A, start=0, minutes=300, units=500, rates={"order": 0.10})
    story.crowd(K, start=0, minutes=300, units=500, rates={"order": 0.30})
    story.send()
    # K came with B: what is seen may be either's doing.
    experiment = story.register(treatment_commit=K, control_commit=B)
    assert story.answer(experiment, minutes=600) == ("abstain", "non_identifiable", False)
    assert story.evidence(experiment)["gates"]["aliased_with"] == [B]


def test_a_base_of_zeros_names_none_so_that_a_canary_is_compared_with_what_users_have(
    story,
) -> None:
    story.deploy(A, minutes=-DAY)
    canary = story.deploy(K, 0.5, minutes=0, base="0" * 40)
    assert (canary["base_commit"], canary["base_assumed"]) == (A, True)
    for commit, rate in ((A, 0.1), (K, 0.3)):
        story.crowd(commit, start=0, minutes=60, units=500, rates={"order": rate})
    story.send()
    experiment = story.register(treatment_commit=K)
    assert story.answer(experiment, minutes=1500) == ("keep", None, True)


@pytest.mark.nightly
def test_a_fix_on_top_of_an_iterated_canary_is_a_change_of_its_own(story) -> None:
    canary(story)
    story.crowd(A, start=0, minutes=300, units=1500, rates={"order": 0.10, "error": 0.04})
    story.crowd(K, start=0, minutes=300, units=1500, rates={"order": 0.20, "error": 0.12})
    story.deploy(K, minutes=300, allocation=0)
    story.deploy(L, minutes=300, base=K, allocation=0.5)
    story.crowd(A, start=331, minutes=300, units=1500, rates={"order": 0.10, "error": 0.04})
    story.crowd(L, start=331, minutes=300, units=1500, rates={"order": 0.20, "error": 0.01})
    story.send()
    first = story.register(treatment_commit=K, guardrails=["error"])
    fixed = story.register(treatment_commit=L, control_commit=A, guardrails=["error"])
    story.tick(minutes=DAY)
    assert story.contract(first)["verdict"] == "iterate"
    assert story.contract(fixed)["verdict"] == "keep"
    assert story.evidence(fixed)["change"] == sorted([K, L])


# --- Units and metrics --------------------------------------------------------------------


def test_a_change_that_makes_no_difference_ends_for_futility(story) -> None:
    story.settings(futility_margin=0.2)
    canary(story)
    story.crowd(A, start=0, minutes=600, units=3000, rates={"order": 0.30})
    story.crowd(K, start=0, minutes=600, units=3000, rates={"order": 0.30})
    story.send()
    experiment = story.register(treatment_commit=K)
    assert story.answer(experiment, minutes=DAY) == ("abstain", "power", True)
    assert story.evidence(experiment)["ended_because"] == "futility"
