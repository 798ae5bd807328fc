"""The clients of OpenFeature, as npm and PyPI have them, get their arms from the service."""

import json
import os
import subprocess
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import text
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from domain.draw import is_drawn
from storage.tenants.keys import KeyKind
from tests.cli.conftest import serving
from tests.processes.registry import node_folder, output_of, python_of
from tests.processes.served import serving_routes
from tests.world import World

pytestmark = [pytest.mark.process, pytest.mark.world]

# Flags with a value of each type, by control and treatment.
TYPED = [
    ("text", "team/layout=grid", [("list", "control"), ("grid", "treatment")]),
    ("price", "price=2.5", [(10.0, "control"), (2.5, "treatment")]),
    ("limit", "limit=10", [(20, "control"), (10, "treatment")]),
]
EXAMPLES = Path(__file__).parents[2] / "examples" / "openfeature"
BASE, CANARY = "ba5e" * 10, "c1" * 20
SESSIONS = [f"s-{number}" for number in range(200)]
SERVER = ("@openfeature/server-sdk@1", "@openfeature/ofrep-provider@0.1")
WEB = ("@openfeature/web-sdk@1", "@openfeature/ofrep-web-provider@0.4")

ASKING = """
const asked = JSON.parse(process.env.SESSIONS);
const headers = [["X-Service-Project-Key", process.env.KEY]];
const found = {};
"""
FROM_A_SERVER = f"""
import {{ OpenFeature }} from "@openfeature/server-sdk";
import {{ OFREPProvider }} from "@openfeature/ofrep-provider";
{ASKING}
await OpenFeature.setProviderAndWait(new OFREPProvider({{ baseUrl: process.env.URL, headers }}));
const client = OpenFeature.getClient();
for (const targetingKey of asked) {{
  const build = await client.getStringDetails("commit", "none", {{ targetingKey }});
  const flag = await client.getBooleanDetails("one-step", false, {{ targetingKey }});
  const text = await client.getStringDetails("team/layout", "none", {{ targetingKey }});
  const price = await client.getNumberDetails("price", -1, {{ targetingKey }});
  const limit = await client.getNumberDetails("limit", -1, {{ targetingKey }});
  const unknown = await client.getBooleanDetails("unheard-of", false, {{ targetingKey }});
  found[targetingKey] = {{ build, flag, text, price, limit, unknown }};
}}
const nobody = await client.getStringDetails("commit", "none", {{}});
console.log(JSON.stringify({{ found, nobody }}));
"""
FROM_A_PAGE = f"""
import {{ OpenFeature }} from "@openfeature/web-sdk";
import {{ OFREPWebProvider }} from "@openfeature/ofrep-web-provider";
{ASKING}
await OpenFeature.setContext({{ targetingKey: asked[0] }});
await OpenFeature.setProviderAndWait(new OFREPWebProvider({{ baseUrl: process.env.URL, headers }}));
const client = OpenFeature.getClient();
for (const targetingKey of asked) {{
  await OpenFeature.setContext({{ targetingKey }});
  const build = client.getStringDetails("commit", "none");
  const flag = client.getBooleanDetails("one-step", false);
  const text = client.getStringDetails("team/layout", "none");
  const price = client.getNumberDetails("price", -1);
  const limit = client.getNumberDetails("limit", -1);
  const unknown = client.getBooleanDetails("unheard-of", false);
  found[targetingKey] = {{ build, flag, text, price, limit, unknown }};
}}
console.log(JSON.stringify({{ found, nobody: null }}));
await OpenFeature.close();
"""
FROM_PYTHON = """
import json, os
from openfeature import api
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
key = {"X-Service-Project-Key": os.environ["KEY"]}
api.set_provider(OFREPProvider(os.environ["URL"], headers_factory=lambda: key))
client = api.get_client()
def shown(details):
    return {"value": details.value, "variant": details.variant, "errorCode": details.error_code,
            "reason": details.reason, "flagMetadata": dict(details.flag_metadata)}
found = {}
for session in json.loads(os.environ["SESSIONS"]):
    asked = EvaluationContext(targeting_key=session)
    found[session] = {
        "build": shown(client.get_string_details("commit", "none", asked)),
        "flag": shown(client.get_boolean_details("one-step", False, asked)),
        "text": shown(client.get_string_details("team/layout", "none", asked)),
        "price": shown(client.get_float_details("price", -1.0, asked)),
        "limit": shown(client.get_integer_details("limit", -1, asked)),
        "unknown": shown(client.get_boolean_details("unheard-of", False, asked)),
    }
nobody = shown(client.get_string_details("commit", "none", EvaluationContext()))
print(json.dumps({"found": found, "nobody": nobody}))
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory) -> Path:
    return node_folder(tmp_path_factory.mktemp("node"), [*SERVER, *WEB])


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    packages = ["openfeature-sdk<1", "openfeature-provider-ofrep<1"]
    return python_of(tmp_path_factory.mktemp("python"), packages)


@pytest.fixture
def service(tenant) -> World:
    """A project with a canary of a quarter, and a flag of each type under test."""
    # Hundreds of sessions ask from an address.
    tenant.settings(rate_limits={"per_key": 100_000, "per_address": 100_000}, ofrep="browser")
    tenant.deploy(BASE)
    for flag in (
        {"name": "one-step", "treatment": "true"},
        {"name": "team/layout", "treatment": "grid", "control": "list"},
        {"name": "price", "treatment": 2.5, "control": 10.0},
        {"name": "limit", "treatment": "10", "control": "20"},
    ):
        tenant.register(treatment_flag=flag, target_metric="activation")
    tenant.freeze()
    tenant.deploy(CANARY, 0.25)
    return tenant


def asked_by(client: str, service: Any, request: pytest.FixtureRequest, url: str) -> Any:
    given = {
        "URL": url,
        "KEY": service.project.keys[KeyKind.PUBLIC if client == "web" else KeyKind.WRITE],
        "SESSIONS": json.dumps(SESSIONS),
    }
    if client == "python":
        python = request.getfixturevalue("python")
        return json.loads(output_of([python, "-c", FROM_PYTHON], folder=python.parent, **given))
    node = request.getfixturevalue("node")
    program = node / f"{client}.mjs"
    program.write_text({"server": FROM_A_SERVER, "web": FROM_A_PAGE}[client])
    return json.loads(output_of(["node", program], folder=node, **given))


@pytest.mark.parametrize("client", ["server", "web", "python"])
def test_a_client_gets_the_arm_of_each_session(service, request, client) -> None:
    with serving(service) as url:
        seen = asked_by(client, service, request, url)
    for session, given in seen["found"].items():
        inside = is_drawn(session, salt=CANARY, share=0.25)
        build, flag = given["build"], given["flag"]
        assert build["value"] == (CANARY if inside else BASE)
        assert build["variant"] == ("treatment" if inside else "control")
        assert build["reason"] == "SPLIT"
        assert build["flagMetadata"]["commit"] == build["value"]
        assert flag["value"] is is_drawn(session, salt="one-step=true", share=0.5)
        for name, change, values in TYPED:
            on = is_drawn(session, salt=change, share=0.5)
            typed = given[name]
            assert (typed["value"], typed["variant"]) == values[on]
            assert (typed["reason"], "experiment_id" in typed["flagMetadata"]) == ("SPLIT", True)
        assert ("assignment" in build["flagMetadata"]) == (client != "web")
        assert (given["unknown"]["value"], given["unknown"]["errorCode"]) == (
            False,
            "FLAG_NOT_FOUND",
        )
    assert len(seen["found"]) == len(SESSIONS)
    if seen["nobody"] is not None:
        assert seen["nobody"]["value"] == "none"
        assert seen["nobody"]["errorCode"] == "TARGETING_KEY_MISSING"


def build(name: str) -> AbstractContextManager[str]:
    """The address of a build of the shop, which names its commit."""

    async def respond(_: Request) -> PlainTextResponse:
        return PlainTextResponse(name)

    return serving_routes(respond)


def test_the_example_s_router_serves_each_session_its_build_and_vouches_for_it(
    service, node
) -> None:
    program = node / "router.mjs"
    program.write_text((EXAMPLES / "router.mjs").read_text())
    with serving(service) as url, build(BASE) as stable, build(CANARY) as canary:
        environment = {
            "PATH": os.environ["PATH"],
            "SERVICE_API_URL": url,
            "SERVICE_WRITE_KEY": service.project.keys[KeyKind.WRITE],
            "BUILDS": json.dumps({BASE: stable, CANARY: canary}),
            "PORT": "0",
        }
        with subprocess.Popen(
            ["node", program], cwd=node, env=environment, stdout=subprocess.PIPE, text=True
        ) as router:
            try:
                address = router.stdout.readline().strip()
                for session in SESSIONS[:40]:
                    got = httpx2.get(address, headers={"Cookie": f"session={session}"})
                    inside = is_drawn(session, salt=CANARY, share=0.25)
                    expected = CANARY if inside else BASE
                    assert got.text == expected
                    timing = got.headers["Server-Timing"]
                    assert timing.startswith(f"commit;desc={expected}, assignment;desc=")
                    event = {
                        "event": "page_view",
                        "session_id": session,
                        "commit": expected,
                        "assignment": timing.rpartition("=")[2],
                    }
                    service.client.post("/v1/events", json=event, headers=service.public)
            finally:
                router.terminate()
    assert signed(service) == Counter({True: 40})


def test_the_example_s_shop_reports_the_arm_that_each_session_was_served(service, python) -> None:
    body = {
        "treatment_flag": {"name": "one-step-checkout", "treatment": "true"},
        "target_metric": "activation",
    }
    assert service.post("/v1/reward/register", body).status_code == 201
    service.freeze()
    with serving(service) as url:
        shown = output_of(
            [python, EXAMPLES / "shop.py"],
            folder=python.parent,
            SERVICE_API_URL=url,
            SERVICE_WRITE_KEY=service.project.keys[KeyKind.WRITE],
            SESSIONS="60",
        )
    served = dict(line.split(maxsplit=1) for line in shown.splitlines())
    for session, page in served.items():
        on = is_drawn(session, salt="one-step-checkout=true", share=0.5)
        assert page == ("one step" if on else "three steps")
    assert signed(service) == Counter({True: 60})


def signed(service: Any) -> Counter[bool]:
    query = text("SELECT signed FROM runtime_events WHERE project_id = :project_id")
    where = {"project_id": service.project_id}
    return Counter(
        service.in_store(lambda connection: connection.execute(query, where).scalars().all())
    )
