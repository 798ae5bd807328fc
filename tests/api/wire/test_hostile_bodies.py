"""Every endpoint that takes a body, against bodies that break JSON or a limit."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from storage.tenants.keys import KeyKind

pytestmark = pytest.mark.shared_store(ofrep="browser")

MEBIBYTE = 2**20


def status_of_a_broken_rule(path: str) -> int:
    """OpenFeature's protocol has a single status for every body that it cannot use."""
    return 400 if path.startswith(OFREP) else 422


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A path with a body that it takes, and where in it anything may stand."""

    path: str
    kind: KeyKind
    body: dict[str, Any]
    status: int
    free: str = "anything"
    limit: int = MEBIBYTE


REVENUE = {
    "event": "activation",
    "occurred_at": "2026-01-31T12:00:00Z",
    "user_ref": "workspace-17",
    "idempotency_key": "k",
}
GATE = "/v1/reward/gate"
OFREP = "/ofrep/v1/evaluate/flags"
ENDPOINTS = [
    Endpoint(
        path="/v1/events",
        kind=KeyKind.PUBLIC,
        body={"event": "a", "session_id": "s"},
        free="properties",
        status=202,
    ),
    Endpoint(path=OFREP, kind=KeyKind.PUBLIC, body={"context": {"targetingKey": "s"}}, status=200),
    Endpoint(
        path="/v1/static-graphs",
        kind=KeyKind.WRITE,
        body={"schema_version": 1, "routes": []},
        limit=16 * MEBIBYTE,
        status=201,
    ),
    Endpoint(
        path="/v1/deploys",
        kind=KeyKind.WRITE,
        body={"commit": {"sha": "abcdef1"}},
        free="diff",
        limit=16 * MEBIBYTE,
        status=201,
    ),
    Endpoint(
        path="/v1/revenue/events", kind=KeyKind.WRITE, body=REVENUE, free="attributes", status=200
    ),
    Endpoint(
        path=GATE,
        kind=KeyKind.PROJECT,
        body={"metadata": {"policy": "no-breach"}},
        # It holds: no canary is declared.
        status=403,
    ),
    Endpoint(
        path="/v1/reward/register", kind=KeyKind.PROJECT, body={}, free="metadata", status=201
    ),
]
every_endpoint = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)


def posted(service: Any, endpoint: Endpoint, content: bytes, **headers: str) -> Any:
    sent = {
        "X-Service-Project-Key": service.project.keys[endpoint.kind],
        "Content-Type": "application/json",
        **headers,
    }
    return service.client.post(endpoint.path, content=content, headers=sent)


def with_free(endpoint: Endpoint, text: str) -> bytes:
    """The endpoint's body with `text` as a member's value of the free-form part."""
    plain = json.dumps(endpoint.body)[:-1]
    comma = ", " if endpoint.body else ""
    return f'{plain}{comma}"{endpoint.free}": {{"x": {text}}}}}'.encode()


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@every_endpoint
@pytest.mark.parametrize(
    "text",
    [
        '"\\ud83d\\ude00"',
        '"\\u0001"',
        str(2**63 - 1),
        str(-(2**63)),
        "1.7976931348623157e308",
        # The document, its free-form part, and thirty arrays.
        nested(30),
    ],
)
def test_what_is_just_inside_the_limits_of_json_is_accepted(service, endpoint, text) -> None:
    assert posted(service, endpoint, with_free(endpoint, text)).status_code == endpoint.status


@every_endpoint
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('"\\u0000"', "unstorable_text"),
        ('"\\ud800"', "unstorable_text"),
        ('"\\udc00"', "unstorable_text"),
        ('{"\\u0000": 1}', "unstorable_text"),
        (str(2**63), "number_out_of_range"),
        (str(-(2**63) - 1), "number_out_of_range"),
        ("9" * 5000, "number_out_of_range"),
        ("1e400", "number_out_of_range"),
        (nested(31), "too_deep"),
        (nested(100_000), "too_deep"),
    ],
)
def test_what_the_store_cannot_hold_is_refused_and_named(service, endpoint, text, code) -> None:
    answer = posted(service, endpoint, with_free(endpoint, text))
    status = status_of_a_broken_rule(endpoint.path)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (status, code)
    pointer = answer.json()["errors"][0]["pointer"]
    assert pointer.startswith(f"/{endpoint.free}") or (code, pointer) == ("too_deep", "")


def broken(endpoint: Endpoint) -> Iterator[tuple[str, bytes]]:
    whole = json.dumps(endpoint.body)
    yield "empty", b""
    yield "cut off", whole[:-1].encode()
    yield "followed", whole.encode() + b"{}"
    yield "UTF-16", whole.encode("utf-16")
    yield "byte order mark", b"\xef\xbb\xbf" + whole.encode()
    yield "bad UTF-8", with_free(endpoint, '"?"').replace(b"?", b"\xff")
    yield "surrogate in UTF-8", with_free(endpoint, '"?"').replace(b"?", b"\xed\xa0\x80")
    for constant in ("NaN", "Infinity", "-Infinity", "nul", "'x'", "01", "1."):
        yield constant, with_free(endpoint, constant)
    yield "control character", with_free(endpoint, '"\n"')
    yield "a form", b"event=a&session_id=s"


@every_endpoint
def test_what_is_not_json_is_400(service, endpoint) -> None:
    result = {
        name: (answer.status_code, answer.json()["code"])
        for name, content in broken(endpoint)
        for answer in [posted(service, endpoint, content)]
    }
    assert result == dict.fromkeys(result, (400, "invalid_json"))


@every_endpoint
def test_a_member_named_twice_is_400_except_among_runtime_events(service, endpoint) -> None:
    answer = posted(service, endpoint, with_free(endpoint, '{"a": 1, "a": 2}'))
    if endpoint.path == "/v1/events":
        assert answer.status_code == 202
    else:
        assert (answer.status_code, answer.json()["code"]) == (400, "duplicate_member")


@every_endpoint
def test_a_body_may_be_as_long_as_the_limit_and_no_longer(service, endpoint) -> None:
    whole = json.dumps(endpoint.body).encode()
    padded = whole + b" " * (endpoint.limit - len(whole))
    assert posted(service, endpoint, padded).status_code == endpoint.status
    answer = posted(service, endpoint, padded + b" ")
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


# A value, or name, for every 8 bytes of the limit, and at most 2^20.
MOST_VALUES = {MEBIBYTE: 131_072, 16 * MEBIBYTE: 1_048_576}


def values_in(content: bytes) -> int:
    return 1 + sum(content.count(mark) for mark in (b",", b"[", b"{", b":"))


@every_endpoint
def test_a_body_may_hold_as_many_values_as_the_limit_and_no_more(service, endpoint) -> None:
    most = MOST_VALUES[endpoint.limit]
    more = most - values_in(with_free(endpoint, "[0]"))
    content = with_free(endpoint, "[0" + ",0" * more + "]")
    assert values_in(content) == most
    # Many are none that the member takes; but they were read, and it says so.
    assert posted(service, endpoint, content).status_code in (endpoint.status, 422)
    answer = posted(service, endpoint, with_free(endpoint, "[0" + ",0" * (more + 1) + "]"))
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


@every_endpoint
def test_a_body_of_nothing_but_faults_is_looked_at_no_further_than_some(service, endpoint) -> None:
    members = b",".join(b'"m%d":0' % number for number in range(20_000))
    items = b",".join([b"{}"] * 5_000)
    lists = b",".join(b'"%s":[%s]' % (name, items) for name in (b"routes", b"events", b"files"))
    for content in (members, lists, b'"graph":{%s},"diff":{%s}' % (lists, lists)):
        answer = posted(service, endpoint, b"{" + content + b"}")
        if answer.status_code != endpoint.status:
            assert answer.status_code == status_of_a_broken_rule(endpoint.path)
            more = re.search(r"and (\d+) more", answer.json()["detail"])
            assert more is None or int(more[1]) < 1000


@every_endpoint
def test_a_body_of_unknown_length_is_cut_at_the_limit(service, endpoint) -> None:
    key = {"X-Service-Project-Key": service.project.keys[endpoint.kind]}
    chunks = (b" " * 65_536 for _ in range(endpoint.limit // 65_536 + 2))
    answer = service.client.post(
        endpoint.path, content=chunks, headers={**key, "Content-Type": "application/json"}
    )
    assert answer.status_code == 413


@pytest.mark.requirement("endpoint.json", "endpoint.static-graphs.request")
@every_endpoint
@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json; charset=UTF-8", None),
        ("APPLICATION/JSON", None),
        ("application/json; charset=utf-16", 415),
        ("application/x-www-form-urlencoded", 415),
        ("text/html", 415),
        ("", 415),
    ],
)
def test_the_content_type_must_be_json(service, endpoint, content_type, status) -> None:
    content = json.dumps(endpoint.body).encode()
    answer = posted(service, endpoint, content, **{"Content-Type": content_type})
    assert answer.status_code == (status or endpoint.status)


def test_plain_text_is_taken_of_runtime_events_alone(service) -> None:
    for endpoint in ENDPOINTS:
        content = json.dumps(endpoint.body).encode()
        answer = posted(service, endpoint, content, **{"Content-Type": "text/plain"})
        assert answer.status_code == (202 if endpoint.path == "/v1/events" else 415)


@every_endpoint
def test_an_encoding_that_is_not_taken_is_415(service, endpoint) -> None:
    content = json.dumps(endpoint.body).encode()
    for encoding in ("br", "deflate"):
        answer = posted(service, endpoint, content, **{"Content-Encoding": encoding})
        assert answer.status_code == 415


@every_endpoint
@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("*/*", None),
        ("application/json", None),
        ("application/*;q=0.1, text/html", None),
        ("text/html, */*;q=0.5", None),
        ("text/html", 406),
        ("application/json;q=0, */*", 406),
        ("*/*;q=0.0", 406),
        ("nonsense", 406),
    ],
)
def test_the_answer_must_be_acceptable(service, endpoint, accept, status) -> None:
    answer = posted(service, endpoint, json.dumps(endpoint.body).encode(), Accept=accept)
    assert answer.status_code == (status or endpoint.status)


@every_endpoint
def test_an_unknown_member_is_refused_where_the_shape_is_ours(service, endpoint) -> None:
    answer = posted(service, endpoint, json.dumps({**endpoint.body, "a/b~c": 1}).encode())
    if endpoint.path in ("/v1/events", "/v1/static-graphs", OFREP, GATE):
        assert answer.status_code == endpoint.status
    else:
        assert answer.status_code == 422
        assert answer.json()["errors"] == [
            {"pointer": "/a~1b~0c", "code": "unknown_member", "detail": "there is no such member"}
        ]
