"""The tools over streamable HTTP: the official client behind the service's own `/mcp`."""

import asyncio
import json
import logging
import secrets
import socket
from collections.abc import Callable, Iterator
from itertools import cycle, product
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import ProtectedResourceMetadata
from sqlalchemy import text

from api.app import create_app
from api.runtime.settings import ApiSettings
from cli.processes.application import tools_of
from mcp_server.explanation import LONGEST_BYTES
from storage.tenants.keys import KeyKind
from storage.tenants.projects import create_project
from tests.conftest import Store, fresh_store
from tests.mcp_server.contracts import HANDSHAKE, TOOLS
from tests.processes.api_process import eventually
from tests.processes.served import Served


@pytest.fixture(scope="module")
def store(postgres_url, migrated_template) -> Iterator[Store]:
    """A store of the module: each test has projects of its own."""
    with fresh_store(postgres_url, migrated_template) as store:
        yield store


@pytest.fixture
def keys(store) -> dict[str, dict[KeyKind, str]]:
    with store.engine.begin() as connection:
        return {
            name: create_project(connection, f"{name} {secrets.token_hex(6)}").keys
            for name in ("shop", "other")
        }


@pytest.fixture(scope="module")
def served(store) -> Iterator[Served]:
    settings = ApiSettings(
        database_url=store.url, secret=b"a secret of the tests, long enough", checklist_seconds=0
    )
    with Served(app=create_app(settings, tools=tools_of)) as served:
        yield served


@pytest.fixture
def in_session(served) -> Callable[..., Any]:
    """Runs a coroutine function on the official client, which sends a key in a header."""

    def run(
        session: Callable[[Client], Any], key: str, header: str = "X-Service-Project-Key"
    ) -> Any:
        async def connected() -> Any:
            async with (
                httpx2.AsyncClient(headers={header: key}) as http,
                Client(streamable_http_client(f"{served.url}/mcp", http_client=http)) as client,
            ):
                return await session(client)

        return asyncio.run(connected())

    return run


ACCEPT = {"Accept": "application/json, text/event-stream"}


def posted(served: Served, **headers: str) -> httpx2.Response:
    return httpx2.post(f"{served.url}/mcp", json=HANDSHAKE, headers={**ACCEPT, **headers})


@pytest.fixture
def sent(served, keys) -> Callable[..., httpx2.Response]:
    """Posts a body as it is, by a project key."""

    def post(body: bytes, **headers: str) -> httpx2.Response:
        key = {"X-Service-Project-Key": keys["shop"][KeyKind.PROJECT]}
        known = {**ACCEPT, **key, "Content-Type": "application/json"}
        return httpx2.post(f"{served.url}/mcp", content=body, headers={**known, **headers})

    return post


def test_the_same_tools_are_there_as_over_stdio(in_session, keys) -> None:
    async def listed(client: Client) -> list[str]:
        return [tool.name for tool in (await client.list_tools()).tools]

    assert in_session(listed, keys["shop"][KeyKind.PROJECT]) == TOOLS


@pytest.mark.parametrize("header", ["X-Service-Project-Key", "Authorization"])
def test_an_agent_registers_and_polls(in_session, keys, header) -> None:
    key = keys["shop"][KeyKind.PROJECT]

    async def polled(client: Client) -> Any:
        registered = await client.call_tool("register_experiment", {"treatment_commit": "c1" * 20})
        return await client.call_tool("get_verdict", registered.structured_content)

    given = f"Bearer {key}" if header == "Authorization" else key
    verdict = in_session(polled, given, header)
    assert verdict.structured_content["abstain_reason"] == "power"
    assert len(verdict.structured_content) == 10


def test_each_caller_sees_its_own_project(in_session, keys) -> None:
    async def registered(client: Client) -> Any:
        return await client.call_tool("register_experiment", {})

    experiment = in_session(registered, keys["shop"][KeyKind.PROJECT]).structured_content

    async def polled(client: Client) -> Any:
        return await client.call_tool("get_verdict", experiment)

    assert not in_session(polled, keys["shop"][KeyKind.PROJECT]).is_error
    refused = in_session(polled, keys["other"][KeyKind.PROJECT])
    assert refused.is_error
    assert "list_experiments shows" in refused.content[0].text


def test_without_a_live_project_key_no_message_is_read(served, keys) -> None:
    assert posted(served).status_code == 401
    assert posted(served, Authorization="Bearer nonsense").status_code == 401
    for kind, status in ((KeyKind.PROJECT, 200), (KeyKind.PUBLIC, 403), (KeyKind.WRITE, 403)):
        answer = posted(served, **{"X-Service-Project-Key": keys["shop"][kind]})
        assert answer.status_code == status
        if status == 200:
            assert answer.json()["result"]["serverInfo"]["name"] == "service-reward"
            assert answer.headers["content-type"].startswith("application/json")


