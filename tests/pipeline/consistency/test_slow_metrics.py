"""Slow metrics: what came so far is said days before their windows close, and decides nothing."""

from datetime import timedelta

import pytest

from domain.evidence.document import evidence_from
from domain.wording.warnings import warning_sentences
from mcp_server.explanation import explanation
from orchestration.pipeline.audit import audit
from tests.clients.owner import Owner
from tests.pipeline.engines.rows import oracle_rows, stored_rows
from tests.pipeline.engines.test_engines import differences
from tests.world import DAY, A, K

SLOW = {"sources": ["paid"], "window_seconds": 8 * 86_400}
UNITS, SEEN = 2000, 2.5 * DAY
SAID = (
    "Within 2 days treatment has 10.00 % of paid, control 20.00 %. What is missing may be late or"
    " lost: that is known when the whole window of the metric has passed. Give the change no larger"
    " share before."
)


def canary(story, *, late: bool) -> str:
    """A fifth of each arm pays; half of treatment's payers do so on the fifth day, or never."""
    story.settings(metrics={"paid": SLOW})
    story.canary()
    for commit, soon in ((A, 5), (K, 10)):
        sessions = story.new_sessions(UNITS)
        for number, session in enumerate(sessions):
            at = number % 600
            seen = {"session_id": session, "commit": commit}
            events = [("page_view", at)]
            if number % soon == 0:
                events.append(("paid", at + 60))
            elif number % 5 == 0 and late:
                events.append(("paid", at + 5 * DAY))
            story.events += [
                {**seen, "event": event, "occurred_at": story.at(minutes)}
                for event, minutes in events
            ]
    return story.judged(minutes=SEEN, target_metric="paid", guardrails=[])


@pytest.mark.parametrize("late", [True, False])
def test_fewer_so_far_is_said_at_once_and_whether_they_are_lost_when_the_window_has_passed(
    story, late
) -> None:
    experiment = canary(story, late=late)
    contract, evidence = story.contract(experiment), story.evidence(experiment)
    assert (contract["verdict"], contract["abstain_reason"]) == ("abstain", "power")
    assert contract["guardrail_breaches"] == []
    so_far = evidence["metrics"][1]
    assert (so_far["role"], so_far["state"]) == ("so_far", "fewer_so_far")
    assert (so_far["control"], so_far["treatment"]) == (0.2, 0.1)
    assert "no window has passed yet" in evidence["sentence"]
    assert SAID in warning_sentences(evidence_from(evidence))
    told = explanation(evidence_from(evidence), ())["evidence"]
    assert "fewer_so_far" in told["warnings"]
    page = Owner(story).page(f"/dashboard/experiments/{experiment}")
    assert "Within 2 days treatment has" in page
    assert audit(story.store.engine, experiment).differences == []
    with story.store.engine.connect() as connection:
        until = story.begin + timedelta(minutes=SEEN)
        stored = stored_rows(connection, experiment)
        assert differences(stored, oracle_rows(connection, experiment, until=until)) == {}

    story.tick(minutes=9 * DAY)
    contract, evidence = story.contract(experiment), story.evidence(experiment)
    assert (contract["verdict"] == "rollback") == (not late)
    assert "fewer_so_far" not in evidence["warnings"]
    assert "so_far" not in [row["role"] for row in evidence["metrics"]]
    story.require_the_counts_to_add_up()
