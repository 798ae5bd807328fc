"""A webhook gets each decision once, also when everything is computed anew."""

from orchestration.outbound.delivery import deliver
from storage.tenants.attestations import WebhookSecrets
from tests.clients.receiver import receiving
from tests.stores.emptied import empty_derived_tables
from tests.world import A, K

OF_THE_TESTS = b"a secret of the tests, long enough"


def test_a_canary_s_breach_and_its_decision_are_told_once_each_to_whoever_waits_for_it(
    story,
) -> None:
    with receiving() as receiver:
        story.settings(webhooks=[{"url": receiver.url}])
        story.canary()
        for start, units, order in ((0, 200, 0.40), (120, 300, 0.10)):
            story.crowd(A, start=start, minutes=60, units=units, rates={"order": 0.40})
            deliveries = {"order": order, "error": 0.30}
            story.crowd(K, start=start, minutes=60, units=units, rates=deliveries)
        story.send()
        story.goes_on()
        experiment = story.register(treatment_commit=K, guardrails=["error"])
        for minutes in (60, 120, 180, 300, None):
            story.tick(minutes=minutes)
        story.in_store(empty_derived_tables)
        story.tick()
        story.tick()
        done = deliver(story.store.engine, secret=OF_THE_TESTS)

    assert done.delivered == len(receiver.got) == 2
    deliveries = {got.document["type"]: got for got in receiver.got}
    breached = deliveries["deploy_reward.breached"].document["data"]
    assert breached["subject"] == "error"
    assert breached["contract"]["power_state"]["decided"] is False
    decided = deliveries["deploy_reward.decided"]
    assert decided.body.endswith(story.get(f"/v1/reward/{experiment}").content + b"}}")
    assert decided.is_signed_with(WebhookSecrets(OF_THE_TESTS).of(story.project_id))
    data = decided.document["data"]
    assert data.pop("contract")["verdict"] == "rollback"
    assert data == {
        "project": "shop",
        "experiment_id": experiment,
        "environment": "production",
        "commit": K,
        "metric": "order",
        "subject": None,
        "sentence": story.evidence(experiment)["sentence"],
    }