def test_a_request_whose_id_is_none_is_answered(sent) -> None:
    for known, version in product(
        ["null", "1.5", "{}", "[]", "true", "1.0"], ["2025-06-18", "2026-07-28"]
    ):
        body = f'{{"jsonrpc": "2.0", "id": {known}, "method": "tools/list"}}'
        answer = sent(body.encode(), **{"MCP-Protocol-Version": version})
        assert answer.status_code == 400, known
        assert answer.json() == {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": -32600, "message": "id must be a string or a whole number"},
        }


def test_every_id_comes_back_with_the_answer(sent) -> None:
    methods = ["ping", "tools/list", "nothing", "notifications/initialized"]
    for known, method in zip([0, -1, "", "a", 2**53, 10**30], cycle(methods), strict=False):
        body = json.dumps({"jsonrpc": "2.0", "id": known, "method": method})
        assert sent(body.encode()).json()["id"] == known


NO_MESSAGES = [
    (b"", None, -32700),
    (b"{", None, -32700),
    (b"\xff", None, -32700),
    (b"[" * 100_000, None, -32700),
    (b"[]", None, -32600),
    (b'"secret"', None, -32600),
    (b'{"id": 7, "method": "secret"}', 7, -32600),
    (b'{"jsonrpc": "2.0", "id": 7, "method": ["secret"]}', 7, -32600),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": "secret"}', 7, -32600),
    (b'{"jsonrpc": "2.0", "params": "secret"}', None, -32600),
]


def test_what_is_no_message_is_an_error_that_quotes_nothing(sent) -> None:
    for body, known, code in NO_MESSAGES:
        answer = sent(body)
        assert answer.status_code == 400
        assert (answer.json()["id"], answer.json()["error"]["code"]) == (known, code)
        assert "secret" not in answer.text


