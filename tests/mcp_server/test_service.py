"""The tools in front of the service itself."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mcp import Client

from api.app import create_app
from api.runtime.settings import ApiSettings
from mcp_server.explanation import LONGEST_BYTES
from storage.tenants.keys import KeyKind
from storage.tenants.projects import create_project
from tests.processes.served import Served

OPEN = 20


@pytest.fixture
def in_project(store, in_session) -> Iterator[Callable[..., Any]]:
    """Runs a coroutine function on a client of the tools of a project."""
    with store.engine.begin() as connection:
        project = create_project(connection, "shop")
    settings = ApiSettings(database_url=store.url, secret=b"a secret of the tests, long enough")
    with Served(app=create_app(settings)) as served:
        yield lambda session, kind=KeyKind.PROJECT: in_session(
            session, url=served.url, key=project.keys[kind]
        )


def text(result: Any) -> str:
    assert result.is_error
    (block,) = result.content
    return block.text


@pytest.mark.requirement("mcp.register_experiment", "mcp.get_verdict", "mcp.subscribe")
def test_pages_of_four_kilobytes_hold_every_open_experiment_once(in_project) -> None:
    async def paged(client: Client) -> tuple[set[str], list[Any]]:
        registered: set[str] = set()
        for number in range(OPEN):
            # As long as a metric's name may be, every second character.
            metric = f"{number:02}".ljust(128 if number % 2 else 8, "é")
            arguments = {"target_metric": metric, "treatment_commit": "4f2a9c1d" * 5}
            result = await client.call_tool("register_experiment", arguments)
            registered.add(result.structured_content["experiment_id"])
        pages, cursor = [], {}
        while not pages or cursor["cursor"] is not None:
            page = await client.call_tool("list_experiments", cursor)
            assert not page.is_error, page.content
            pages.append(page.structured_content)
            cursor = {"cursor": page.structured_content["next_cursor"]}
        return registered, pages

    registered, pages = in_project(paged)
    listed = [row["experiment_id"] for page in pages for row in page["experiments"]]
    assert len(listed) == OPEN
    assert set(listed) == registered
    assert all(
        len(json.dumps(page, ensure_ascii=False).encode()) <= LONGEST_BYTES for page in pages
    )


def test_each_refusal_of_the_service_comes_with_its_advice(in_project) -> None:
    async def refused(client: Client) -> dict[str, str]:
        change = {"treatment_commit": "4f2a9c1d", "routes": ["/cart"]}
        registered = await client.call_tool("register_experiment", change)
        each = registered.structured_content
        calls = {
            "no look": ("explain", each),
            "unknown": ("get_verdict", {"experiment_id": "exp_0"}),
            "conflict": ("register_experiment", change | {"routes": ["/"]}),
            "cursor": ("list_experiments", {"cursor": "none of ours"}),
            "deploy": ("register_experiment", {"deploy_id": "dep_0"}),
            "locked": ("register_experiment", {"guardrails": []}),
        }
        return {
            case: text(await client.call_tool(tool, arguments))
            for case, (tool, arguments) in calls.items()
        }

    answer = in_project(refused)
    assert "get_verdict answers meanwhile. Try again in 1 minute." in answer["no look"]
    assert "list_experiments shows" in answer["unknown"]
    assert "Without that member the call gives the open experiment" in answer["conflict"]
    assert "must be the next_cursor of an earlier page" in answer["cursor"]
    assert "Correct the arguments" in answer["deploy"]
    assert "keeps guardrails for the project: leave it out" in answer["locked"]
    assert "Leave that member out and call again" in answer["locked"]
    assert "key" not in answer["locked"]


def test_null_is_an_absent_argument_of_every_tool(in_project) -> None:
    async def called(client: Client) -> dict[str, list[Any]]:
        registered = await client.call_tool("register_experiment", {})
        known = {
            **registered.structured_content,
            "sessions_per_day": 1000,
            "rate": 0.05,
            "share": 0.1,
        }
        results: dict[str, list[Any]] = {}
        for tool in (await client.list_tools()).tools:
            properties = tool.input_schema["properties"]
            needed = {name: known[name] for name in tool.input_schema.get("required", ())}
            nulls = dict.fromkeys(properties, None)
            results[tool.name] = [
                await client.call_tool(tool.name, arguments)
                for arguments in (needed, {**nulls, **needed})
            ]
        return results

    for name, (absent, null) in in_project(called).items():
        assert (null.is_error, null.content) == (absent.is_error, absent.content), name
        assert name in {"explain", "place"} or not null.is_error, null.content


def test_what_is_quoted_twice_is_read_without_and_a_word_for_nothing_is_refused_by_name(
    in_project,
) -> None:
    async def registered(client: Client) -> tuple[Any, dict[tuple[str, str], str]]:
        quoted = {"target_metric": '"purchase"', "guardrails": '["error"]'}
        taken = await client.call_tool("register_experiment", quoted)
        assert not taken.is_error, taken.content
        listed = await client.call_tool("list_experiments", {})
        words = {
            (member, word): text(await client.call_tool("register_experiment", {member: word}))
            for member in ("treatment_commit", "control_commit", "deploy_id", "target_metric")
            for word in ("null", '"undefined"', "0" * 40)
            if word[0] != "0" or member.endswith("commit")
        }
        return listed.structured_content["experiments"], words

    (experiment,), words = in_project(registered)
    assert experiment["metric"] == "purchase"
    assert [case for case, answer in words.items() if case[0] not in answer] == []


def test_a_key_of_another_kind_is_told_which_one_to_set(in_project) -> None:
    async def listed(client: Client) -> str:
        return text(await client.call_tool("list_experiments", {}))

    assert "set SERVICE_PROJECT_KEY" in in_project(listed, kind=KeyKind.PUBLIC)
