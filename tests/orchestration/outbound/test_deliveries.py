"""Deliveries: an announcement is sent again until it arrives, and to nobody else."""

import json
import logging
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import main
from orchestration.outbound.delivery import deliver
from storage.postgres.refusal import Invalid
from storage.releases.freeze import freeze, unfreeze
from storage.tenants.settings import parse_settings
from storage.verdicts.deliveries import LONGEST_WAIT, MOST_ATTEMPTS, wait_after
from tests.api.wire.test_redaction import dumped
from tests.clients.receiver import receiving
from tests.orchestration.shop import OF_THE_TESTS, secret_of

# --- Until it arrives -----------------------------------------------------------------------------


def test_what_a_receiver_does_not_take_is_sent_again_under_the_same_id(shop, receiver) -> None:
    shop.publish(shop.register(), "decided")
    receiver.answer(500, 302, 404)
    for status in (500, 302, 404):
        assert shop.tick() == f"1 × 127.0.0.1: status {status}"
        assert shop.tick() == "nothing to deliver"
        shop.let_time_pass()
    assert shop.tick() == "1 delivered"
    assert len(receiver.got) == 4
    assert len({(got.id, got.body) for got in receiver.got}) == 1
    assert all(got.is_signed_with(secret_of(shop)) for got in receiver.got)
    assert shop.rows("SELECT attempts, delivered_at IS NOT NULL, problem FROM deliveries") == [
        (4, True, None)
    ]