def test_a_notification_is_taken_without_an_answer(sent) -> None:
    answer = sent(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
    assert (answer.status_code, answer.content) == (202, b"")


def test_a_message_has_at_most_one_mebibyte(sent) -> None:
    largest = json.dumps(HANDSHAKE).encode().ljust(2**20)
    assert sent(largest).status_code == 200
    assert sent(largest + b" ").json()["code"] == "body_too_large"
    assert sent(iter([largest, b" "])).status_code == 413


def test_a_name_that_was_made_to_lead_here_is_refused(sent) -> None:
    handshake, local = json.dumps(HANDSHAKE).encode(), "127.0.0.1"
    for host in ("a.example", "a.example:8000", f"{local}.a.example", f"a@{local}", f"{local}:x"):
        answer = sent(handshake, Host=host)
        assert (answer.status_code, answer.json()["code"]) == (421, "host_not_allowed")


def test_a_page_of_another_site_is_refused(sent) -> None:
    for origin in ("https://shop.example", "http://127.0.0.1:1", "null", ""):
        answer = sent(json.dumps(HANDSHAKE).encode(), Origin=origin)
        assert (answer.status_code, answer.json()["code"]) == (403, "origin_not_allowed")


def test_the_operator_names_further_hosts_and_the_public_address(store, keys, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    monkeypatch.setenv("SERVICE_SECRET", "a secret of the tests, long enough")
    monkeypatch.setenv("SERVICE_PUBLIC_URL", "https://Reward.example/")
    monkeypatch.setenv("SERVICE_MCP_HOSTS", "reward.internal, api")
    monkeypatch.setenv("SERVICE_OAUTH_ISSUER", "https://login.example")
    with Served(app=create_app(ApiSettings.from_environment(), tools=tools_of)) as served:
        key = {"X-Service-Project-Key": keys["shop"][KeyKind.PROJECT]}
        for host in ("reward.example", "reward.internal:8000", "API", "localhost", "[::1]:80"):
            assert posted(served, **key, Host=host).status_code == 200
        own = {"Host": "api", "Origin": "https://reward.example"}
        assert posted(served, **key, **own).status_code == 200
        assert posted(served, **key, Host="other.internal").status_code == 421
        challenge = posted(served).headers["WWW-Authenticate"]
        address = "https://Reward.example/.well-known/oauth-protected-resource"
        assert challenge == f'Bearer realm="deploy-reward", resource_metadata="{address}"'
        answer = httpx2.get(f"{served.url}/.well-known/oauth-protected-resource")
        # As the official client reads it.
        metadata = ProtectedResourceMetadata.model_validate_json(answer.content)
        assert [str(url) for url in metadata.authorization_servers] == ["https://login.example"]
        assert str(metadata.resource) == "https://reward.example/mcp"


@pytest.mark.parametrize(
    ("variable", "value"),
    [("SERVICE_MCP_HOSTS", "http://api"), ("SERVICE_OAUTH_ISSUER", "login.example")],
)
def test_a_wrong_variable_ends_the_start_by_name(monkeypatch, variable, value) -> None:
    monkeypatch.setenv("SERVICE_DATABASE_URL", "postgresql://127.0.0.1/none")
    monkeypatch.setenv("SERVICE_SECRET", "a secret of the tests, long enough")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=variable):
        ApiSettings.from_environment()


def test_an_agent_without_a_key_learns_what_this_is(served) -> None:
    challenge = posted(served).headers["WWW-Authenticate"]
    address = challenge.partition('resource_metadata="')[2].rstrip('"')
    assert address == f"{served.url}/.well-known/oauth-protected-resource"
    for metadata in (httpx2.get(address), httpx2.get(f"{address}/mcp")):
        assert metadata.json() == {
            "resource": f"{served.url}/mcp",
            "bearer_methods_supported": ["header"],
            "resource_name": "Deploy-Attribution and Reward Service",
        }


def test_nothing_is_offered_that_has_no_content(in_session, keys, sent) -> None:
    async def offered(client: Client) -> Any:
        return client.server_capabilities.model_dump(exclude_none=True)

    assert in_session(offered, keys["shop"][KeyKind.PROJECT]) == {"tools": {}}
    handshake = sent(json.dumps(HANDSHAKE).encode()).json()["result"]
    assert handshake["capabilities"] == {"tools": {}}


@pytest.mark.parametrize("whole", [False, True], ids=["half a message", "a whole message"])
def test_who_hangs_up_leaves_no_traceback(served, keys, caplog, whole) -> None:
    body = json.dumps(HANDSHAKE)
    head = {
        **ACCEPT,
        "Host": "127.0.0.1",
        "X-Service-Project-Key": keys["shop"][KeyKind.PROJECT],
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    fields = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    message = f"POST /mcp HTTP/1.1\r\n{fields}\r\n{body if whole else body[:9]}"
    caplog.set_level(logging.INFO)
    with socket.create_connection((served.host, served.port)) as wire:
        wire.sendall(message.encode())
    eventually(lambda: any("POST /mcp" in record.getMessage() for record in caplog.records))
    assert not [record for record in caplog.records if record.exc_info or record.levelno > 20]


def test_a_process_without_tools_says_so(store, keys) -> None:
    settings = ApiSettings(
        database_url=store.url, secret=b"a secret of the tests, long enough", checklist_seconds=0
    )
    with Served(app=create_app(settings)) as served:
        answer = posted(served, **{"X-Service-Project-Key": keys["shop"][KeyKind.PROJECT]})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_plan_is_short_and_says_the_days(in_session, keys) -> None:
    async def planned(client: Client) -> Any:
        design = {"sessions_per_day": 24_000, "rate": 0.05, "share": 0.1, "sample_rate": 0.5}
        return await client.call_tool("plan", design)

    result = in_session(planned, keys["shop"][KeyKind.PROJECT])
    plan = result.structured_content
    days = {lift["relative_lift"]: lift["days_to_decide"] for lift in plan["lifts"]}
    assert days[0.05] > days[0.2] > days[0.5]
    assert plan["quicker"][0] == {
        "change": "all sessions measured",
        "days_to_decide": pytest.approx(days[0.2] / 2, rel=0.01),
    }
    assert len(json.dumps(plan).encode()) <= LONGEST_BYTES


@pytest.mark.parametrize("wrong", [{"rate": 1}, {"share": 0}, {"sessions_per_day": 0}])
def test_what_is_no_canary_is_named(in_session, keys, wrong) -> None:
    async def planned(client: Client) -> Any:
        design = {"sessions_per_day": 1000, "rate": 0.05, "share": 0.1, **wrong}
        return await client.call_tool("plan", design)

    result = in_session(planned, keys["shop"][KeyKind.PROJECT])
    assert result.is_error
    assert next(iter(wrong)) in result.content[0].text


def test_the_next_step_of_a_set_up_has_an_example_with_the_service_s_address(
    in_session, keys, served, store
) -> None:
    async def asked(client: Client) -> Any:
        return await client.call_tool("set_up", {})

    # Where nothing looks at events, a script in a page is no help: Dagster is.
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE projects SET created_at = created_at - interval '1 hour'"))
    step = in_session(asked, keys["shop"][KeyKind.PROJECT]).structured_content
    assert (step["step"]["check"], step["example"]) == ("events", None)
    assert step["step"]["fix"].startswith("Start Dagster")
    with store.engine.begin() as connection:
        connection.execute(text("INSERT INTO ticks (succeeded_at) VALUES (clock_timestamp())"))
    step = in_session(asked, keys["shop"][KeyKind.PROJECT]).structured_content
    assert (step["step"]["check"], step["done"]) == ("events", 0)
    assert step["step"]["fix"]
    assert f'src="{served.url}/sdk.js"' in step["example"]
    assert len(json.dumps(step, ensure_ascii=False).encode()) <= LONGEST_BYTES
