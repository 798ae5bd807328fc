"""Webhooks: what is decided is told once, signed, again until it arrives, and to nobody else."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from sqlalchemy import text

from cli.main import main
from orchestration.delivery import deliver
from orchestration.resources import Store as StoreResource
from orchestration.webhooks import webhooks
from storage.contract import contract, document_text
from storage.deliveries import LONGEST_WAIT, MOST_ATTEMPTS, claim_attempt, wait_after
from storage.freeze import freeze, unfreeze
from storage.reading import empty_derived_tables
from storage.refusal import Invalid
from storage.secret import WebhookSecrets
from storage.settings import parse_settings
from storage.verdicts import Draft, publish_verdicts, stage_evidence
from tests.api.test_redaction import dumped
from tests.receiver import Receiver, receiving

OF_THE_TESTS = "a secret of the tests"
LIFT = {"lift": 0.1, "confidence": 0.999, "ci": (0.05, 0.15), "cadence": "fast"}
NEWS: dict[str, dict[str, Any]] = {
    "decided": {"verdict": "keep", "abstain_reason": None, "decided": True, **LIFT},
    "closed": {"verdict": "abstain", "abstain_reason": "power", "decided": True},
    "breached": {
        "verdict": "abstain",
        "abstain_reason": "power",
        "decided": False,
        "guardrail_breaches": ["error"],
    },
    "set_up_fault": {"verdict": "abstain", "abstain_reason": "interacting", "decided": False},
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A project that is told of its verdicts, and the ticks that tell it."""

    service: Any
    instance: dg.DagsterInstance

    def register(self, metric: str = "order") -> str:
        answer = self.service.post("/v1/reward/register", {"target_metric": metric})
        return answer.json()["experiment_id"]

    def publish(self, experiment_id: str, kind: str) -> None:
        self.service.in_store(lambda connection: self.publish_in(connection, experiment_id, kind))

    def publish_in(self, connection: Any, experiment_id: str, kind: str) -> None:
        document = {"sentence": f"It is {kind}: 5 < 6 & <!channel>."}
        draft = Draft(
            experiment_id=experiment_id,
            document=document_text(document),
            contract=document_text(contract(experiment_id, **NEWS[kind])),
            as_of=datetime.now(UTC),
            next_look_at=None,
        )
        stage_evidence(connection, [draft])
        publish_verdicts(connection)

    def tick(self) -> str:
        """What a tick of the sensor says."""
        resource = StoreResource(database_url=self.service.store.url)
        with dg.build_sensor_context(
            instance=self.instance, resources={"store": resource}
        ) as context:
            said = webhooks.evaluate_tick(context).skip_message
        assert said is not None
        return said

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.service.in_store(lambda c: [tuple(row) for row in c.execute(text(query))])

    def change(self, statement: str) -> None:
        self.service.in_store(lambda c: c.execute(text(statement)))

    def let_time_pass(self) -> None:
        """Whatever waits is due."""
        self.change("UPDATE deliveries SET next_attempt_at = clock_timestamp()")


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    """One for all: the sensor asks nothing of it."""
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def shop(
    service: Any,
    receiver: Receiver,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> Shop:
    monkeypatch.setenv("SERVICE_SECRET", OF_THE_TESTS)
    service.settings(webhooks=[{"url": receiver.url}])
    return Shop(service=service, instance=instance)


def secret_of(shop: Shop) -> str:
    return WebhookSecrets(OF_THE_TESTS.encode()).of(shop.service.project_id)


# --- What is told ---------------------------------------------------------------------------------


def test_a_decided_verdict_is_delivered_once_and_signed_with_the_contract_to_the_byte(
    shop: Shop, receiver: Receiver
) -> None:
    experiment = shop.register()
    shop.publish(experiment, "decided")
    assert shop.tick() == "1 delivered"
    assert shop.tick() == "nothing to deliver"

    (got,) = receiver.got
    served = shop.service.get(f"/v1/reward/{experiment}").content
    assert got.body.endswith(b'"contract":' + served + b"}}")
    assert got.is_signed_with(secret_of(shop))
    assert "." not in got.id
    document = got.document
    assert document["type"] == "deploy_reward.decided"
    assert document["data"] | {"contract": None} == {
        "project": "shop",
        "experiment_id": experiment,
        "environment": "production",
        "commit": None,
        "metric": "order",
        "subject": None,
        "sentence": "It is decided: 5 < 6 & <!channel>.",
        "contract": None,
    }


@pytest.mark.parametrize("kind", NEWS)
def test_each_piece_of_news_is_announced_once_however_often_it_is_published(
    shop: Shop, receiver: Receiver, kind: str
) -> None:
    experiment = shop.register()
    for _ in range(3):
        shop.publish(experiment, kind)
        shop.tick()
    (got,) = receiver.got
    assert got.document["type"] == f"deploy_reward.{kind}"
    assert got.document["data"]["subject"] == ("error" if kind == "breached" else None)


def test_a_breach_and_then_the_decision_are_two_pieces_of_news(
    shop: Shop, receiver: Receiver
) -> None:
    experiment = shop.register()
    shop.publish(experiment, "breached")
    shop.publish(experiment, "decided")
    shop.tick()
    types = {got.document["type"] for got in receiver.got}
    assert types == {"deploy_reward.breached", "deploy_reward.decided"}
    assert len({got.id for got in receiver.got}) == 2


def test_a_rebuild_announces_nothing_again(shop: Shop, receiver: Receiver) -> None:
    experiments = {kind: shop.register(kind) for kind in NEWS}
    for kind, experiment in experiments.items():
        shop.publish(experiment, kind)
    shop.tick()
    shop.service.in_store(empty_derived_tables)
    for kind, experiment in experiments.items():
        shop.publish(experiment, kind)
    assert shop.tick() == "nothing to deliver"
    assert len(receiver.got) == len(NEWS)


def test_a_verdict_that_is_not_committed_is_not_announced(shop: Shop) -> None:
    experiment = shop.register()
    connection = shop.service.store.engine.connect()
    with connection, connection.begin() as transaction:
        shop.publish_in(connection, experiment, "decided")
        transaction.rollback()
    assert shop.rows("SELECT 1 FROM announcements") == []
    assert shop.tick() == "nothing to deliver"


def test_a_webhook_is_told_of_what_it_chose_alone(shop: Shop, receiver: Receiver) -> None:
    shop.service.settings(webhooks=[{"url": receiver.url, "events": ["closed"]}])
    for kind in NEWS:
        shop.publish(shop.register(kind), kind)
    shop.tick()
    assert [got.document["type"] for got in receiver.got] == ["deploy_reward.closed"]


def test_what_was_announced_before_a_webhook_stood_is_no_news_to_it(
    shop: Shop, receiver: Receiver
) -> None:
    shop.service.settings(webhooks=[])
    shop.publish(shop.register(), "decided")
    shop.service.settings(webhooks=[{"url": receiver.url}])
    assert shop.tick() == "nothing to deliver"


def test_slack_is_told_in_text_that_mentions_nobody(shop: Shop, receiver: Receiver) -> None:
    shop.service.settings(webhooks=[{"url": receiver.url, "format": "slack"}])
    experiment = shop.register()
    shop.publish(experiment, "breached")
    shop.tick()
    (got,) = receiver.got
    assert got.document == {
        "text": "*Guardrail breached: error*\n"
        "It is breached: 5 &lt; 6 &amp; &lt;!channel&gt;.\n"
        f"shop, production, order ({experiment})"
    }
    assert not [name for name in got.headers if name.startswith("webhook-")]


def test_github_is_told_with_the_token_of_the_variable(
    shop: Shop, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# --- Until it arrives -----------------------------------------------------------------------------


def test_what_a_receiver_does_not_take_is_sent_again_under_the_same_id(
    shop: Shop, receiver: Receiver
) -> None:
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


def test_a_receiver_that_is_away_is_tried_again(shop: Shop) -> None:
    with receiving() as gone:
        shop.service.settings(webhooks=[{"url": gone.url}])
    shop.publish(shop.register(), "decided")
    assert shop.tick() == "1 × 127.0.0.1: no connection"
    waits = shop.rows("SELECT next_attempt_at > clock_timestamp() FROM deliveries")
    assert waits == [(True,)]


@pytest.mark.process
def test_a_deliverer_that_is_killed_between_sending_and_noting_it_sends_again(
    shop: Shop, receiver: Receiver
) -> None:
    shop.publish(shop.register(), "decided")
    code = (
        "from orchestration.delivery import deliver\n"
        "from storage.engine import open_engine\n"
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


def test_two_who_deliver_at_once_send_each_announcement_once(
    shop: Shop, receiver: Receiver
) -> None:
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


def test_a_delivery_that_somebody_claims_is_nobody_else_s_meanwhile(shop: Shop) -> None:
    for number in range(2):
        shop.publish(shop.register(f"m{number}"), "decided")
    engine = shop.service.store.engine
    with engine.begin() as first, engine.begin() as second:
        second.execute(text("SET LOCAL lock_timeout = '2s'"))
        claims = [claim_attempt(connection) for connection in (first, second, second)]
    assert claims[2] is None
    assert len({claim.announcement.announcement_id for claim in claims if claim}) == 2


def test_a_receiver_that_does_not_answer_holds_up_no_other(shop: Shop, receiver: Receiver) -> None:
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


def test_a_receiver_that_fails_is_left_alone_for_the_rest_of_the_round(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answer(500)
    for number in range(3):
        shop.publish(shop.register(f"m{number}"), "decided")
    assert shop.tick() == "1 × 127.0.0.1: status 500"
    assert len(receiver.got) == 1


def test_a_receiver_that_is_gone_is_told_no_more(shop: Shop, receiver: Receiver) -> None:
    shop.publish(shop.register(), "decided")
    receiver.answer(410)
    assert shop.tick() == "1 given up; 1 × 127.0.0.1: status 410"
    shop.let_time_pass()
    assert shop.tick() == "nothing to deliver"


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [("3600", 3590, 3610), ("99999999", 21_500, 21_700), ("a while", 0, 60)],
)
def test_a_receiver_may_ask_for_a_longer_wait_within_bounds(
    shop: Shop, receiver: Receiver, asked: str, least: int, most: int
) -> None:
    shop.publish(shop.register(), "decided")
    receiver.answer(503, Retry_After=asked)
    shop.tick()
    ((wait,),) = shop.rows("SELECT next_attempt_at - clock_timestamp() FROM deliveries")
    assert timedelta(seconds=least) <= wait <= timedelta(seconds=most)


@pytest.mark.parametrize("broken_off", [False, True])
def test_after_its_last_attempt_a_delivery_is_given_up(
    shop: Shop, receiver: Receiver, *, broken_off: bool
) -> None:
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


def test_a_webhook_that_the_project_took_away_is_told_no_more(
    shop: Shop, receiver: Receiver
) -> None:
    shop.publish(shop.register(), "decided")
    shop.service.settings(webhooks=[])
    assert shop.tick() == "1 given up; 1 × the project has no such webhook any more"
    assert receiver.got == []


def test_without_the_secret_raw_webhooks_wait_and_lose_no_attempt(
    shop: Shop, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
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


def test_while_frozen_everything_waits_and_then_goes(shop: Shop, receiver: Receiver) -> None:
    shop.service.in_store(lambda connection: freeze(connection, "an incident"))
    shop.publish(shop.register(), "decided")
    assert shop.tick().startswith("frozen since ")
    # Who began before the freeze claims nothing more either.
    assert not deliver(shop.service.store.engine, secret=OF_THE_TESTS.encode()).told()
    assert receiver.got == []
    shop.service.in_store(unfreeze)
    assert shop.tick() == "1 delivered"


# --- What an operator does ------------------------------------------------------------------------


def said(*words: str) -> str:
    """What the command line prints of the shop's webhooks."""
    told = CliRunner().invoke(main, ["webhooks", *words, "--project", "shop"])
    assert told.exit_code == 0, told.output
    return told.output


def test_what_was_given_up_is_listed_and_sent_again_when_asked(
    shop: Shop, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert "Nothing waits" in said("list")


def test_a_delivery_that_arrived_is_sent_again_by_its_name_alone(
    shop: Shop, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
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
    shop: Shop,
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
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
    told = "\n".join([*said, *capfd.readouterr(), caplog.text, str(refused.value)])
    assert "127.0.0.1: status 500" in told
    assert canary not in told
    shop.service.settings(webhooks=[])
    assert canary not in dumped(shop.service.store.url)


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
def test_a_webhook_that_must_not_be_is_refused_without_quoting_it(webhook: Any) -> None:
    with pytest.raises(Invalid) as refused:
        parse_settings({"webhooks": [webhook]})
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
def test_an_address_on_a_private_network_may_be_plain(url: str) -> None:
    assert parse_settings({"webhooks": [{"url": url}]}).webhooks[0].url == url


def test_a_project_has_ten_webhooks_at_most_and_none_twice() -> None:
    ten = [{"url": f"https://shop.example/{number}"} for number in range(10)]
    assert len(parse_settings({"webhooks": ten}).webhooks) == 10
    with pytest.raises(Invalid):
        parse_settings({"webhooks": [*ten, {"url": "https://shop.example/10"}]})
    with pytest.raises(Invalid, match="same address"):
        parse_settings({"webhooks": [ten[0], {**ten[0], "events": ["closed"]}]})
