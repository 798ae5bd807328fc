"""The configuration of Vector that docs/sending.md hands out maps the events of three platforms."""

import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from sqlalchemy import text

from storage.tenants.keys import KeyKind
from tests.cli.conftest import serving
from tests.clients.page import example
from tests.processes.registry import python_of

pytestmark = pytest.mark.process

BLOCK = example("vector.yaml")
CONFIGURATION: dict[str, Any] = yaml.safe_load(BLOCK)
# The language's own engine, wrapped by somebody else: exactly this wrapper, and here alone.
VRL = "pyVRL==0.0.2"
PROGRAM = """
import json, sys
from pyvrl import Transform
source, events = json.load(sys.stdin)
# It returns the last expression; Vector goes on with the event itself.
transform = Transform(source + " .")
for event in events:
    try:
        print(json.dumps(transform.remap(event)))
    except ValueError as error:
        if "aborted" not in str(error):
            raise
        print(json.dumps(None))
"""
SHA = "4f2a9c1d"
PAGE_OF_SEGMENT = {
    "type": "page",
    "anonymousId": "a-1",
    "userId": None,
    "messageId": "ajs-next-1767225600000-" + "0123456789abcdef" * 3,
    "timestamp": "2026-01-31T12:00:00.123Z",
    "originalTimestamp": "2026-01-31T11:59:59.000Z",
    "context": {"page": {"path": "/checkout/17", "url": "https://s"}, "commit": SHA},
    "properties": {"path": "/other", "title": "Checkout"},
    "integrations": {},
}
ORDER_OF_SEGMENT = {
    "type": "track",
    "event": "Order Completed",
    "anonymousId": "a-1",
    "userId": "u-9",
    "messageId": "m-2",
    "timestamp": "2026-01-31T12:01:00Z",
    "context": {"library": {"name": "analytics-node"}},
    "properties": {"order_id": "o-1", "revenue": 25.5, "currency": "USD"},
}
VIEWED_OF_RUDDERSTACK = {
    "type": "track",
    "channel": "web",
    "event": "Experiment Viewed",
    "anonymousId": "a-2",
    "messageId": "m-3",
    "originalTimestamp": "2026-01-31T12:00:00Z",
    "context": {"sessionId": 1767225600, "commit": SHA, "page": {"path": "/"}},
    "properties": {"experiment_name": "one-step", "variation_name": "on"},
}
IDENTIFY = {"type": "identify", "anonymousId": "a-1", "traits": {"email": "ada@example.com"}}
NOBODY = {"type": "track", "event": "Order Completed", "messageId": "m-4"}
VIEW_OF_SNOWPLOW = {
    "app_id": "shop",
    "event": "page_view",
    "event_name": "page_view",
    "event_id": "c6ef3124-b53a-4b13-a233-0088f79dcbcb",
    "collector_tstamp": "2026-01-31T12:00:01Z",
    "derived_tstamp": "2026-01-31T12:00:00.5Z",
    "domain_userid": "bc2e92ec6c204a14",
    "domain_sessionid": "1e3a9b1c",
    "user_id": "u-9",
    "page_urlpath": "/checkout/17",
    "contexts_com_example_build_1": [{"commit": SHA}],
    "contexts_com_example_flag_1": [{"name": "one-step", "value": True}],
}
ORDER_OF_SNOWPLOW = {
    "event": "struct",
    "event_name": "event",
    "event_id": "e-2",
    "se_action": "order_placed",
    "se_value": 12.5,
    "collector_tstamp": "2026-01-31 12:01:00.000",
    "domain_sessionid": "1e3a9b1c",
}
PING = {"event": "page_ping", "event_name": "page_ping", "domain_sessionid": "1e3a9b1c"}

