"""The effect, read through REST: the number to train on, beside the verdict."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

A, K = "aaaaaaa1", "ccccccc3"
DAY = 1440.0


def canary(story, *, rate: float, share: float = 0.5, units: int = 4000) -> None:
    story.deploy(A, minutes=-DAY)
    story.deploy(K, minutes=0, base=A, allocation=share)
    story.crowd(A, start=0, minutes=600, units=units, rates={"order": 0.10})
    story.crowd(K, start=0, minutes=600, units=units, rates={"order": rate})
    story.send()


def read(story, experiment: str) -> Any:
    return story.service.get(f"/v1/reward/{experiment}/effect")


def test_an_open_experiment_has_an_effect_that_is_nearer_to_nothing_than_its_lift(story) -> None:
    canary(story, rate=0.108, units=1500)
    worth_two = {"name": "order", "value_per_conversion": 2}
    experiment = story.register(treatment_commit=K, target_metric=worth_two)
    answer = read(story, experiment)
    assert (answer.status_code, answer.json()["code"]) == (404, "no_evidence_yet")
    story.walk(minutes=700)
    assert story.contract(experiment)["lift"] is None
    effect, totals = read(story, experiment).json(), story.evidence(experiment)["totals"]
    assert effect["basis"] == "open"
    assert effect["final"] is False
    assert 0 < effect["estimate"] < totals["lift"]
    assert effect["interval"] == totals["ci"]
    assert effect["units"] == 3000
    a_day = effect["value_per_day"] / effect["estimate"]
    assert effect["value_interval"] == pytest.approx([end * a_day for end in totals["ci"]])
    assert story.evidence(experiment)["value_range"] == {
        "low": effect["value_interval"][0],
        "high": effect["value_interval"][1],
    }


def test_a_decided_experiment_keeps_the_effect_of_the_look_that_decided(story) -> None:
    canary(story, rate=0.14)
    experiment = story.register(treatment_commit=K)
    story.walk(minutes=DAY)
    contract, effect = story.contract(experiment), read(story, experiment).json()
    assert contract["verdict"] == "keep"
    assert (effect["basis"], effect["final"]) == ("at_decision", True)
    assert effect["interval"] == contract["ci"]
    assert 0 < effect["estimate"] < contract["lift"]
    assert effect["relative"] == pytest.approx(
        effect["estimate"] / story.evidence(experiment)["arms"]["control"]["rate"], rel=0.1
    )
    assert effect["value_per_day"] is None
    assert story.evidence(experiment)["effect"] == effect
    decided_at = datetime.fromisoformat(effect["as_of"])
    assert decided_at < datetime(2026, 10, 1, tzinfo=UTC) + timedelta(minutes=DAY)
    story.walk(minutes=2 * DAY)
    assert read(story, experiment).json() == effect


def test_an_unfair_split_has_no_effect(story) -> None:
    # Declared 0.8, and half of the units came.
    canary(story, rate=0.14, share=0.8)
    experiment = story.register(treatment_commit=K)
    story.walk(minutes=DAY)
    assert story.contract(experiment)["abstain_reason"] == "interacting"
    effect = read(story, experiment).json()
    numbers = ("estimate", "standard_error", "interval", "relative")
    assert [effect[name] for name in numbers] == [None] * 4
    assert effect["basis"] == "open"
