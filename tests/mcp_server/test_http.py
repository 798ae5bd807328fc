"""The tools over streamable HTTP: the official client behind the service's own `/mcp`."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from sqlalchemy import text

from api.app import create_app
from api.runtime.settings import ApiSettings
from cli.processes.application import tools_of
from mcp_server.explanation import LONGEST_BYTES
from orchestration.pipeline.checklist import keep_checklists
from storage.tenants.keys import KeyKind
from storage.tenants.projects import create_project
from tests.conftest import Store
from tests.processes.served import Served

TOOLS = {
    "register_experiment",
    "get_verdict",
    "subscribe",
    "list_experiments",
    "explain",
    "check_setup",
    "set_up",
    "portfolio",
    "plan",
}
HANDSHAKE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}


@pytest.fixture
def keys(store: Store) -> dict[str, dict[KeyKind, str]]:
    """The keys of two projects."""
    with store.engine.begin() as connection:
        return {name: create_project(connection, name).keys for name in ("shop", "other")}


@pytest.fixture
def served(store: Store) -> Iterator[Served]:
    settings = ApiSettings(database_url=store.url, secret=b"a secret of the tests")
    with Served(app=create_app(settings, tools=tools_of)) as served:
        yield served


@pytest.fixture
def in_session(served: Served) -> Callable[..., Any]:
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


def posted(served: Served, **headers: str) -> httpx2.Response:
    accept = {"Accept": "application/json, text/event-stream"}
    return httpx2.post(f"{served.url}/mcp", json=HANDSHAKE, headers={**accept, **headers})


def test_the_same_tools_are_there_as_over_stdio(in_session: Any, keys: Any) -> None:
    async def listed(client: Client) -> set[str]:
        return {tool.name for tool in (await client.list_tools()).tools}

    assert in_session(listed, keys["shop"][KeyKind.PROJECT]) == TOOLS


@pytest.mark.parametrize("header", ["X-Service-Project-Key", "Authorization"])
def test_an_agent_registers_and_polls(in_session: Any, keys: Any, header: str) -> None:
    key = keys["shop"][KeyKind.PROJECT]

    async def polled(client: Client) -> Any:
        registered = await client.call_tool("register_experiment", {"treatment_commit": "c1" * 20})
        return await client.call_tool("get_verdict", registered.structured_content)

    given = f"Bearer {key}" if header == "Authorization" else key
    verdict = in_session(polled, given, header)
    assert verdict.structured_content["abstain_reason"] == "power"
    assert len(verdict.structured_content) == 10


def test_each_caller_sees_its_own_project(in_session: Any, keys: Any) -> None:
    async def registered(client: Client) -> Any:
        return await client.call_tool("register_experiment", {})

    experiment = in_session(registered, keys["shop"][KeyKind.PROJECT]).structured_content

    async def polled(client: Client) -> Any:
        return await client.call_tool("get_verdict", experiment)

    assert not in_session(polled, keys["shop"][KeyKind.PROJECT]).is_error
    refused = in_session(polled, keys["other"][KeyKind.PROJECT])
    assert refused.is_error
    assert "list_experiments shows" in refused.content[0].text


def test_without_a_live_project_key_no_message_is_read(served: Served, keys: Any) -> None:
    assert posted(served).status_code == 401
    assert posted(served, Authorization="Bearer nonsense").status_code == 401
    for kind, status in ((KeyKind.PROJECT, 200), (KeyKind.PUBLIC, 403), (KeyKind.WRITE, 403)):
        answer = posted(served, **{"X-Service-Project-Key": keys["shop"][kind]})
        assert answer.status_code == status
        if status == 200:
            assert answer.json()["result"]["serverInfo"]["name"] == "service-reward"
            assert answer.headers["content-type"].startswith("application/json")


def test_a_process_without_tools_says_so(store: Store, keys: Any) -> None:
    settings = ApiSettings(database_url=store.url, secret=b"a secret of the tests")
    with Served(app=create_app(settings)) as served:
        answer = posted(served, **{"X-Service-Project-Key": keys["shop"][KeyKind.PROJECT]})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_plan_is_short_and_says_the_days(in_session: Any, keys: Any) -> None:
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
def test_what_is_no_canary_is_named(in_session: Any, keys: Any, wrong: dict[str, float]) -> None:
    async def planned(client: Client) -> Any:
        design = {"sessions_per_day": 1000, "rate": 0.05, "share": 0.1, **wrong}
        return await client.call_tool("plan", design)

    result = in_session(planned, keys["shop"][KeyKind.PROJECT])
    assert result.is_error
    assert next(iter(wrong)) in result.content[0].text


def test_the_next_step_of_a_set_up_has_an_example_with_the_service_s_address(
    in_session: Any, keys: Any, served: Served, store: Store
) -> None:
    async def asked(client: Client) -> Any:
        return await client.call_tool("set_up", {})

    # Where nothing looks at events, a script in a page is no help: Dagster is.
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE projects SET created_at = created_at - interval '1 hour'"))
    step = in_session(asked, keys["shop"][KeyKind.PROJECT]).structured_content
    assert (step["step"], step["example"]) == ("events", None)
    assert step["do"].startswith("Start Dagster")
    with store.engine.begin() as connection:
        keep_checklists(connection)
    step = in_session(asked, keys["shop"][KeyKind.PROJECT]).structured_content
    assert (step["step"], step["done"]) == ("events", 0)
    assert step["do"]
    assert f'src="{served.url}/sdk.js"' in step["example"]
    assert len(json.dumps(step, ensure_ascii=False).encode()) <= LONGEST_BYTES
