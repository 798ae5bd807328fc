"""Warm-up: a build whose caches are cold at first is not judged by its first minutes."""

import pytest

from tests.world import DAY, A, K


def cold_start(story, *, minutes: int) -> str:
    """Registers a canary that loses orders for an hour, and nothing afterwards."""
    story.settings(warmup_minutes=minutes, locked=[])
    story.canary()
    for commit, rate in ((A, 0.30), (K, 0.05)):
        story.crowd(commit, start=1, minutes=58, units=600, rates={"order": rate})
    for commit in (A, K):
        story.crowd(commit, start=60, minutes=300, units=1000, rates={"order": 0.30})
    return story.judged(minutes=DAY)


def test_units_of_the_warm_up_are_counted_in_neither_arm(story) -> None:
    experiment = cold_start(story, minutes=60)
    evidence = story.evidence(experiment)
    assert story.contract(experiment)["verdict"] == "abstain"
    assert evidence["counts"]["warming"] == 1200
    assert evidence["counts"]["in_cells"] == 2000
    assert [evidence["arms"][arm]["units"] for arm in ("control", "treatment")] == [1000, 1000]
    assert evidence["policy"]["warmup_seconds"] == 3600
    # They came, in the shares that were declared.
    assert evidence["gates"]["sample_ratio_e"] == pytest.approx(0.55, abs=0.1)


@pytest.mark.nightly
def test_without_one_the_first_hour_decides(story) -> None:
    experiment = cold_start(story, minutes=0)
    evidence = story.evidence(experiment)
    assert story.contract(experiment)["verdict"] == "rollback"
    assert evidence["counts"]["warming"] == 0
    assert "warmup_seconds" not in evidence["policy"]


def test_whoever_came_in_the_warm_up_stays_in_neither_arm(story) -> None:
    story.settings(warmup_minutes=60, locked=[])
    story.deploy(A, minutes=-DAY)
    story.deploy(K, minutes=0, base=A)
    story.units_of(K, minutes=59, units=3)
    for event in list(story.events):
        story.events.append({**event, "event": "order", "occurred_at": "2026-10-01T02:00:00Z"})
        story.events.append({**event, "occurred_at": "2026-10-01T01:30:00Z"})
    story.units_of(K, minutes=60, units=2)
    experiment = story.judged(minutes=DAY)
    counts = story.evidence(experiment)["counts"]
    assert (counts["warming"], counts["in_cells"]) == (3, 2)
