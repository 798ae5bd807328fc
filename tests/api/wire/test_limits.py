"""A body at a limit of the interface is taken; beyond it the answer names the member."""

import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from api.app import create_app
from api.runtime.settings import ApiSettings
from storage.tenants.keys import KeyKind
from storage.tenants.projects import CreatedProject
from tests.api.wire.test_hostile_bodies import ENDPOINTS, broken

pytestmark = pytest.mark.shared_store(ofrep="browser")

# Four bytes of UTF-8, two units of UTF-16, twelve characters as JSON's escapes: a single character.
ASTRAL = "\N{SLICE OF PIZZA}"
EVENTS, REVENUE, DEPLOYS = "/v1/events", "/v1/revenue/events", "/v1/deploys"
GRAPHS, REGISTER = "/v1/static-graphs", "/v1/reward/register"
FLAG = "/ofrep/v1/evaluate/flags/{key}"
# Protobuf's JSON has rules of its own: tests/api/otlp.
LOGS, TRACES = "/v1/logs", "/v1/traces"
CLOSE = "/v1/reward/{experiment_id}/close"
PLACES = "/v1/places"

_EVENT = {"event": "a", "session_id": "s"}
_REVENUE = {
    "event": "activation",
    "occurred_at": "2026-01-31T12:00:00Z",
    "user_ref": "u",
    "idempotency_key": "k",
}


def _in_event(member: str) -> Callable[[Any], Any]:
    return lambda value: {**_EVENT, member: value}


def _in_revenue(member: str) -> Callable[[Any], Any]:
    return lambda value: {**_REVENUE, member: value}


def _in_commit(member: str) -> Callable[[Any], Any]:
    return lambda value: {"commit": {"sha": "abcdef1", member: value}}


TEXTS: list[tuple[str, str, int, Callable[[str], Any]]] = [
    (EVENTS, "/event", 128, _in_event("event")),
    (EVENTS, "/session_id", 128, _in_event("session_id")),
    (EVENTS, "/route", 512, _in_event("route")),
    (EVENTS, "/environment", 64, _in_event("environment")),
    (EVENTS, "/user_ref", 256, _in_event("user_ref")),
    (EVENTS, "/event_id", 64, _in_event("event_id")),
    (EVENTS, "/flags", 128, lambda value: {**_EVENT, "flags": {value: True}}),
    (EVENTS, "/flags", 256, lambda value: {**_EVENT, "flags": {"f": value}}),
    (REVENUE, "/user_ref", 256, _in_revenue("user_ref")),
    (REVENUE, "/idempotency_key", 255, _in_revenue("idempotency_key")),
    (DEPLOYS, "/environment", 64, lambda name: {**_in_commit("author")("a"), "environment": name}),
    (DEPLOYS, "/commit/message", 65_536, _in_commit("message")),
    (DEPLOYS, "/commit/author", 256, _in_commit("author")),
    (DEPLOYS, "/commit/branch", 256, _in_commit("branch")),
    (REGISTER, "/target_metric", 128, lambda value: {"target_metric": value}),
    (REGISTER, "/guardrails/0", 128, lambda value: {"guardrails": [value]}),
    (REGISTER, "/routes/0", 512, lambda value: {"routes": [value]}),
    (REGISTER, "/treatment_flag/name", 128, lambda value: _flag(name=value)),
    (REGISTER, "/treatment_flag/treatment", 256, lambda value: _flag(treatment=value)),
]


def _flag(**members: Any) -> Any:
    return {"treatment_flag": {"name": "f", "treatment": True, **members}}


def test_a_text_is_as_long_as_its_limit_in_characters(service) -> None:
    for path, pointer, most, body in TEXTS:
        project = {"headers": by(service.new_project(f"{path} {pointer} {most}"), path)}
        assert service.post(path, body(ASTRAL * most), **project).is_success, pointer
        answer = service.post(path, body(ASTRAL * (most + 1)), **project)
        assert answer.status_code == 422, pointer
        assert answer.json()["errors"][0]["pointer"].startswith(pointer), pointer
        assert ASTRAL not in answer.text


def by(project: CreatedProject, path: str) -> dict[str, str]:
    kind = KeyKind.PROJECT if path.startswith("/v1/reward") else KeyKind.WRITE
    return {"X-Service-Project-Key": project.keys[kind]}


