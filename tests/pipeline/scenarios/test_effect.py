"""The effect, read through REST: the number to train on, beside the verdict."""

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from orchestration.pipeline.audit import audit
from stats.sequential.line import OF_EFFECT
from tests.world import DAY, A, K, T

SERVED = ("basis", "final", "trainable", "stopped")


def canary(story, *, rate: float, share: float = 0.5, units: int = 4000) -> None:
    story.canary(share)
    story.crowd(A, start=0, minutes=600, units=units, rates={"order": 0.10})
    story.crowd(K, start=0, minutes=600, units=units, rates={"order": rate})
    story.send()


def at(minutes: float) -> str:
    return (T + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")


def read(story, experiment: str) -> Any:
    return story.get(f"/v1/reward/{experiment}/effect")


def test_an_open_experiment_has_an_effect_that_is_nearer_to_nothing_than_its_lift(story) -> None:
    canary(story, rate=0.108, units=1500)
    worth_two = {"name": "order", "value_per_conversion": 2}
    experiment = story.register(treatment_commit=K, target_metric=worth_two)
    answer = read(story, experiment)
    assert (answer.status_code, answer.json()["code"]) == (404, "no_evidence_yet")
    story.tick(minutes=700)
    assert story.contract(experiment)["lift"] is None
    effect, totals = read(story, experiment).json(), story.evidence(experiment)["totals"]
    assert [effect[name] for name in SERVED] == ["open", False, False, None]
    assert effect["reward_at"] == at(7 * DAY)
    assert 0 < effect["estimate"] < totals["lift"]
    assert effect["interval"] == totals["ci"]
    assert effect["units"] == 3000
    a_day = effect["value_per_day"] / effect["estimate"]
    assert effect["value_interval"] == pytest.approx([end * a_day for end in totals["ci"]])
    assert story.evidence(experiment)["value_range"] == {
        "low": effect["value_interval"][0],
        "high": effect["value_interval"][1],
    }


@pytest.mark.nightly
def test_the_evidence_keeps_the_effect_of_the_look_that_decided(story) -> None:
    canary(story, rate=0.14)
    experiment = story.register(treatment_commit=K)
    story.tick(minutes=DAY)
    contract, effect = story.contract(experiment), story.evidence(experiment)["effect"]
    assert contract["verdict"] == "keep"
    # Units count on until it is due.
    assert [effect[name] for name in SERVED] == ["at_decision", False, False, None]
    assert effect["interval"] == contract["ci"]
    assert 0 < effect["estimate"] < contract["lift"]
    assert effect["relative"] == pytest.approx(
        effect["estimate"] / story.evidence(experiment)["arms"]["control"]["rate"], rel=0.1
    )
    assert effect["value_per_day"] is None
    assert effect["as_of"] < at(DAY)
    story.tick(minutes=2 * DAY)
    assert story.evidence(experiment)["effect"] == effect


def test_it_is_fit_to_train_on_when_it_is_due_and_not_before(story, kept) -> None:
    story.settings(reward_days=3)
    experiment = kept(later=0.12)
    story.tick(minutes=2.5 * DAY)
    early = read(story, experiment).json()
    assert [early[name] for name in SERVED] == ["open", False, False, None]
    story.tick(minutes=3.5 * DAY)
    due = read(story, experiment).json()
    assert [due[name] for name in SERVED] == ["at_reward", True, True, None]
    assert early["as_of"] < due["as_of"] <= due["reward_at"] == at(3 * DAY)
    assert early["units"] < due["units"]
    # The units after it are counted on beside it, for people.
    story.tick(minutes=10 * DAY)
    assert {**read(story, experiment).json(), "after_decision": None} == {
        **due,
        "after_decision": None,
    }


@pytest.mark.nightly
def test_history_may_choose_and_is_not_trained_on(story) -> None:
    story.settings(reward_days=1)
    canary(story, rate=0.14)
    experiment = story.register(treatment_commit=K)
    story.tick(minutes=4 * DAY)
    assert story.contract(experiment)["verdict"] == "keep"
    assert stopped(story, experiment) == (None, True, False)
    evidence = story.decoded(experiment)
    assert (evidence.retrospective, evidence.warnings[-1:]) == (True, ("retrospective",))


def close(story, experiment: str, *, minutes: float) -> None:
    """Closes an experiment by hand at a time of the story, which is not the server's."""
    assert story.post(f"/v1/reward/{experiment}/close", {}).status_code == 200
    moved = text("UPDATE experiments SET closed_at = :at WHERE experiment_id = :id")
    with story.store.engine.begin() as connection:
        connection.execute(moved, {"at": T + timedelta(minutes=minutes), "id": experiment})


def stopped(story, experiment: str) -> tuple[str | None, bool, bool]:
    """What stopped it, and whether effect and likelihood are final."""
    effect = read(story, experiment).json()
    likelihood = effect["likelihood"]
    return effect["stopped"], effect["final"], bool(likelihood and likelihood["trainable"])


def mixed(evidence: Any) -> tuple[float, float]:
    """Mean and variance of S beside units of a single arm (docs/statistics.md, 'The effect')."""
    (S, V), line = (evidence["totals"][name] for name in "SV"), evidence["surplus"]
    excess = line["units"] * (line["served"] - line["declared"])
    information = line["units"] * line["declared"] * (1 - line["declared"])
    parts = []
    for deviation, weight in OF_EFFECT:
        more = 1 + deviation**2 * information
        q = weight * math.exp(-(excess**2) / (2 * information * more)) / more**0.5
        doubt = 1 - 1 / more
        parts.append((0.85 * q, S + doubt * 0.1 * excess, V + doubt * 0.01 * information))
        parts.append((0.15 * q, S, V))
    whole = sum(q for q, _, _ in parts)
    mean = sum(q * m for q, m, _ in parts) / whole
    return mean, sum(q * (v + (m - mean) ** 2) for q, m, v in parts) / whole


def test_whoever_takes_the_comparison_away_before_an_answer_chose_the_moment_of_its_effect(
    story,
) -> None:
    canary(story, rate=0.108, units=1500)
    experiment = story.register(treatment_commit=K)
    story.tick(minutes=500)
    assert stopped(story, experiment) == (None, False, False)
    # What history shows could be chosen by the answer.
    assert read(story, experiment).json()["likelihood"] is None
    story.as_live()
    close(story, experiment, minutes=500)
    story.tick(minutes=DAY)
    assert stopped(story, experiment) == ("closed", True, True)
    # The estimate rests on three thousand sessions at 10 %.
    assert not read(story, experiment).json()["trainable"]
    effect, evidence = read(story, experiment).json(), story.evidence(experiment)
    assert effect["estimate"] is not None
    # The likelihood is served whoever stopped the experiment.
    likelihood, both = effect["likelihood"], 0.104 * evidence["totals"]["W"]
    mean, variance = mixed(evidence)
    assert likelihood["estimate"] == pytest.approx(mean / both, rel=0.01)
    assert likelihood["standard_error"] == pytest.approx(variance**0.5 / both, rel=0.01)
    assert differences(story, experiment) == []


@pytest.mark.nightly
def test_closed_after_it_was_due_its_effect_is_that_of_the_day_when_it_was(story) -> None:
    story.settings(reward_days=1)
    story.canary()
    serve(story, begin=0, days=3, units=2000, rate=0.104)
    experiment = story.register(treatment_commit=K)
    story.as_live()
    story.tick(minutes=DAY)
    due = read(story, experiment).json()
    story.tick(minutes=2.5 * DAY)
    close(story, experiment, minutes=2.5 * DAY)
    story.tick(minutes=2.8 * DAY)
    assert story.evidence(experiment)["ended_because"] == "closed"
    closed = read(story, experiment).json()
    assert stopped(story, experiment) == (None, True, True)
    assert closed["estimate"] == due["estimate"]
    assert closed["as_of"] == due["as_of"] <= at(DAY)


@pytest.mark.nightly
def test_a_canary_that_was_silently_gone_before_it_was_due_is_stopped(story) -> None:
    story.settings(reward_days=3)
    story.canary(None)
    for commit in (A, K):
        story.crowd(commit, start=0, minutes=2.5 * DAY, units=1500, rates={"order": 0.3})
    story.crowd(A, start=2.5 * DAY, minutes=9 * DAY, units=6000, rates={"order": 0.3})
    story.send()
    experiment = story.register(treatment_commit=K)
    story.as_live()
    story.tick(minutes=6 * DAY)
    assert stopped(story, experiment) == ("withdrawn", True, True)


@pytest.mark.nightly
def test_an_unfair_split_has_no_effect(story) -> None:
    # Declared 0.8, and half of the units came.
    canary(story, rate=0.14, share=0.8)
    experiment = story.register(treatment_commit=K)
    story.tick(minutes=DAY)
    assert story.contract(experiment)["abstain_reason"] == "interacting"
    effect = read(story, experiment).json()
    numbers = ("estimate", "standard_error", "interval", "relative")
    assert [effect[name] for name in numbers] == [None] * 4
    assert effect["basis"] == "open"
    assert story.evidence(experiment)["metrics"][0]["state"] == "unfair"


def serve(
    story,
    *,
    begin: float,
    days: float,
    units: int,
    rate: float,
    share: float = 0.5,
    base: float = 0.1,
) -> None:
    """Serves both builds over some days; `units` a day, of which a share gets the treatment."""
    treated = round(units * share * days)
    minutes = days * DAY
    story.crowd(
        A, start=begin, minutes=minutes, units=round(units * days) - treated, rates={"order": base}
    )
    story.crowd(K, start=begin, minutes=minutes, units=treated, rates={"order": rate})
    story.send()


@pytest.fixture
def kept(story) -> Callable[..., str]:
    """A keep within a day; what comes afterwards is history as well, of which no tick knows yet."""

    def run(*, later: float, days: float = 9, **promoted: float) -> str:
        canary = story.canary()
        if promoted:
            story.deploy(K, minutes=promoted["at"], base=A, allocation=1)
        serve(story, begin=0, days=1, units=8000, rate=0.35, base=0.25)
        serve(story, begin=DAY, days=days, units=1000, rate=later)
        experiment = story.register(treatment_commit=K, deploy_id=canary["deploy_id"])
        story.as_live()
        story.tick(minutes=DAY)
        assert story.contract(experiment)["verdict"] == "keep"
        return experiment

    return run


@pytest.mark.nightly
def test_a_hold_back_gives_a_fresh_effect_and_leaves_the_verdict_alone(story, kept) -> None:
    experiment = kept(later=0.12)
    before = story.contract(experiment), story.evidence(experiment), read(story, experiment).json()
    assert before[2]["after_decision"]["state"] == "running"
    story.tick(minutes=4 * DAY)
    running = read(story, experiment).json()
    assert running["after_decision"]["state"] == "running"
    story.tick(minutes=10 * DAY)
    final = read(story, experiment).json()
    after = final["after_decision"]
    assert after["state"] == "final"
    # The lift that was served since the decision, not the lift that decided.
    assert max(after["estimate"], final["estimate"]) < before[2]["estimate"]
    low, high = after["interval"]
    assert low < after["estimate"] < high
    began, ended = (datetime.fromisoformat(after[name]) for name in ("begins_at", "ends_at"))
    assert ended - began == timedelta(days=7)
    assert (story.contract(experiment), story.evidence(experiment)) == before[:2]
    story.tick(minutes=11 * DAY)
    assert read(story, experiment).json() == final
    # It is what the log gives at once, with which an audit compares it.
    assert differences(story, experiment) == []
    with story.store.engine.begin() as connection:
        connection.execute(text("UPDATE follow_ups SET effect = '{}' WHERE effect IS NOT NULL"))
    assert any(line.startswith("effect") for line in differences(story, experiment))


@pytest.mark.nightly
def test_promoted_to_everybody_before_its_end_it_is_stopped(story, kept) -> None:
    experiment = kept(later=0.12, days=2, at=3 * DAY)
    story.tick(minutes=4 * DAY)
    served = read(story, experiment).json()
    # A step after an answer is no choice of a moment.
    assert [served[name] for name in SERVED] == ["at_reward", True, True, None]
    after = served["after_decision"]
    assert (after["state"], after["estimate"]) == ("stopped", None)
    assert after["interval"][0] < 0.08 < after["interval"][1], after["interval"]


@pytest.mark.nightly
def test_without_traffic_on_both_arms_it_is_stopped_at_the_latest_at_its_end(story, kept) -> None:
    experiment = kept(later=0.12, days=1)
    story.tick(minutes=12 * DAY)
    assert read(story, experiment).json()["after_decision"]["state"] == "stopped"


def differences(story, experiment: str) -> list[str]:
    differences = audit(story.store.engine, experiment).differences
    # A live registration's policy is a test's own (`as_live`).
    return [line for line in differences if not line.startswith("policy.retrospective")]