SENT = {
    "of_segment": [PAGE_OF_SEGMENT, ORDER_OF_SEGMENT, VIEWED_OF_RUDDERSTACK, IDENTIFY, NOBODY],
    "of_snowplow": [VIEW_OF_SNOWPLOW, ORDER_OF_SNOWPLOW, PING],
}
MAPPED: dict[str, list[Any]] = {
    "of_segment": [
        {
            "event": "page_view",
            "session_id": "a-1",
            "occurred_at": "2026-01-31T12:00:00.123Z",
            "route": "/checkout/17",
            "commit": SHA,
        },
        {
            "event": "Order Completed",
            "session_id": "a-1",
            "user_ref": "u-9",
            "occurred_at": "2026-01-31T12:01:00Z",
            "value": 25.5,
            "event_id": "m-2",
        },
        {
            "event": "Experiment Viewed",
            "session_id": "a-2",
            "occurred_at": "2026-01-31T12:00:00Z",
            "route": "/",
            "commit": SHA,
            "flags": {"one-step": "on"},
            "event_id": "m-3",
        },
        None,
        None,
    ],
    "of_snowplow": [
        {
            "event": "page_view",
            "session_id": "1e3a9b1c",
            "user_ref": "u-9",
            "event_id": "c6ef3124-b53a-4b13-a233-0088f79dcbcb",
            "occurred_at": "2026-01-31T12:00:00.5Z",
            "route": "/checkout/17",
            "commit": SHA,
            "flags": {"one-step": True},
        },
        {
            "event": "order_placed",
            "session_id": "1e3a9b1c",
            "event_id": "e-2",
            "occurred_at": "2026-01-31T12:01:00.000Z",
            "value": 12.5,
        },
        None,
    ],
}


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    return python_of(tmp_path_factory.mktemp("python"), [VRL])


def remapped(python: Path, transform: str) -> list[Any]:
    source = CONFIGURATION["transforms"][transform]["source"]
    done = subprocess.run(
        [python, "-c", PROGRAM],
        input=json.dumps([source, SENT[transform]]),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.nightly
@pytest.mark.parametrize("transform", SENT)
def test_each_platform_s_events_become_ours_and_the_service_takes_them(
    service, python, transform
) -> None:
    events = remapped(python, transform)
    # Longer than an event_id may be.
    if transform == "of_segment":
        assert len(events[0].pop("event_id")) == 64
    assert events == MAPPED[transform]
    taken = [event for event in remapped(python, transform) if event is not None]
    sink = CONFIGURATION["sinks"]["reward"]
    body = sink["payload_prefix"] + json.dumps(taken) + sink["payload_suffix"]
    headers = service.write | {"Content-Type": "application/json"}
    answer = service.client.post("/v1/events", content=body, headers=headers)
    assert (answer.status_code, answer.json()["rejected"]) == (202, [])
    assert answer.json()["accepted"] == len(taken)
    assert "ignored" not in answer.json()


def test_a_batch_is_as_large_as_the_service_takes() -> None:
    batch = CONFIGURATION["sinks"]["reward"]["batch"]
    assert batch["max_events"] == 500
    assert batch["max_bytes"] < 2**20


@pytest.mark.skipif(shutil.which("vector") is None, reason="Vector is not here")
def test_vector_runs_the_page_s_configuration(service, tmp_path) -> None:
    (tmp_path / "vector.yaml").write_text(BLOCK)
    with serving(service) as url:
        environment = {
            "PATH": os.environ["PATH"],
            "VECTOR_ADDRESS": "127.0.0.1",
            "VECTOR_DATA_DIR": str(tmp_path),
            "SERVICE_API_URL": url,
            "SERVICE_WRITE_KEY": service.project.keys[KeyKind.WRITE],
        }
        command = ["vector", "--config", str(tmp_path / "vector.yaml")]
        with subprocess.Popen(command, env=environment) as vector:
            try:
                transport = httpx2.HTTPTransport(retries=10)
                with httpx2.Client(transport=transport) as client:
                    for port, name in ((8686, "of_segment"), (8687, "of_snowplow")):
                        for event in SENT[name]:
                            client.post(f"http://127.0.0.1:{port}/", json=event).raise_for_status()
                expected = sum(event is not None for name in MAPPED for event in MAPPED[name])
                waiting = threading.Event()
                for _ in range(600):
                    if stored(service) == expected:
                        break
                    waiting.wait(0.1)
            finally:
                vector.terminate()
    assert stored(service) == expected


def stored(service: Any) -> int:
    counted = text("SELECT count(*) FROM runtime_events")
    return service.in_store(lambda connection: connection.execute(counted).scalar_one())
