"""The official SDKs of OpenTelemetry and OpenFeature send, and the service counts units."""

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.repository.private_service import PrivateService, private_service
from storage.tenants.keys import KeyKind
from storage.tenants.projects import create_project
from storage.tenants.setting_changes import apply_settings
from tests.api.otlp.exports import BUILD
from tests.clients.page import blocks, example, page
from tests.processes.registry import node_folder, node_program, output_of, python_of

pytestmark = pytest.mark.process

PAGE = page("opentelemetry.md")
HOOKED = blocks(PAGE, "sh")[4].split()[2:]
# Of 40 sessions, each other is served the treatment; twice as many of them convert.
SESSIONS, BUYERS = 40, {True: 10, False: 5}


WITH_SDK, WITH_HOOK = range(2)
IN_PYTHON = """
import json, os
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider

def drawn(flag, context):
    from openfeature.flag_evaluation import FlagResolutionDetails, Reason
    on = int(context.targeting_key) % 2 == 0
    return FlagResolutionDetails(value=on, variant="on" if on else "off", reason=Reason.SPLIT)

flag = InMemoryFlag("on", {"on": True, "off": False}, context_evaluator=drawn)
api.set_provider(InMemoryProvider({"one-step": flag}))
client = api.get_client()
for number in range(40):
    context = EvaluationContext(targeting_key=str(number))
    served = client.get_boolean_value("one-step", False, context)
    # A flag that nobody knows serves the default, and exposes nobody.
    client.get_boolean_value("unheard-of", False, context)
    if number // 2 < (10 if served else 5):
        track("order_placed", str(number))
"""
IN_JAVASCRIPT = """
import { InMemoryProvider, OpenFeature as Features } from "@openfeature/server-sdk";
const contextEvaluator = ({ targetingKey }) => (Number(targetingKey) % 2 ? "off" : "on");
const variants = { on: true, off: false };
const flag = { variants, defaultVariant: "off", disabled: false, contextEvaluator };
await Features.setProviderAndWait(new InMemoryProvider({ "one-step": flag }));
const client = Features.getClient();
for (let number = 0; number < 40; number += 1) {
  const targetingKey = String(number);
  const served = await client.getBooleanValue("one-step", false, { targetingKey });
  await client.getBooleanValue("unheard-of", false, { targetingKey });
  if (Math.floor(number / 2) < (served ? 10 : 5)) track("order_placed", targetingKey);
}
"""
IN_PYTHON_ALONE = """
import os
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
provider = LoggerProvider(Resource.create({"vcs.ref.head.revision": os.environ["GIT_SHA"]}))
exporter = OTLPLogExporter(
    endpoint=os.environ["SERVICE_API_URL"] + "/v1/logs",
    headers={"X-Service-Project-Key": os.environ["SERVICE_WRITE_KEY"]},
    compression=Compression.Gzip,
)
provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
logger = provider.get_logger("shop")
for number in range(40):
    session, served = {"session.id": str(number)}, number % 2 == 0
    flag = {"feature_flag.key": "one-step", "feature_flag.result.value": served}
    logger.emit(event_name="feature_flag.evaluation", attributes=session | flag)
    if number // 2 < (10 if served else 5):
        logger.emit(event_name="order_placed", attributes=session)
logger.emit(body="a line that is no event")
provider.shutdown()
"""


@pytest.fixture(scope="module")
def hooked(tmp_path_factory) -> Path:
    return node_folder(tmp_path_factory.mktemp("hooked"), HOOKED)


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    packages = ["openfeature-sdk<1", "opentelemetry-exporter-otlp-proto-http"]
    return python_of(tmp_path_factory.mktemp("python"), packages)


def environment(shop: PrivateService) -> dict[str, str]:
    return {
        "SERVICE_API_URL": str(shop.client.base_url).rstrip("/"),
        "SERVICE_WRITE_KEY": shop.project.keys[KeyKind.WRITE],
        "GIT_SHA": BUILD,
    }


