"""When the base moves: one of several canaries is promoted, and the others lose their control."""

from typing import Any

from orchestration.outbound.delivery import deliver
from storage.tenants.keys import KeyKind
from tests.clients.receiver import receiving

A = "aaaaaaa1"
PROMOTED, CANARY = "ccccccc1", "ccccccc2"
DAY, SIX_HOURS = 1440.0, 360.0


def test_a_moved_base_is_told_at_once_on_every_face(story: Any) -> None:
    service, canary = story.service, CANARY
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
