"""What clients write for nothing, in each member of each endpoint, is refused by name or unknown.

The members are those of our own OpenAPI document, and the attributes those that we read of OTLP.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from sqlalchemy import text

from api.adapters.otlp.export import attributes
from api.adapters.otlp.mapping import ATTRIBUTES
from api.app import create_app
from api.runtime.settings import ApiSettings
from domain.absence import WORDS, is_nobody, is_null

NOTHING = [*WORDS, "", "  ", "\tNULL ", "none"]
# Of commits alone: elsewhere zeros are an id.
ZEROS = ["0" * 7, "0" * 40, "0" * 64]
_SETTINGS = ApiSettings(database_url="postgresql+psycopg://nobody@/none", secret=b"of the tests")
DOCUMENT = create_app(_SETTINGS).openapi()

_EVENT = {"event": "page_view", "session_id": "s-1"}
_PAID = {
    "event": "expansion",
    "occurred_at": "2026-01-31T12:00:00Z",
    "amount": {"value": 1, "currency": "EUR"},
    "user_ref": "u-1",
    "idempotency_key": "k-1",
}
_FLAG = {"name": "cart", "treatment": "new"}
# Bodies that are taken, to be spoilt in a single member; and what some of these stand in.
BODIES: Mapping[str, Any] = {
    "/v1/events": _EVENT,
    "/v1/deploys": {"commit": {"sha": "4f2a9c1d"}, "diff": {}},
    "/v1/revenue/events": _PAID,
    "/v1/reward/register": {},
    "/v1/reward/gate": {"metadata": {}},
    "/v1/places": {"commit": "4f2a9c1d"},
    "/ofrep/v1/evaluate/flags": {"context": {"targetingKey": "s-1"}},
}
PARENTS: Mapping[str, Any] = {
    "/v1/events/events/0": _EVENT,
    "/v1/revenue/events/events/0": _PAID,
    "/v1/reward/register/treatment_flag": _FLAG,
    "/v1/reward/register/target_metric": {"value_per_conversion": 1.0},
    "/v1/places/flag": _FLAG,
}
# What people read, or a parser says, or nobody believes: no verdict is made of it.
FREE = {"actor", "assignment", "author", "branch", "message", "files", "graph", "key"}


def resolved(node: Any) -> Any:
    while "$ref" in node:
        target: Any = DOCUMENT
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def texts(node: Any, at: str = "") -> Iterator[tuple[str, bool]]:
    """The pointers of all texts of a schema, of a map's keys `*`, and whether each is a commit."""
    node = resolved(node)
    for branch in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from texts(branch, at)
    for name, member in node.get("properties", {}).items():
        yield from () if name in FREE else texts(member, f"{at}/{name}")
    if isinstance(node.get("additionalProperties"), dict):
        yield f"{at}/*", False
    if "items" in node:
        yield from texts(node["items"], f"{at}/0")
    if node.get("type") == "string":
        yield at, "a-f" in node.get("pattern", "")


