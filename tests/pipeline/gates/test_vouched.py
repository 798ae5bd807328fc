"""Vouched outcomes, from events to the evidence: who sent what a keep rests on."""

import pytest
from sqlalchemy import text

from domain.wording.vouched import vouched_sentence
from tests.world import DAY, A, K

# Events of history come with the write key; these orders come with the public key.
_WITH_THE_PUBLIC_KEY = text("""
UPDATE runtime_events SET trusted = false
WHERE event = 'order' AND commit_sha = ANY(:commits) AND mod(hashtext(session_id), :of) = 0
""")


def kept(story, *, commits: list[str], of: int, signed: bool = False) -> str:
    """Keeps a canary; of the orders of some commits 1 in so many came with the public key."""
    story.canary()
    for commit, rate in ((A, 0.20), (K, 0.30)):
        story.crowd(commit, start=1, minutes=600, units=4000, rates={"order": rate})
    story.send()
    with story.store.engine.begin() as connection:
        connection.execute(_WITH_THE_PUBLIC_KEY, {"commits": commits, "of": of})
        if signed:
            connection.execute(text("UPDATE runtime_events SET signed = true"))
    experiment = story.register(treatment_commit=K)
    story.tick(minutes=DAY)
    assert story.contract(experiment)["verdict"] == "keep"
    return experiment


def test_a_keep_whose_gain_came_with_the_public_key_is_unverified(story) -> None:
    # Of treatment's orders half, so that the others are fewer than control's.
    evidence = story.evidence(kept(story, commits=[K], of=2))
    assert "unverified" in evidence["warnings"]
    vouched = evidence["vouched"]
    assert 0 < vouched["conversions"] < vouched["of"]
    assert vouched["of"] == sum(arm["conversions"] for arm in evidence["arms"].values())
    assert not vouched["holds"]


@pytest.mark.nightly
def test_a_keep_whose_outcomes_the_router_signed_is_verified(story) -> None:
    evidence = story.evidence(kept(story, commits=[K], of=2, signed=True))
    assert evidence["warnings"] == ["turnover_unseen", "retrospective"]
    assert evidence["vouched"]["conversions"] == evidence["vouched"]["of"]
    assert evidence["vouched"]["e_value"] == evidence["totals"]["e_value"]


@pytest.mark.nightly
def test_where_all_came_with_the_public_key_the_evidence_says_so(story) -> None:
    evidence = story.decoded(kept(story, commits=[A, K], of=1))
    assert evidence.warnings == ("turnover_unseen", "retrospective")
    assert evidence.vouched is not None
    assert evidence.vouched.conversions == 0
    # Nor can anything say whether a page loses some of them.
    assert evidence.gates.channels_e is None
    assert vouched_sentence(evidence.vouched) == (
        "all outcomes came with the public key, which anybody can send with"
    )