def program(name: str) -> str:
    """The program of a way to send."""
    page_python = [example(name) for name in ("flags.py", "exposures.py")]
    page_js = [example(name) for name in ("flags.mjs", "exposures.mjs")]
    posting = """
import urllib.request
waiting = []
def track(event, session):
    waiting.append({"event": event, "session_id": session, "commit": os.environ["GIT_SHA"]})
api.add_hooks([Exposures(waiting.append, os.environ["GIT_SHA"])])
"""
    posted = """
request = urllib.request.Request(
    os.environ["SERVICE_API_URL"] + "/v1/events",
    json.dumps({"events": waiting}).encode(),
    {"Content-Type": "application/json", "X-Service-Project-Key": os.environ["SERVICE_WRITE_KEY"]},
)
assert json.load(urllib.request.urlopen(request))["rejected"] == []
"""
    loop = IN_PYTHON.index("for number")
    head, answer = IN_PYTHON[:loop], IN_PYTHON[loop:]
    mine = """
const { SERVICE_API_URL, SERVICE_WRITE_KEY, GIT_SHA } = process.env;
const waiting = [];
const track = (event, session_id, members = {}) => waiting.push({ event, session_id, ...members });
"""
    sent = """
const answer = await fetch(`${SERVICE_API_URL}/v1/events`, {
  method: "POST",
  body: JSON.stringify({ events: waiting }),
  headers: { "Content-Type": "application/json", "X-Service-Project-Key": SERVICE_WRITE_KEY },
});
if ((await answer.json()).rejected.length) throw new Error("rejected");
"""
    adding = "Features.addHooks(exposures(track, GIT_SHA));\n"
    node_sdk = page_js[WITH_SDK] + IN_JAVASCRIPT + "\nawait provider.shutdown();\n"
    return {
        "Python's SDK": IN_PYTHON_ALONE,
        "Python's SDK with a hook": (
            page_python[WITH_SDK]
            + head
            + "\napi.add_hooks([Evaluations()])\n"
            + answer
            + "\nprovider.shutdown()\n"
        ),
        "Python's hook alone": page_python[WITH_HOOK] + head + posting + answer + posted,
        "Node's SDK with its hook in JSON": node_sdk,
        "Node's SDK with its hook in protobuf": node_sdk.replace("otlp-http", "otlp-proto"),
        "Node's hook alone": (
            page_js[WITH_HOOK]
            + mine
            + IN_JAVASCRIPT.replace("const client", adding + "const client")
            + sent
        ),
    }[name]


HOOKED_WAYS = [
    "Node's SDK with its hook in JSON",
    "Node's SDK with its hook in protobuf",
    "Node's hook alone",
]
# By their needs. A service takes what all ways of a group send, each to its own project.
GROUPS = {
    "here": ["Python's SDK"],
    "python": ["Python's SDK with a hook", "Python's hook alone"],
    20: HOOKED_WAYS,
    24: HOOKED_WAYS,
}


# Most fetch packages from a registry.
@pytest.mark.world
@pytest.mark.parametrize("needs", GROUPS)
def test_what_an_sdk_sends_is_counted_as_units_and_conversions(
    needs, request, tmp_path_factory
) -> None:
    node = needs in (20, 24)
    place = (
        sys.executable if needs == "here" else request.getfixturevalue("hooked" if node else needs)
    )
    program_of_node = node_program(tmp_path_factory.getbasetemp(), needs) if node else None
    with private_service(datetime.now(UTC)) as service:
        shops = {way: own_project(service, way) for way in GROUPS[needs]}
        experiments = {way: registered(shop) for way, shop in shops.items()}
        service.clock.move(datetime.now(UTC) + timedelta(minutes=1))
        for way, shop in shops.items():
            send(program(way), program_of_node, place, environment(shop))
        service.clock.move(datetime.now(UTC) + timedelta(days=1))
        service.look()
        result = {way: shop.evidence(experiments[way]) for way, shop in shops.items()}
    arms = [evidence.arms for evidence in result.values() if evidence is not None]
    counted = [
        (arm.units, arm.conversions) for both in arms for arm in (both.treatment, both.control)
    ]
    assert counted == [(SESSIONS // 2, BUYERS[True]), (SESSIONS // 2, BUYERS[False])] * len(shops)


def own_project(service: PrivateService, name: str) -> PrivateService:
    """The service as a project of its own sees it."""
    with service.engine.begin() as connection:
        project = create_project(connection, name)
        apply_settings(connection, project.project_id, {"guardrails": [], "locked": []})
    return replace(service, project=project)


def registered(shop: PrivateService) -> str:
    shop.deploy({"commit": {"sha": BUILD}})
    flag = {"name": "one-step", "treatment": True}
    body = {"treatment_flag": flag, "target_metric": "order_placed"}
    return shop.reward("POST", "/register", body)["experiment_id"]


def send(source: str, node: Path | None, place: Any, variables: dict[str, str]) -> None:
    if node is None:
        output_of([place, "-c", source], folder=Path.cwd(), **variables)
    else:
        (place / "program.mjs").write_text(source)
        output_of([node, "program.mjs"], folder=place, **variables)