def _sized(bytes_: int) -> dict[str, str]:
    return {"x": "y" * (bytes_ - len('{"x":""}'))}


@pytest.mark.requirement("endpoint.revenue.batch", "limit.revenue-batch")
@pytest.mark.parametrize(
    ("path", "pointer", "body", "most"),
    [
        (EVENTS, "/properties", lambda n: _in_event("properties")(_sized(n)), 4096),
        (REVENUE, "/attributes", lambda n: _in_revenue("attributes")(_sized(n)), 4096),
        (REGISTER, "/metadata", lambda n: {"metadata": _sized(n)}, 4096),
        (EVENTS, "/events", lambda n: {"events": [_EVENT] * n}, 500),
        (REVENUE, "/events", lambda n: {"events": [_REVENUE] * n}, 50),
        (EVENTS, "/flags", lambda n: _in_event("flags")({str(i): True for i in range(n)}), 200),
        (REGISTER, "/guardrails", lambda n: {"guardrails": [str(i) for i in range(n)]}, 50),
        (REGISTER, "/routes", lambda n: {"routes": [str(i) for i in range(n)]}, 1000),
        (DEPLOYS, "/commit/changes", lambda n: _in_commit("changes")(["abcdef1"] * n), 10_000),
    ],
)
def test_a_list_or_object_is_as_large_as_its_limit(service, path, pointer, body, most) -> None:
    assert service.post(path, body(most)).is_success
    answer = service.post(path, body(most + 1))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_every_operation_that_takes_a_body_is_in_the_table() -> None:
    settings = ApiSettings(database_url="postgresql://nowhere/none", secret=b"-")
    paths = create_app(settings).openapi()["paths"]
    taking = {path for path, ways in paths.items() for way in ways.values() if "requestBody" in way}
    others = {CLOSE, FLAG, LOGS, TRACES, PLACES, f"{PLACES}/{{place_id}}/end"}
    assert taking == {endpoint.path for endpoint in ENDPOINTS} | others


def test_a_body_without_members_is_held_to_the_same_rules(service) -> None:
    experiment_id = service.post(REGISTER, {}).json()["experiment_id"]
    path = CLOSE.replace("{experiment_id}", experiment_id)

    def closed(content: bytes, media: str = "application/json") -> tuple[int, str | None]:
        headers = {**service.reward, "Content-Type": media}
        answer = service.client.post(path, content=content, headers=headers)
        return answer.status_code, answer.json().get("code")

    for name, content in broken(ENDPOINTS[-1]):
        if name != "empty":
            assert closed(content) == (400, "invalid_json"), name
    assert closed(b'{"a":1,"a":2}') == (400, "duplicate_member")
    for content in (b'{"a":1}', b"[]", b"null", b"[" * 100_000, b'"\\u0000"', b"1e400"):
        assert closed(content)[0] in (400, 422)
    assert closed(b"{}" + b" " * (2**20 - 2)) == (200, None)
    assert closed(b"{}" + b" " * (2**20 - 1)) == (413, "body_too_large")
    assert closed(b"{}", "text/plain") == (415, "unsupported_media_type")
    assert closed(b"") == (200, None)


def bomb() -> bytes:
    """A gigabyte of nothing in a megabyte of gzip: the same block, again and again."""
    deflater = zlib.compressobj(level=9, wbits=16 + zlib.MAX_WBITS)
    head = deflater.compress(b" " * 2**20) + deflater.flush(zlib.Z_FULL_FLUSH)
    block = deflater.compress(b" " * 2**20) + deflater.flush(zlib.Z_FULL_FLUSH)
    return head + block * ((2**20 - len(head)) // len(block))


def test_a_gigabyte_in_a_megabyte_of_gzip_is_413_and_never_inflated(service) -> None:
    content = bomb()
    headers = {**service.public, "Content-Type": "application/json", "Content-Encoding": "gzip"}
    tracemalloc.start()
    try:
        answer = service.client.post(EVENTS, content=content, headers=headers)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert zlib.decompressobj(wbits=31).decompress(content, 2**24).isspace()
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert peak < 16 * 2**20
