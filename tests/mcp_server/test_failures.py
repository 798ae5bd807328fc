"""An unwell service: every failure is a tool error that says what to do, and shows no key."""

import socket
from typing import Any

import pytest
from mcp import Client

from mcp_server.reward_api import ANSWER_SECONDS

KEY_PART = "canaryCanary"
CALLS = [
    ("register_experiment", {}, "/v1/reward/register"),
    ("get_verdict", {"experiment_id": "exp_1"}, "/v1/reward/exp_1"),
    ("subscribe", {"experiment_id": "exp_1"}, "/v1/reward/exp_1"),
    ("list_experiments", {}, "/v1/reward?status=open&limit=5"),
    ("check_setup", {}, "/v1/reward/checklist"),
    ("explain", {"experiment_id": "exp_1"}, "/v1/reward/exp_1/evidence"),
]


@pytest.fixture(params=CALLS, ids=[name for name, _, _ in CALLS])
def tool(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any], str]:
    return request.param


def failure(result: Any) -> str:
    assert result.is_error
    assert result.structured_content is None
    (block,) = result.content
    assert KEY_PART not in block.text
    assert "Error executing tool" not in block.text
    return block.text


def test_a_problem_comes_back_with_its_detail(
    service: Any, call: Any, tool: tuple[str, dict[str, Any], str]
) -> None:
    name, arguments, path = tool
    service.problem(path, 404, "There is no such resource.")
    assert "There is no such resource." in failure(call(name, arguments))


def test_a_problem_names_the_members_at_fault(service: Any, call: Any) -> None:
    errors = [{"pointer": "/target_metric/name", "code": "too_long", "detail": "At most 128."}]
    service.problem("/v1/reward/register", 422, "The body breaks a rule.", errors=errors)
    assert "/target_metric/name: At most 128." in failure(call("register_experiment"))


def test_a_fault_that_the_detail_names_is_not_said_twice(service: Any, call: Any) -> None:
    errors = [{"pointer": "/deploy_id", "code": "unknown", "detail": "no such deploy"}]
    service.problem("/v1/reward/register", 422, "/deploy_id: no such deploy", errors=errors)
    text = failure(call("register_experiment"))
    assert text.splitlines() == [
        "/deploy_id: no such deploy",
        "Correct the arguments and call again.",
    ]


@pytest.mark.parametrize(
    ("status", "advice"), [(401, "SERVICE_PROJECT_KEY"), (403, "rk_"), (404, "list_experiments")]
)
def test_a_refusal_says_what_to_do(service: Any, call: Any, status: int, advice: str) -> None:
    service.problem("/v1/reward/exp_1", status, "Refused.")
    assert advice in failure(call("get_verdict", {"experiment_id": "exp_1"}))


@pytest.mark.parametrize("status", [429, 503])
def test_a_service_that_is_busy_says_when_to_come_again(
    service: Any, call: Any, status: int
) -> None:
    body = {"detail": "Too much."}
    service.answers_with("/v1/reward/exp_1", body, status=status, headers={"Retry-After": "17"})
    assert "in 17 seconds" in failure(call("get_verdict", {"experiment_id": "exp_1"}))


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (401, "unknown_key", "Ask for a new project key"),
        (403, "wrong_key_kind", "project key (rk_)"),
        (403, "locked", "Leave that member out"),
        (404, "unknown_experiment", "list_experiments"),
        (404, "not_found", "SERVICE_API_URL"),
        (409, "experiment_open", "Without that member"),
        (422, "invalid_request", "Correct the arguments"),
    ],
)
def test_a_problem_s_code_chooses_the_advice(
    service: Any, call: Any, status: int, code: str, advice: str
) -> None:
    service.problem("/v1/reward/register", status, "Refused.", code=code)
    text = failure(call("register_experiment"))
    assert advice in text
    assert (code == "unknown_experiment") == ("list_experiments" in text)


def test_an_experiment_before_its_first_look_is_explained_later(service: Any, call: Any) -> None:
    body = {"detail": "the experiment has had no look yet", "code": "no_evidence_yet"}
    path = "/v1/reward/exp_1/evidence"
    service.answers_with(path, body, status=404, headers={"Retry-After": "3600"})
    text = failure(call("explain", {"experiment_id": "exp_1"}))
    assert "get_verdict answers meanwhile. Try again in 1 hour." in text
    assert "list_experiments" not in text


