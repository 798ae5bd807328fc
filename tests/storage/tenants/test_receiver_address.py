"""Where receivers of webhooks may be, however their address is written or resolved."""

from ipaddress import ip_address

import pytest

from orchestration.outbound.receiver import judged
from storage.postgres.refusal import Invalid
from storage.tenants.receiver_address import SWITCH, RefusedAddressError, range_of
from storage.tenants.setting_changes import chosen_settings

PUBLIC = ["93.184.216.34", "2606:2800:21f:cb07::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"]
PRIVATE = [
    *("127.0.0.1", "::1", "10.1.2.3", "172.31.0.1", "192.168.0.1", "100.64.0.1", "fd12::1"),
    *("::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::1", "::10.0.0.1", "64:ff9b:1::1"),
    *("198.18.0.1", "192.0.2.1", "2001:db8::1", "2001::1"),
]
NEVER = [
    *("169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"),
    *("fe80::1", "fd00:ec2::254", "168.63.129.16", "0.0.0.0", "::", "0.1.2.3"),  # noqa: S104
    *("224.0.0.1", "ff02::1", "240.0.0.1", "255.255.255.255"),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_a_receivers(address) -> None:
    assert range_of(ip_address(address), private=False) is None


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_may_be_that_of_a_receiver_said_to_be_private(address) -> None:
    assert range_of(ip_address(address), private=True) is None
    with pytest.raises(RefusedAddressError, match="its name leads to") as refused:
        judged("hooks.example", ["93.184.216.34", address], private=False)
    assert f" {address}," not in str(refused.value)


@pytest.mark.parametrize("address", NEVER)
def test_no_receiver_may_be_where_clouds_keep_credentials_or_nobody_is(address) -> None:
    for private in (True, False):
        assert range_of(ip_address(address), private=private) is not None


@pytest.mark.parametrize(
    "host",
    [
        *("2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "0xa9.254.169.254", "127.1", "0"),
        *("169.254.169.254", "[::ffff:a9fe:a9fe]", "[fd00:ec2::254]", "[fe80::1]", "1.2.3.4."),
        *("hook.0x7f", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]"),
    ],
)
def test_an_address_that_parsers_read_differently_is_not_set(host) -> None:
    with pytest.raises(Invalid) as refused:
        chosen_settings({"webhooks": [{"url": f"https://{host}/secret-path"}]})
    assert refused.value.pointer == "/webhooks/0/url"
    assert "secret-path" not in str(refused.value)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "10.1.2.3", "[::1]", "ci", "hook.corp.internal", "hook.corp.internal."),
        *("localhost.", "LocalHost..", "localhost.localdomain", "ci.", "[::ffff:127.0.0.1]"),
    ],
)
@pytest.mark.parametrize("word", ["refuse", "Allow", ""])
def test_the_operator_refuses_private_receivers_where_they_are_set(monkeypatch, host, word) -> None:
    chosen = {"webhooks": [{"url": f"https://{host}/secret-path"}]}
    assert chosen_settings(chosen).webhooks[0].may_be_private
    monkeypatch.setenv(SWITCH, word)
    with pytest.raises(Invalid, match="on a private network, which SERVICE_WEBHOOK_PRIVATE") as no:
        chosen_settings(chosen)
    assert no.value.pointer == "/webhooks/0/url"
    assert "secret-path" not in str(no.value)
    assert chosen_settings({"webhooks": [{"url": "https://hooks.example/"}]}).webhooks