OPERATIONS = [
    (path, method, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
MEMBERS = sorted(
    {
        (path, *found)
        for path, _, operation in OPERATIONS
        if path in BODIES and "requestBody" in operation
        for found in texts(operation["requestBody"]["content"]["application/json"]["schema"])
    }
)
PARAMETERS = sorted(
    {
        (path, parameter["name"], is_commit)
        for path, method, operation in OPERATIONS
        for parameter in operation.get("parameters", ())
        if method == "get" and parameter["in"] == "query"
        for _, is_commit in texts(parameter["schema"])
    }
)


def noun(pointer: str) -> str:
    return next(part for part in reversed(pointer.split("/")) if part not in ("0", "*"))


def words(is_commit: bool) -> list[str]:
    return NOTHING + ZEROS if is_commit else NOTHING


def spoilt(path: str, pointer: str, word: str) -> Any:
    """A body with a word in a member."""

    def put(node: Any, parts: Sequence[str], at: str) -> Any:
        if not parts:
            return word
        part, *rest = parts
        there, inside = f"{at}/{part}", node.get(part, {})
        filled = {**PARENTS.get(there, {}), **(inside if isinstance(inside, dict) else {})}
        put_inside = put(filled, rest, there) if part != "*" else True
        if part == "0":
            return [put_inside]
        return {**node, word if part == "*" else part: put_inside}

    body = {} if pointer.startswith("/events/") else BODIES[path]
    return put(body, pointer.split("/")[1:], path)


@pytest.fixture
def shop(tenant) -> Any:
    tenant.settings(ofrep="server", rate_limits={"per_key": 10**9, "per_address": 10**9})
    return tenant


@pytest.mark.parametrize(("path", "pointer", "is_commit"), MEMBERS)
def test_a_word_for_nothing_is_refused_by_name_or_unknown(shop, path, pointer, is_commit) -> None:
    member = noun(pointer)
    for number, word in enumerate(words(is_commit)):
        body = json.dumps(spoilt(path, pointer, word)).replace('"k-1"', f'"k-{number}"')
        answer = shop.post(path, json.loads(body))
        if not answer.is_success:
            assert answer.status_code in (400, 422), (word, answer.text)
            assert member in {noun(fault["pointer"]) for fault in answer.json()["errors"]}, word
        elif "base_commit" in pointer:
            assert (is_null(word), answer.json()["deploy"]["base_commit"]) == (True, None)
        elif path.startswith("/ofrep"):
            assert (member, answer.json()) == ("user_ref", {"flags": []})
        elif pointer == "/sent_at":
            assert answer.json()["ignored"] == ["sent_at"], "an event alone has none"
        else:
            known = member == "user_ref" and not is_nobody(word)
            assert answer.json().get("unknown") == (None if known else {member: 1}), word
    _require_nothing_made(shop)


@pytest.mark.parametrize(("path", "name", "is_commit"), PARAMETERS)
def test_a_word_for_nothing_as_a_parameter_is_refused_by_name(shop, path, name, is_commit) -> None:
    for word in words(is_commit):
        answer = shop.get(path, params={name: word})
        assert answer.status_code == 422, (word, answer.text)
        assert answer.json()["errors"][0]["parameter"] == name


@pytest.mark.parametrize(
    ("signal", "member", "name"),
    [
        (signal, member, name)
        for signal in ("Logs", "Spans")
        for member, names in ATTRIBUTES.items()
        for name in names
    ],
)
def test_a_word_for_nothing_as_an_attribute_is_refused_by_name_or_unknown(
    shop, signal, member, name
) -> None:
    path, records = {"Logs": ("logs", "logRecords"), "Spans": ("traces", "spans")}[signal]
    unread = {"assignment", "route"} | (
        {"event", "event_id", "value"} if signal == "Spans" else set()
    )
    for word in words(member == "commit"):
        sent = {"event.name": "sent", "session.id": "s-1", name: word}
        record = {"kind": 2, "attributes": attributes(sent)}
        export = {f"resource{signal}": [{f"scope{signal}": [{records: [record]}]}]}
        answer = shop.post(f"/v1/{path}", export)
        assert answer.status_code == 200, answer.text
        message = answer.json().get("partialSuccess", {}).get("errorMessage", "")
        known = not is_nobody(word) if member == "user_ref" else member == "value" and is_null(word)
        # Nothing is read of an empty text, of a version that is no commit, and of a route
        # that says nothing, beside which another attribute may have it.
        if word and not known and member not in unread and name != "service.version":
            assert ATTRIBUTES[member][0] in message, (word, message)
    _require_nothing_made(shop)


_MADE = """
SELECT made FROM (
    SELECT unnest(ARRAY[environment, event, session_id, route, event_id, commit_sha]),
        commit_sha, NULL
    FROM runtime_events WHERE project_id = :project_id
    UNION ALL
    SELECT unnest(ARRAY[environment, idempotency_key, session_id]), NULL, NULL
    FROM revenue_events WHERE project_id = :project_id
    UNION ALL
    SELECT environment, commit_sha, base_commit FROM deploys WHERE project_id = :project_id
    UNION ALL
    SELECT unnest(ARRAY[environment, target_metric]), treatment_commit, control_commit
    FROM experiments WHERE project_id = :project_id
) AS stored (made, build, base)
WHERE lower(btrim(made)) = ANY(:words) OR build ~ '^0+$' OR base ~ '^0+$'
"""


def _require_nothing_made(shop: Any) -> None:
    """Holds that no arm, arrival or base is made of a word, or of zeros."""
    bound = {"project_id": shop.project_id, "words": ["", *(word.lower() for word in WORDS)]}
    made = shop.in_store(lambda connection: connection.execute(text(_MADE), bound).scalars().all())
    assert made == []