def test_a_fault_of_a_parameter_is_named(service: Any, call: Any) -> None:
    errors = [
        {"parameter": "limit", "code": "int_type", "detail": "must be an integer"},
        {"parameter": "cursor", "code": "invalid_cursor", "detail": "must be the next_cursor"},
    ]
    detail = "limit: must be an integer (and 1 more)"
    service.problem("/v1/reward?status=open&limit=5&cursor=x", 422, detail, errors=errors)
    text = failure(call("list_experiments", {"cursor": "x"}))
    assert text.splitlines()[:2] == [detail, "cursor: must be the next_cursor"]


def test_a_page_of_html_is_named_as_another_service(
    service: Any, call: Any, tool: tuple[str, dict[str, Any], str]
) -> None:
    name, arguments, path = tool
    service.answers_with(path, "<html><h1>Sign in</h1></html>")
    text = failure(call(name, arguments))
    assert "SERVICE_API_URL" in text
    assert "<" not in text


def test_a_failure_of_the_service_says_to_try_again(
    service: Any, call: Any, tool: tuple[str, dict[str, Any], str]
) -> None:
    name, arguments, path = tool
    service.answers_with(path, "Internal Server Error", status=500)
    assert "500" in failure(call(name, arguments))


def test_a_redirect_is_not_followed(
    service: Any, call: Any, tool: tuple[str, dict[str, Any], str]
) -> None:
    name, arguments, path = tool
    elsewhere = f"{service.url}/elsewhere?secret"
    service.answers_with(path, "", status=307, headers={"Location": elsewhere})
    text = failure(call(name, arguments))
    assert "redirects" in text
    assert "secret" not in text
    assert "/elsewhere?secret" not in [request["path"] for request in service.requests]


@pytest.mark.timeout(10)
def test_a_silent_service_is_given_up(
    service: Any, call: Any, tool: tuple[str, dict[str, Any], str]
) -> None:
    name, arguments, _ = tool
    service.silent = True
    assert "no answer within" in failure(call(name, arguments, answer_seconds=0.2))


@pytest.mark.timeout(10)
def test_a_service_that_drips_is_given_up_too(service: Any, call: Any) -> None:
    service.dripping = True
    arguments = {"experiment_id": "exp_1"}
    assert "no answer within" in failure(call("get_verdict", arguments, answer_seconds=0.2))


def test_one_answer_may_take_less_than_ten_seconds() -> None:
    assert ANSWER_SECONDS < 10


def test_a_refused_connection_says_to_start_the_service(
    call: Any, tool: tuple[str, dict[str, Any], str]
) -> None:
    name, arguments, _ = tool
    with socket.socket() as taken:
        # Bound and not listening: nothing else can take the port, and nobody answers on it.
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert "No connection" in failure(call(name, arguments, url=url))


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000,
        '{"lift": NaN}',
        "\udc80".encode("utf-8", "surrogatepass").decode("latin-1"),
        "",
    ],
)
def test_a_body_that_is_no_json_is_no_crash(service: Any, call: Any, body: Any) -> None:
    service.answers_with("/v1/reward/exp_1", body)
    assert "SERVICE_API_URL" in failure(call("get_verdict", {"experiment_id": "exp_1"}))


def test_an_endless_body_is_given_up(service: Any, call: Any) -> None:
    service.answers_with("/v1/reward/exp_1", " " * (5 * 1024 * 1024))
    assert "broke off" in failure(call("get_verdict", {"experiment_id": "exp_1"}))


def test_a_key_that_the_service_echoes_is_not_shown(service: Any, call: Any) -> None:
    key = "rk_Q7hZ2canaryCanaryCanaryCanaryCanary0123456"
    service.problem("/v1/reward/exp_1", 401, f"Unknown key {key}.")
    assert "Unknown key [key]." in failure(call("get_verdict", {"experiment_id": "exp_1"}))


def test_one_failure_does_not_spoil_the_next_call(service: Any, in_session: Any) -> None:
    async def twice(client: Client) -> list[bool]:
        first = await client.call_tool("list_experiments", {})
        service.answers_with(path, {"experiments": [], "next_cursor": None})
        second = await client.call_tool("list_experiments", {})
        return [first.is_error, second.is_error]

    path = "/v1/reward?status=open&limit=5"
    service.answers_with(path, "no", status=500)
    assert in_session(twice) == [True, False]
