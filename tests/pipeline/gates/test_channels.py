"""Channels, from events to the verdict: of what servers know of, what the pages sent too."""

import pytest
from sqlalchemy import text

from tests.repetition import also_nightly
from tests.world import DAY, A, K

# Events of history come with the write key; the pages' come with the public key.
WITH_THE_PUBLIC_KEY = text("""
UPDATE runtime_events SET trusted = false WHERE event_id LIKE 'page-%'
""")


def ordered(story, lost_by: str | None) -> str:
    """A canary at equal orders, half of which servers know of, whose pages send nearly all."""
    story.canary()
    for commit in (A, K):
        sessions = story.crowd(commit, start=1, minutes=600, units=3000)
        seen = {event["session_id"]: event for event in story.events}
        for number, session in enumerate(sessions):
            order = {**seen[session], "event": "order"}
            if number % 5 < 2 and not (commit == lost_by and number % 4 == 0):
                story.events.append({**order, "event_id": f"page-{session}"})
            if number % 5 == 0:
                story.events.append({**order, "event_id": f"server-{session}"})
    story.send()
    with story.store.engine.begin() as connection:
        connection.execute(WITH_THE_PUBLIC_KEY)
    experiment = story.register(treatment_commit=K)
    story.tick(minutes=DAY)
    return experiment


@pytest.mark.parametrize("lost_by", also_nightly([K], [A]))
def test_a_page_that_loses_orders_holds_the_answer_back_and_says_how_to_count_them(
    story, lost_by
) -> None:
    experiment = ordered(story, lost_by)
    contract, evidence = story.contract(experiment), story.evidence(experiment)
    assert (contract["verdict"], contract["abstain_reason"]) == ("abstain", "interacting")
    assert evidence["totals"]["e_value"] > 20
    assert evidence["gates"]["interacting_because"] == ["channels"]
    assert "the page of the arm that looks lower sends fewer" in evidence["sentence"]
    assert any("with the write key" in step for step in evidence["advice"])
