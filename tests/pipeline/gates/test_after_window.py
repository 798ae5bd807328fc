"""After the window, from events to the verdict: who converts later is not taken for harm."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import cycle

import pytest

from tests.world import DAY, A, K

WINDOW = 30.0


def orders_move(story, commit: str, *, one_in: int, minutes: float) -> None:
    """Lets a share of the orders of a commit come so much later."""
    turn: Iterator[int] = cycle(range(one_in))
    for event in story.events:
        if event["commit"] == commit and event["event"] == "order" and next(turn) == 0:
            moved = datetime.fromisoformat(event["occurred_at"]) + timedelta(minutes=minutes)
            event["occurred_at"] = moved.isoformat()


def canary(story, *, minutes: float) -> str:
    story.canary()
    for commit in (A, K):
        story.crowd(commit, start=1, minutes=600, units=3000, rates={"order": 0.30})
    orders_move(story, K, one_in=5, minutes=minutes)
    return story.judged(minutes=DAY)


def test_orders_that_come_after_the_window_hold_a_rollback_back(story) -> None:
    experiment = canary(story, minutes=2 * WINDOW)
    contract, evidence = story.contract(experiment), story.evidence(experiment)
    assert (contract["verdict"], contract["abstain_reason"]) == ("abstain", "interacting")
    assert evidence["gates"]["interacting_because"] == ["after_window"]
    assert evidence["gates"]["after_window_e"] > 100
    assert evidence["policy"]["after_window_at"] == 100.0
    assert "outcomes come after the window more often" in evidence["sentence"]
    (advice,) = evidence["advice"]
    assert advice.startswith("The arm with the lower rate converts later:")


@pytest.mark.nightly
def test_orders_that_never_come_are_a_harm(story) -> None:
    experiment = canary(story, minutes=5 * WINDOW)
    contract, evidence = story.contract(experiment), story.evidence(experiment)
    assert contract["verdict"] == "rollback"
    assert evidence["gates"]["after_window_e"] < 100
