"""Before exposure, from events to the verdict: outcomes that come before their unit's exposure."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.repetition import also_nightly
from tests.world import A, K

SECOND = timedelta(seconds=1)
UNITS, ORDERS = 60, 20


def canary(story, early: str, *, routes: list[str] | None) -> str:
    """A canary at equal orders."""
    story.canary()
    for commit in (A, K):
        story.crowd(commit, start=20, minutes=600, units=2500, rates={"order": 0.3}, route="/home")
    orders = [event for event in story.events if event["event"] == "order"]
    for number, order in enumerate(orders):
        order["route"] = "/checkout"
        if order["commit"] == early and number % 5 == 0:
            moved = datetime.fromisoformat(order["occurred_at"]) - timedelta(minutes=12)
            order["occurred_at"] = moved.isoformat()
    story.send()
    experiment = story.register(treatment_commit=K, routes=routes)
    # So many increments: an exposure is known after the events before it.
    for hours in (3, 12.5):
        story.tick(minutes=60 * hours)
    return experiment


@pytest.mark.parametrize("early", also_nightly([K], [A]))
def test_orders_before_the_exposure_hold_the_answer_back_that_they_explain(story, early) -> None:
    experiment = canary(story, early, routes=["/home"])
    contract, evidence = story.contract(experiment), story.evidence(experiment)
    assert (contract["verdict"], contract["abstain_reason"]) == ("abstain", "interacting")
    assert evidence["totals"]["e_value"] > 20
    assert evidence["gates"]["interacting_because"] == ["before_exposure"]
    assert "outcomes come before the exposure more often" in evidence["sentence"]
    assert any("without `routes`" in step for step in evidence["advice"])
    counts = "150 of treatment, 0 of control" if early == K else "0 of treatment, 150 of control"
    assert evidence["gates"]["checks"][-1]["detail"] == counts


@pytest.mark.nightly
def test_without_routes_the_order_itself_exposes_and_nothing_is_lost(story) -> None:
    evidence = story.evidence(canary(story, K, routes=None))
    assert evidence["gates"]["before_exposure_e"] is None
    assert evidence["gates"]["interacting_because"] == []
    assert evidence["totals"]["e_value"] < 2


@pytest.mark.parametrize(
    ("viewed", "ordered"),
    [
        # By how many seconds the clock of each request is behind, and how many it travels.
        ((0, 22), (0, 0)),
        ((3600, 22), (3600, 0)),
        ((None, 0), (90, 0)),
        ((None, 0), (119, 0)),
        ((-4000, 0), (-4000, 22)),
    ],
)
def test_an_order_counts_after_its_page_view_whatever_the_clocks_show(
    story, viewed, ordered
) -> None:
    story.begin = datetime.now(UTC) - timedelta(minutes=8)
    story.canary()
    experiment = story.register(treatment_commit=K, routes=["/list"])
    sessions = {commit: story.new_sessions(UNITS) for commit in (A, K)}
    for event, seconds, sender, units in (
        ("page_view", 25, viewed, UNITS),
        ("order", 15, ordered, ORDERS),
    ):
        behind, travels = sender
        shown = datetime.now(UTC) - (behind or 0) * SECOND
        events = [
            {
                "event": event,
                "session_id": session,
                "commit": commit,
                "route": "/list" if event == "page_view" else "/thanks",
                "occurred_at": (shown - seconds * SECOND).isoformat(),
            }
            for commit, own in sessions.items()
            for session in own[:units]
        ]
        sent = {} if behind is None else {"sent_at": (shown - travels * SECOND).isoformat()}
        answer = story.post("/v1/events", {"events": events, **sent})
        assert answer.json()["accepted"] == len(events)
    story.tick(minutes=2 * 1440)
    arms = story.evidence(experiment)["arms"]
    counted = {name: (arm["units"], arm["conversions"]) for name, arm in arms.items()}
    assert counted == dict.fromkeys(("treatment", "control"), (UNITS, ORDERS))
