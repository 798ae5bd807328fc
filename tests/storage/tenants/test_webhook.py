"""Webhooks: which addresses a project may name."""

import pytest

from storage.postgres.refusal import Invalid
from storage.tenants.setting_changes import chosen_settings


@pytest.mark.parametrize(
    "webhook",
    [
        {"url": "ftp://shop.example/secret-path"},
        {"url": "http://shop.example/secret-path"},
        {"url": "http://93.184.216.34/secret-path"},
        {"url": "https://user:password@shop.example/secret-path"},
        {"url": "https://user@shop.example/secret-path"},
        {"url": "https://shop.example/secret-path#fragment"},
        {"url": "https://shop.example\\@10.0.0.1/secret-path"},
        {"url": "https://shop.example:99999/secret-path"},
        {"url": "https://shop.example/secret-path with a space"},
        {"url": "https://shop.example/secret-path/…"},
        {"url": "http://169.254.169.254/secret-path"},
        {"url": "http://[::ffff:169.254.169.254]/secret-path"},
        {"url": "http://0.0.0.0/secret-path"},
        {"url": "https://shop.example/secret-path", "events": []},
        {"url": "https://shop.example/secret-path", "events": ["opened"]},
        {"url": "https://shop.example/secret-path", "format": "teams"},
        {"url": "https://shop.example/secret-path", "token_variable": "SERVICE_SECRET"},
        {"url": "https://shop.example/secret-path", "token_variable": "SERVICE_WEBHOOK_TOKEN_"},
        {"url": "https://api.github.com/repos/acme/secret-path/dispatches", "format": "github"},
        {
            "url": "https://api.github.com/secret-path",
            "format": "github",
            "token_variable": "SERVICE_WEBHOOK_TOKEN_A",
        },
        {
            "url": "https://hooks.slack.com/secret-path",
            "format": "slack",
            "token_variable": "SERVICE_WEBHOOK_TOKEN_A",
        },
        "https://shop.example/secret-path",
    ],
    ids=str,
)
def test_a_webhook_that_must_not_be_is_refused_without_quoting_it(webhook) -> None:
    with pytest.raises(Invalid) as refused:
        chosen_settings({"webhooks": [webhook]})
    assert refused.value.pointer.startswith("/webhooks/0")
    assert "secret-path" not in str(refused.value)
    assert "password" not in str(refused.value).replace("without user, password", "")


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example",
        "https://hooks.slack.com/services/T/B/x?y=1",
        "http://localhost:8080/hook",
        "http://127.0.0.1/hook",
        "http://[::1]:80/hook",
        "http://10.1.2.3/hook",
        "http://ci/hook",
        "http://hook_receiver:8000/",
        "http://hook.ci.svc.cluster.local/hook",
        "http://hook.corp.internal/hook",
    ],
)
def test_an_address_on_a_private_network_may_be_plain(url) -> None:
    assert chosen_settings({"webhooks": [{"url": url}]}).webhooks[0].url == url


def test_no_webhook_is_named_twice() -> None:
    webhook = {"url": "https://shop.example/1"}
    with pytest.raises(Invalid, match="same address"):
        chosen_settings({"webhooks": [webhook, {**webhook, "events": ["closed"]}]})
