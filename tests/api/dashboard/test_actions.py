"""Owners register, close and ask again by buttons, keep notes, and try their webhooks."""

import pytest

from orchestration.outbound.delivery import deliver
from storage.tenants.keys import Role
from tests.clients.owner import KEYS, SCRIPT, Owner, alert, filled, forms
from tests.clients.receiver import receiving
from tests.world import World

DELIVERIES = "/dashboard/settings/deliveries"
STABLE, CANARY = "a" * 40, "b" * 40


@pytest.fixture
def deploy_id(owner) -> str:
    """A canary with a pull request, beside the build that users have."""
    owner.service.deploy(STABLE)
    commit = {
        "url": "https://git.example/shop/commit/b",
        "pull_request": "https://git.example/shop/pull/7",
    }
    return owner.service.deploy(CANARY, 0.1, base=STABLE, commit=commit)["deploy_id"]


def registered(owner: Owner, deploy_id: str, metric: str = "order") -> str:
    """Registers by the form on the deploy's page, and returns the experiment's path."""
    path = f"/dashboard/deploys/{deploy_id}"
    form = {**filled(owner.page(path), 0), "metric": metric}
    answer = owner.post(f"{path}/register", form)
    assert answer.status_code == 303, answer.text
    return answer.headers["Location"]


def test_a_deploy_is_registered_on_a_metric_whose_name_is_offered(owner, deploy_id) -> None:
    event = {"event": "order", "session_id": "s1", "commit": CANARY}
    assert owner.service.post("/v1/events", event).status_code == 202
    page = registered(owner, deploy_id)
    (listed,) = owner.service.listed()
    assert page == f"/dashboard/experiments/{listed['experiment_id']}"
    assert (listed["metric"], listed["treatment_commit"]) == ("order", CANARY)
    text = owner.page(page)
    assert 'href="https://git.example/shop/commit/b"' in text
    assert 'href="https://git.example/shop/pull/7"' in text
    # Pressed twice it is the same experiment.
    assert registered(owner, deploy_id) == page


def test_an_open_experiment_is_closed_and_a_decided_one_asked_again(owner, deploy_id) -> None:
    page = registered(owner, deploy_id)
    experiment_id = page.rpartition("/")[2]
    refused = owner.post(page, {"action": "anew"})
    assert refused.status_code == 409
    assert "close it first" in refused.text

    assert "Close without a verdict" in owner.page(page)
    assert owner.post(page, {"action": "close"}).status_code == 303
    ended = {"verdict": "abstain", "abstain_reason": "power", "decided": True}
    owner.service.publish(experiment_id, ended)
    text = owner.page(page)
    assert "Close without a verdict" not in text
    again = owner.post(page, {"action": "anew"})
    assert again.status_code == 303
    first, second = sorted(owner.service.listed(), key=lambda listed: listed["registered_at"])
    assert again.headers["Location"].endswith(second["experiment_id"])
    assert first["experiment_id"] == experiment_id
    for member in ("metric", "treatment_commit", "control_commit", "environment"):
        assert first[member] == second[member]


def test_a_note_is_kept_shown_as_text_and_removed(owner, deploy_id) -> None:
    page = registered(owner, deploy_id)
    assert owner.post(page, {"action": "note", "note": SCRIPT}).status_code == 303
    text = owner.page(page)
    assert SCRIPT not in text
    assert "&lt;script&gt;" in text
    assert owner.post(page, {"action": "note", "note": "x" * 2001}).status_code == 422
    assert owner.post(page, {"action": "note", "note": " "}).status_code == 303
    assert "&lt;script&gt;" not in owner.page(page)


def test_who_is_signed_in_to_read_sees_no_button_and_can_press_none(owner, deploy_id) -> None:
    page = registered(owner, deploy_id)
    owner.post(page, {"action": "note", "note": "Keep an eye on it."})
    reader = Owner(owner.service, Role.READ)
    assert "Keep an eye on it." in reader.page(page)
    for path in (page, f"/dashboard/deploys/{deploy_id}", DELIVERIES):
        assert not forms(reader.page(path))
    for path, form in (
        (page, {"action": "close"}),
        (page, {"action": "note", "note": "mine"}),
        (f"/dashboard/deploys/{deploy_id}/register", {"metric": "order"}),
        (DELIVERIES, {"target": "0" * 20}),
    ):
        assert reader.post(path, form).status_code == 403
    assert owner.service.get(page.replace("/dashboard/experiments", "/v1/reward")).is_success


def test_another_projects_experiment_and_deploy_are_unknown(owner) -> None:
    other = World.new(owner.service.store, owner.service.client, f"another {STABLE}")
    theirs = other.deploy(STABLE)
    other.deploy(CANARY)
    page = f"/dashboard/experiments/{other.register()}"
    for action in ("close", "anew", "note"):
        assert owner.post(page, {"action": action, "note": "mine"}).status_code == 404
    deploy = f"/dashboard/deploys/{theirs['deploy_id']}"
    refused = owner.post(f"{deploy}/register", {"metric": "order"})
    assert refused.status_code == 422
    assert "no such deploy" in refused.text


def test_a_deploy_that_changes_nothing_says_why_it_is_not_registered(owner) -> None:
    owner.service.deploy(STABLE)
    owner.service.deploy(CANARY, 0.1)
    nothing = owner.service.deploy("c" * 40, 0.1, commit={"changes": [STABLE]})["deploy_id"]
    refused = owner.post(f"/dashboard/deploys/{nothing}/register", {"metric": ""})
    assert refused.status_code == 422
    assert "name the canary&#39;s commit" in refused.text


class TestDeliveries:
    def test_a_delivery_that_tries_a_webhook_arrives_and_is_listed(self, owner) -> None:
        with receiving() as receiver:
            owner.service.settings(webhooks=[{"url": receiver.url}])
            (form,) = forms(owner.page(DELIVERIES))
            assert "Send a test delivery" in form
            sent = owner.post(DELIVERIES, filled(owner.page(DELIVERIES), 0))
            assert sent.status_code == 303
            assert "waits to be sent" in owner.page(DELIVERIES)
            deliver(owner.service.store.engine, secret=b"a secret of the tests, long enough")
        (got,) = receiver.got
        assert got.document["type"] == "deploy_reward.test"
        assert got.document["data"]["experiment_id"] is None
        assert got.document["data"]["contract"] is None
        assert "only tries the webhook" in got.document["data"]["sentence"]
        page = owner.page(DELIVERIES)
        assert "delivered" in page
        assert "waits to be sent" not in page

    def test_a_webhook_that_is_gone_gets_none(self, owner) -> None:
        gone = owner.post(DELIVERIES, {"target": "0" * 20})
        assert gone.status_code == 409
        assert "no such webhook" in alert(gone.text)


def test_a_label_stands_beside_its_key(owner) -> None:
    page = owner.page(KEYS)
    form = {**filled(page, len(forms(page)) - 1), "kind": "write", "label": f"CI {SCRIPT}"}
    assert owner.post(KEYS, form).status_code == 200
    assert "CI &lt;script&gt;" in owner.page(KEYS)
    page = owner.page(KEYS)
    form = {**filled(page, len(forms(page)) - 1), "kind": "write", "label": "x" * 65}
    assert owner.post(KEYS, form).status_code == 422
