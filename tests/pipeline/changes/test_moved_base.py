"""When the base moves: one of several canaries is promoted, and the others lose their control."""

from typing import Any

import pytest

from orchestration.outbound.delivery import deliver
from storage.tenants.keys import KeyKind
from tests.clients.receiver import receiving

A = "aaaaaaa1"
CANARIES = [f"ccccccc{number}" for number in range(1, 6)]
REBASED = [f"ddddddd{number}" for number in range(1, 6)]
PROMOTED, *OTHERS = CANARIES
DAY, SIX_HOURS, NOTICED = 1440.0, 360.0, 420.0
# What each canary makes of a rate of 0.10: two help, one harms, and two change nothing.
RATES = dict(zip(CANARIES, (0.16, 0.06, 0.10, 0.15, 0.10), strict=True))


def serve(story: Any, shares: dict[str, float], rates: dict[str, float], *hours: float) -> None:
    """Twenty units a minute from one hour to another, spread by shares over the builds."""
    begin, end = (60 * hour for hour in hours)
    for commit, share in shares.items():
        story.crowd(
            commit,
            start=begin,
            minutes=end - begin,
            units=int(20 * share * (end - begin)),
            rates={"order": rates[commit]},
        )


@pytest.mark.nightly
def test_five_canaries_on_one_base_get_each_its_answer_when_one_is_promoted(story: Any) -> None:
    story.deploy(A, minutes=-DAY)
    for commit in CANARIES:
        story.deploy(commit, minutes=0, base=A, allocation=0.1)
    story.deploy(PROMOTED, minutes=SIX_HOURS, allocation=1)
    # The recipe: each of the others on what users have now, and its old commit withdrawn.
    for commit, rebased in zip(OTHERS, REBASED[1:], strict=True):
        brought = {"changes": [commit]}
        story.deploy(rebased, minutes=NOTICED, base=PROMOTED, commit=brought, allocation=0.1)
        story.deploy(commit, minutes=NOTICED, allocation=0)
    canaries = dict.fromkeys(CANARIES, 0.1)
    serve(story, {A: 0.5, **canaries}, {A: 0.10, **RATES}, 0, 6)
    serve(story, {PROMOTED: 0.6, **dict.fromkeys(OTHERS, 0.1)}, RATES, 6, 7)
    # On the promoted build all rates are higher by what it brings; the effects add up.
    rates = {
        PROMOTED: 0.16,
        **{new: RATES[old] + 0.06 for old, new in zip(OTHERS, REBASED[1:], strict=True)},
    }
    serve(story, {PROMOTED: 0.6, **dict.fromkeys(REBASED[1:], 0.1)}, rates, 7, 30)
    story.send()
    experiments = {commit: story.register(treatment_commit=commit) for commit in CANARIES}

    # Four hours are too short for four of them; then the sixth comes, and the base moves.
    for minutes in range(60, 420, 60):
        story.walk(minutes=minutes)
    assert story.contract(experiments[PROMOTED])["verdict"] == "keep"
    still_open = [
        commit
        for commit in OTHERS
        if not story.contract(experiments[commit])["power_state"]["decided"]
    ]
    assert len(still_open) >= 2
    story.walk(minutes=NOTICED)
    for commit in still_open:
        evidence = story.evidence(experiments[commit])
        assert evidence["base_moved"] == {
            "rebase_on": PROMOTED,
            "changes": [commit],
            "since": evidence["base_moved"]["since"],
            "continues": True,
        }
        assert "base_moved" in evidence["warnings"]
        assert f"--base {PROMOTED} --change {commit}" in evidence["advice"][0]

    for minutes in range(480, 1800 + 120, 60):
        story.walk(minutes=minutes)
    answers = {
        commit: story.contract(experiment)["verdict"] for commit, experiment in experiments.items()
    }
    assert answers == dict(
        zip(CANARIES, ("keep", "rollback", "abstain", "keep", "abstain"), strict=True)
    )
    for commit in (CANARIES[2], CANARIES[4]):
        evidence = story.evidence(experiments[commit])
        low, high = evidence["totals"]["ci"]
        assert low < 0 < high
        assert evidence["base_moved"] is None
        # Units of both bases count: 2 a minute for 6 hours, and for 23 on the new one.
        assert evidence["arms"]["treatment"]["units"] > 3_300


def test_a_moved_base_is_told_at_once_on_every_face(story: Any) -> None:
    service, canary = story.service, OTHERS[0]
    with receiving() as receiver:
        service.settings(webhooks=[{"url": receiver.url}])
        story.deploy(A, minutes=-DAY)
        for commit in (PROMOTED, canary):
            story.deploy(commit, minutes=0, base=A, allocation=0.1)
        experiment = story.register(treatment_commit=canary)
        told = service.get(f"/v1/reward/{experiment}/registration").json()
        assert (told["base_moved"], told["joint_with"]) == (None, [])

        story.deploy(PROMOTED, minutes=SIX_HOURS, allocation=1)
        # A second post of the same does not tell it a second time.
        story.deploy(PROMOTED, minutes=SIX_HOURS + 5, allocation=1)
        deliver(service.store.engine, secret=b"a secret of the tests")

    (got,) = receiver.got
    assert got.document["type"] == "deploy_reward.base_moved"
    assert got.document["data"]["subject"] == PROMOTED
    assert f"--base {PROMOTED} --change {canary}" in got.document["data"]["sentence"]
    told = service.get(f"/v1/reward/{experiment}/registration").json()
    assert told["base_moved"]["rebase_on"] == PROMOTED
    assert (told["base_moved"]["changes"], told["base_moved"]["continues"]) == ([canary], True)
    service.client.post(
        "/dashboard/sign-in",
        data={"secret": service.project.keys[KeyKind.PROJECT]},
        headers={"Sec-Fetch-Site": "same-origin"},
    )
    page = service.client.get(f"/dashboard/experiments/{experiment}").text
    assert f"Users have {PROMOTED} now" in page
    assert f"--base {PROMOTED} --change {canary}" in page
