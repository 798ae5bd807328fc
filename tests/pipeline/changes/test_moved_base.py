"""When the base moves: a canary of several is promoted, and the others lose their control."""

from orchestration.outbound.delivery import deliver
from tests.clients.owner import Owner
from tests.clients.receiver import receiving

A = "aaaaaaa1"
PROMOTED, CANARY = "ccccccc1", "ccccccc2"
DAY, SIX_HOURS = 1440.0, 360.0


def test_a_moved_base_is_announced_at_once_on_every_face(story) -> None:
    with receiving() as receiver:
        story.settings(webhooks=[{"url": receiver.url}])
        story.deploy(A, minutes=-DAY)
        for commit in (PROMOTED, CANARY):
            story.deploy(commit, minutes=0, base=A, allocation=0.1)
        experiment = story.register(treatment_commit=CANARY)
        bound = story.bound(experiment)
        assert (bound["base_moved"], bound["joint_with"]) == (None, [])

        story.deploy(PROMOTED, minutes=SIX_HOURS, allocation=1)
        # A second post of the same announces it no second time.
        story.deploy(PROMOTED, minutes=SIX_HOURS + 5, allocation=1)
        deliver(story.store.engine, secret=b"a secret of the tests, long enough")

    (delivery,) = receiver.got
    assert delivery.document["type"] == "deploy_reward.base_moved"
    assert delivery.document["data"]["subject"] == PROMOTED
    assert f"--base {PROMOTED} --change {CANARY}" in delivery.document["data"]["sentence"]
    bound = story.bound(experiment)
    assert bound["base_moved"]["rebase_on"] == PROMOTED
    assert (bound["base_moved"]["changes"], bound["base_moved"]["continues"]) == ([CANARY], True)
    page = Owner(story).page(f"/dashboard/experiments/{experiment}")
    assert f"Users now have {PROMOTED}" in page
    assert f"--base {PROMOTED} --change {CANARY}" in page
