"""Turnover, from events to the verdict: sessions that last longer, or end early, make no gain."""

import pytest

from domain.wording.warnings import warning_sentences
from tests.repetition import also_nightly
from tests.world import DAY, A, K

UNITS = 2500


def canary(
    story, rates: dict[str, float], *, of: str, share: float, again: float, named: bool = True
) -> str:
    """A canary in which a share of a commit's visitors begin another session, in either arm.

    Args:
        rates: How many of the first sessions of each commit order.
        again: How many of the further sessions order.
    """
    story.canary()
    users: dict[str, str] = {}
    for commit in (A, K):
        first = story.crowd(
            commit, start=1, minutes=600, units=UNITS, rates={"order": rates[commit]}
        )
        users |= {session: session for session in first}
        if commit == of:
            left = first[:: round(1 / share)]
    for number, commit in enumerate((A, K)):
        back = left[number::2]
        more = story.crowd(commit, start=11, minutes=600, units=len(back), rates={"order": again})
        users |= dict(zip(more, back, strict=True))
    if named:
        for event in story.events:
            event["user_ref"] = f"visitor {users[event['session_id']]}"
    return story.judged(minutes=DAY)


@pytest.mark.parametrize("named", also_nightly([True], [False]))
def test_a_build_whose_sessions_outlive_a_visit_is_not_kept_for_it(story, named) -> None:
    """Three visitors in ten come back, and each visit orders in 30 % of all cases."""
    rates = {A: 0.3, K: 0.7 * 0.3 + 0.3 * (1 - 0.7**2)}
    experiment = canary(story, rates, of=A, share=1 / 3, again=0.3, named=named)
    contract, evidence = story.contract(experiment), story.evidence(experiment)
    if not named:
        assert contract["verdict"] == "keep"
        assert evidence["gates"]["turnover_e"] == 1.0
        assert evidence["warnings"] == ["turnover_unseen", "retrospective"]
        return
    assert (contract["verdict"], contract["abstain_reason"]) == ("abstain", "interacting")
    assert evidence["gates"]["interacting_because"] == ["turnover"]
    assert evidence["gates"]["turnover_e"] > 100
    assert "whose visitors begin fewer others" in evidence["sentence"]
    assert "set `unit` to `user`" in evidence["advice"][0]


@pytest.mark.nightly
def test_a_build_that_cuts_sessions_is_rolled_back_and_the_reason_named(story) -> None:
    """Of all visits 60 % order; every tenth of treatment's does so in another session."""
    experiment = canary(story, {A: 0.6, K: 0.54}, of=K, share=0.1, again=0.6)
    evidence = story.decoded(experiment)
    assert story.contract(experiment)["verdict"] == "rollback"
    assert evidence.gates.interacting_because == ()
    assert evidence.warnings == ("sessions_cut", "retrospective")
    sentence, _ = warning_sentences(evidence)
    assert sentence.startswith("Sessions end early in treatment, and visitors begin another")