@pytest.mark.process
def test_a_deliverer_that_is_killed_between_sending_and_noting_it_sends_again(
    shop, receiver
) -> None:
    shop.publish(shop.register(), "decided")
    code = (
        "from orchestration.outbound.delivery import deliver\n"
        "from storage.postgres.engine import open_engine\n"
        f"deliver(open_engine({shop.service.store.url!r}), secret={OF_THE_TESTS.encode()!r})\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        receiver.meanwhile = lambda _: (process.kill(), process.wait())
        receiver.wait_for(1)
        process.wait(timeout=30)
    receiver.meanwhile = lambda _: None
    assert shop.rows("SELECT attempts, delivered_at FROM deliveries") == [(1, None)]
    shop.let_time_pass()
    assert shop.tick() == "1 delivered"
    first, second = receiver.got
    assert (first.id, first.body) == (second.id, second.body)


def test_two_who_deliver_at_once_send_each_announcement_once(shop, receiver) -> None:
    second = f"{receiver.url}/2"
    shop.service.settings(webhooks=[{"url": receiver.url}, {"url": second}])
    for number in range(6):
        shop.publish(shop.register(f"m{number}"), "decided")
    both = threading.Barrier(2, timeout=30)
    # Nobody is answered before both have come.
    first_two = [lambda _: both.wait()] * 2
    receiver.meanwhile = lambda received: first_two.pop()(received) if first_two else None
    threads = [
        threading.Thread(
            target=deliver,
            args=(shop.service.store.engine,),
            kwargs={"secret": OF_THE_TESTS.encode()},
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent = [(got.id, got.path) for got in receiver.got]
    assert len(sent) == len(set(sent)) == 12
    assert shop.rows("SELECT count(*) FROM deliveries WHERE attempts = 1") == [(12,)]


def test_a_receiver_that_does_not_answer_holds_up_no_other(shop, receiver) -> None:
    with receiving() as slow:
        shop.service.settings(webhooks=[{"url": slow.url}, {"url": receiver.url}])
        released = threading.Event()
        slow.meanwhile = lambda _: released.wait(30)
        for number in range(3):
            shop.publish(shop.register(f"m{number}"), "decided")
        ticking = threading.Thread(target=shop.tick)
        ticking.start()
        slow.wait_for(1)
        receiver.wait_for(3)
        assert len(slow.got) == 1
        released.set()
        ticking.join()
        assert len(slow.got) == 3


def test_a_receiver_s_status_tells_whatever_becomes_of_its_body(shop, receiver) -> None:
    shop.publish(shop.register(), "decided")
    receiver.answer(200, Content_Length="1000")
    shop.tick()
    assert shop.rows("SELECT count(*) FROM deliveries WHERE delivered_at IS NOT NULL") == [(1,)]


def test_a_receiver_that_fails_is_left_alone_for_the_rest_of_the_round(shop, receiver) -> None:
    receiver.answer(500)
    for number in range(3):
        shop.publish(shop.register(f"m{number}"), "decided")
    assert shop.tick() == "1 × 127.0.0.1: status 500"
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [("3600", 3590, 3610), ("99999999", 21_500, 21_700), ("a while", 0, 60)],
)
def test_a_receiver_may_ask_for_a_longer_wait_within_bounds(
    shop, receiver, asked, least, most
) -> None:
    shop.publish(shop.register(), "decided")
    receiver.answer(503, Retry_After=asked)
    shop.tick()
    ((wait,),) = shop.rows("SELECT next_attempt_at - clock_timestamp() FROM deliveries")
    assert timedelta(seconds=least) <= wait <= timedelta(seconds=most)


@pytest.mark.parametrize("broken_off", [False, True])
def test_after_its_last_attempt_a_delivery_is_given_up(shop, receiver, *, broken_off) -> None:
    shop.publish(shop.register(), "decided")
    receiver.answer(500)
    shop.change(f"UPDATE deliveries SET attempts = {MOST_ATTEMPTS - (not broken_off)}")
    assert shop.tick().startswith("1 given up")
    assert len(receiver.got) == (not broken_off)
    shop.let_time_pass()
    assert shop.tick() == "nothing to deliver"


def test_waits_double_to_six_hours_and_make_three_days_in_all() -> None:
    def waits(name: str) -> list[timedelta]:
        return [
            wait_after(number, announcement_id=name, target="t")
            for number in range(1, MOST_ATTEMPTS)
        ]

    first = waits("msg_1")
    assert timedelta(seconds=24) <= first[0] <= timedelta(seconds=36)
    assert all(wait <= 1.2 * LONGEST_WAIT for wait in first)
    assert timedelta(days=2.5) <= sum(first, timedelta()) <= timedelta(days=3.5)
    # Those that failed together come back apart.
    assert len({waits(f"msg_{number}")[0] for number in range(50)}) == 50


def test_a_webhook_that_the_project_took_away_is_told_no_more(shop, receiver) -> None:
    shop.publish(shop.register(), "decided")
    shop.service.settings(webhooks=[])
    assert shop.tick() == "1 given up; 1 × the project has no such webhook any more"
    assert receiver.got == []


def test_without_the_secret_raw_webhooks_wait_and_lose_no_attempt(
    shop, receiver, monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("SERVICE_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("SERVICE_SECRET")
    shop.publish(shop.register(), "decided")
    assert "neither SERVICE_SECRET nor" in shop.tick()
    assert list(tmp_path.iterdir()) == []
    assert shop.rows("SELECT attempts FROM deliveries") == [(0,)]
    monkeypatch.setenv("SERVICE_SECRET", OF_THE_TESTS)
    shop.let_time_pass()
    assert shop.tick() == "1 delivered"
    assert receiver.got[0].is_signed_with(secret_of(shop))


def test_while_frozen_everything_waits_and_then_goes(shop, receiver) -> None:
    shop.service.in_store(lambda connection: freeze(connection, "an incident"))
    shop.publish(shop.register(), "decided")
    assert shop.tick().startswith("frozen since ")
    # Who began before the freeze claims nothing more either.
    assert not deliver(shop.service.store.engine, secret=OF_THE_TESTS.encode()).as_text()
    assert receiver.got == []
    shop.service.in_store(unfreeze)
    assert shop.tick() == "1 delivered"


# --- What an operator does ------------------------------------------------------------------------


def said(*words: str) -> str:
    result = CliRunner().invoke(main, ["webhooks", *words, "--project", "shop"])
    assert result.exit_code == 0, result.output
    return result.output


def test_what_was_given_up_is_listed_and_sent_again_when_asked(shop, receiver, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_DATABASE_URL", shop.service.store.url)
    shop.publish(shop.register(), "decided")
    receiver.answer(410)
    shop.tick()
    (lost,) = json.loads(said("list", "--json"))
    assert (lost["event"], lost["receiver"], lost["problem"]) == (
        "decided",
        "127.0.0.1",
        "127.0.0.1: status 410",
    )
    assert lost["given_up_at"]
    assert not lost["next_attempt_at"]
    assert shop.tick() == "nothing to deliver"

    assert json.loads(said("resend", "--given-up", "--json")) == {"due": 1}
    assert shop.tick() == "1 delivered"
    first, second = receiver.got
    assert (first.id, first.body) == (second.id, second.body)
    assert second.is_signed_with(secret_of(shop))
    assert "No delivery is waiting" in said("list")


def test_a_delivery_that_arrived_is_sent_again_by_its_name_alone(
    shop, receiver, monkeypatch
) -> None:
    monkeypatch.setenv("SERVICE_DATABASE_URL", shop.service.store.url)
    shop.publish(shop.register(), "decided")
    shop.tick()
    (arrived,) = json.loads(said("list", "--all", "--json"))
    assert arrived["delivered_at"]
    assert json.loads(said("resend", "--given-up", "--json")) == {"due": 0}
    assert "1 due now" in said("resend", arrived["announcement_id"])
    assert shop.tick() == "1 delivered"
    assert [got.id for got in receiver.got] == [arrived["announcement_id"]] * 2
    for words in (["resend"], ["resend", "msg_of_nobody"]):
        refused = CliRunner().invoke(main, ["webhooks", *words, "--project", "shop"])
        assert refused.exit_code != 0


# --- Addresses are secrets ------------------------------------------------------------------------


def test_the_path_of_an_address_is_told_to_its_receiver_alone(
    shop, receiver, caplog, capfd
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("httpx2", "httpcore2.http11", "httpcore2.connection"):
        caplog.set_level(logging.DEBUG, logger=name)
    canary = "T0canary"
    with receiving() as gone:
        pass
    ports = (receiver.port, gone.port)
    urls = [f"http://127.0.0.1:{port}/services/{canary}?{canary}" for port in ports]
    shop.service.settings(webhooks=[{"url": url, "format": "slack"} for url in urls])
    said: list[str] = []
    for number, status in enumerate((200, 500, 302)):
        receiver.answer(status, Location=urls[0])
        shop.publish(shop.register(f"m{number}"), "decided")
        said.append(shop.tick())
    with pytest.raises(Invalid) as refused:
        parse_settings({"webhooks": [{"url": f"http://shop.example/{canary}"}]})
    assert len(receiver.got) == 3
    assert all(canary in got.path for got in receiver.got)
    output = "\n".join([*said, *capfd.readouterr(), caplog.text, str(refused.value)])
    assert "127.0.0.1: status 500" in output
    assert canary not in output
    shop.service.settings(webhooks=[])
    assert canary not in dumped(shop.service.store.url)


# --- Only to an address that was judged -----------------------------------------------------------


@pytest.fixture
def names(monkeypatch) -> dict[str, list[str]]:
    """Names of a resolver of the test's own: each look-up takes the next address."""
    addresses: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *more: Any, **options: Any) -> Any:
        return real(addresses[host].pop(0) if host in addresses else host, port, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return addresses


def test_a_public_name_that_leads_to_a_private_network_is_not_posted_to(
    shop, receiver, names
) -> None:
    names["hooks.example"] = ["127.0.0.1"]
    shop.service.settings(webhooks=[{"url": f"https://hooks.example:{receiver.port}/hook"}])
    shop.publish(shop.register(), "decided")
    assert shop.tick() == (
        "1 × hooks.example: its name leads to the loopback range 127.0.0.0/8,"
        " where the receiver may not be"
    )
    assert receiver.got == []


def test_a_name_is_resolved_once_and_the_address_that_was_judged_is_posted_to(
    shop, receiver, names
) -> None:
    # A second look-up would lead elsewhere.
    names["hook.corp.internal"] = ["127.0.0.1", "192.0.2.1"]
    url = f"http://hook.corp.internal:{receiver.port}/hook"
    shop.service.settings(webhooks=[{"url": url}])
    shop.publish(shop.register(), "decided")
    assert shop.tick() == "1 delivered"
    assert names["hook.corp.internal"] == ["192.0.2.1"]
    (got,) = receiver.got
    assert got.headers["host"] == f"hook.corp.internal:{receiver.port}"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_operator_s_refusal_holds_for_webhooks_that_were_set_before(
    shop, receiver, monkeypatch, host
) -> None:
    shop.service.settings(webhooks=[{"url": receiver.url.replace("127.0.0.1", host)}])
    shop.publish(shop.register(), "decided")
    monkeypatch.setenv("SERVICE_WEBHOOK_PRIVATE", "refuse")
    reason = "it is on a private network, which SERVICE_WEBHOOK_PRIVATE refuses"
    assert shop.tick() == f"1 × {host}: {reason}"
    assert receiver.got == []
    monkeypatch.delenv("SERVICE_WEBHOOK_PRIVATE")
    shop.let_time_pass()
    assert shop.tick() == "1 delivered"
