"""Announcements: each piece of news is sent once, in the receiver's words, to whoever chose it."""

import pytest

from tests.orchestration.shop import NEWS


@pytest.mark.parametrize("kind", NEWS)
def test_each_piece_of_news_is_announced_once_however_often_it_is_published(
    shop, receiver, kind
) -> None:
    experiment = shop.register()
    for _ in range(3):
        shop.publish(experiment, kind)
        shop.tick()
    (got,) = receiver.got
    assert got.document["type"] == f"deploy_reward.{kind}"
    assert got.document["data"]["subject"] == ("error" if kind == "breached" else None)


def test_a_verdict_that_is_not_committed_is_not_announced(shop) -> None:
    experiment = shop.register()
    connection = shop.service.store.engine.connect()
    with connection, connection.begin() as transaction:
        shop.publish_in(connection, experiment, "decided")
        transaction.rollback()
    assert shop.rows("SELECT 1 FROM announcements") == []
    assert shop.tick() == "nothing to deliver"


def test_a_webhook_is_told_of_what_it_chose_alone(shop, receiver) -> None:
    shop.service.settings(webhooks=[{"url": receiver.url, "events": ["closed"]}])
    for kind in NEWS:
        shop.publish(shop.register(kind), kind)
    shop.tick()
    assert [got.document["type"] for got in receiver.got] == ["deploy_reward.closed"]


def test_what_was_announced_before_a_webhook_stood_is_no_news_to_it(shop, receiver) -> None:
    shop.service.settings(webhooks=[])
    shop.publish(shop.register(), "decided")
    shop.service.settings(webhooks=[{"url": receiver.url}])
    assert shop.tick() == "nothing to deliver"


def test_slack_is_told_in_text_that_mentions_nobody(shop, receiver) -> None:
    shop.service.settings(webhooks=[{"url": receiver.url, "format": "slack"}])
    experiment = shop.register()
    shop.publish(experiment, "breached")
    shop.tick()
    (got,) = receiver.got
    assert got.document == {
        "text": "*Guardrail breached: error*\n"
        "It is breached: 5 &lt; 6 &amp; &lt;!channel&gt;. It starts with the next deploy to"
        " production.\n"
        f"shop, production, order ({experiment})"
    }
    assert not [name for name in got.headers if name.startswith("webhook-")]


def test_slack_is_told_the_change_s_title_and_the_address_of_its_page(
    shop, receiver, monkeypatch
) -> None:
    monkeypatch.setenv("SERVICE_PUBLIC_URL", "https://reward.example")
    shop.service.settings(webhooks=[{"url": receiver.url, "format": "slack"}])
    shop.service.deploy("aaaaaaa1")
    message = "Sell <b> & more\n\nAnd why."
    shop.service.deploy("ccccccc3", 0.5, base="aaaaaaa1", commit={"message": message})
    experiment = shop.register()
    shop.publish(experiment, "decided")
    shop.tick()
    (got,) = receiver.got
    head, *_, foot = got.document["text"].split("\n")
    assert got.document["text"].startswith(f"{head}\nSell &lt;b&gt; &amp; more\nIt is decided")
    address = f"https://reward.example/dashboard/experiments/{experiment}"
    assert foot == f"shop, production, order, ccccccc3 (<{address}|{experiment}>)"


def test_github_is_told_with_the_token_of_the_variable(shop, receiver, monkeypatch) -> None:
    url = f"http://127.0.0.1:{receiver.port}/repos/acme/shop/dispatches"
    hook = {"url": url, "format": "github", "token_variable": "SERVICE_WEBHOOK_TOKEN_ACME"}
    shop.service.settings(webhooks=[hook])
    experiment = shop.register()
    shop.publish(experiment, "decided")
    assert shop.tick() == "1 × SERVICE_WEBHOOK_TOKEN_ACME is not set"
    assert receiver.got == []
    monkeypatch.setenv("SERVICE_WEBHOOK_TOKEN_ACME", "ghp_1")
    shop.let_time_pass()
    assert shop.tick() == "1 delivered"
    (got,) = receiver.got
    assert got.path == "/repos/acme/shop/dispatches"
    assert got.headers["authorization"] == "Bearer ghp_1"
    assert got.document["event_type"] == "deploy_reward_decided"
    payload = got.document["client_payload"]
    # As many members as GitHub takes.
    assert len(payload) == 10
    assert payload["contract"] == shop.service.get(f"/v1/reward/{experiment}").json()
