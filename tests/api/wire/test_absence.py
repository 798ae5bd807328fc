"""What clients write for nothing, in each member of each endpoint, is refused by name or unknown.

The members are those of our own OpenAPI document, and the attributes those that we read of OTLP.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from otlp_receiver.mapping import ATTRIBUTES
from sqlalchemy import text

from api.app import create_app
from api.runtime.settings import ApiSettings
from domain.absence import EMPTY, WORDS, is_nobody, is_null
from tests.api.otlp.exports import KINDS, attributes, receipt, sent

NOTHING = [*WORDS, "", "  ", "\tNULL ", "none", "${session.id}", "{{Session ID}}"]
# Of commits alone: elsewhere zeros are an id.
ZEROS = ["0" * 7, "0" * 40, "0" * 64, "4b825DC", *EMPTY[1::2]]
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


@KINDS
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
    shop, signal, member, name, protobuf
) -> None:
    records = {"Logs": "logRecords", "Spans": "spans"}[signal]
    unread = {"assignment", "route"} | (
        {"event", "event_id", "value"} if signal == "Spans" else set()
    )
    for word in words(member == "commit"):
        named = {"event.name": "sent", "session.id": "s-1", name: word}
        record = {"attributes": attributes(named)} | ({"kind": 2} if signal == "Spans" else {})
        export = {f"resource{signal}": [{f"scope{signal}": [{records: [record]}]}]}
        answer = sent(shop, export, protobuf=protobuf, **shop.write)
        assert answer.status_code == 200, answer.text
        _, message = receipt(answer)
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
    OR EXISTS (
        SELECT FROM unnest(CAST(:empty AS text[])) AS id WHERE starts_with(id, build) OR id = base
    )
"""


def _require_nothing_made(shop: Any) -> None:
    """Holds that no arm, arrival or base is made of a word, or of zeros."""
    words = ["", *(word.lower() for word in WORDS)]
    bound = {"project_id": shop.project_id, "words": words, "empty": list(EMPTY)}
    made = shop.in_store(lambda connection: connection.execute(text(_MADE), bound).scalars().all())
    assert made == []


_NO_COMMIT = {"event": "page_view", "session_id": "s-1", "flags": {" cart ": "new", "old": None}}


@pytest.mark.parametrize(
    "body",
    [_NO_COMMIT, {"events": [_NO_COMMIT]}, {**_NO_COMMIT, "mine": 1}, {"events": [_NO_COMMIT, {}]}],
    ids=["an event", "a batch", "an unknown member", "beside a refused event"],
)
def test_a_flag_of_null_was_not_served_and_spaces_around_its_name_are_none(tenant, body) -> None:
    assert tenant.post("/v1/events", body).json()["accepted"] == 1
    assert _stored(tenant, "flags") == [{"cart": "new"}]


def test_spaces_around_an_environment_are_none_at_each_door(tenant) -> None:
    spaced = "staging\n"
    event = {"event": "page_view", "session_id": "s-1", "environment": spaced}
    paid = {**_PAID, "attributes": {"session_id": " s-1", "environment": spaced}}
    deploy = {"commit": {"sha": "4f2a9c1d"}, "environment": spaced}
    record = {"eventName": "page_view", "attributes": attributes({"session.id": "s-2"})}
    record["attributes"] += attributes({"deployment.environment.name": spaced})
    export = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
    bodies = {"/v1/events": event, "/v1/revenue/events": paid, "/v1/logs": export}
    assert all(tenant.post(path, body).is_success for path, body in bodies.items())
    assert tenant.post("/v1/deploys", deploy).json()["deploy"]["environment"] == "staging"
    last = tenant.get("/v1/deploys/last", params={"environment": spaced})
    assert last.json()["deploy"]["environment"] == "staging"
    assert _stored(tenant, "environment") == ["staging", "staging"]
    assert _stored(tenant, "environment || session_id", "revenue_events") == ["stagings-1"]


@pytest.mark.parametrize(
    ("sent", "session", "user"),
    [
        (False, None, None),
        (True, None, None),
        (7.0, "7", "7"),
        (1.5, None, None),
        (1.2345678901234567e18, None, None),
        (1234567890123456789, "1234567890123456789", "1234567890123456789"),
    ],
)
def test_an_attribute_identifies_by_a_text_or_a_whole_number(tenant, sent, session, user) -> None:
    exports = [{"session.id": sent}, {"session.id": "of the user", "user.id": sent}]
    for members in exports:
        record = {"eventName": "page_view", "attributes": attributes(members)}
        tenant.post("/v1/logs", {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]})
    known = [] if session is None else [session]
    assert sorted(_stored(tenant, "session_id")) == [*known, "of the user"]
    assert len([name for name in _stored(tenant, "pseudonym") if name]) == (user is not None)


def test_spans_of_no_trace_are_not_one_span_sent_again(tenant) -> None:
    members = {"session.id": "s-1", "http.route": "/cart"}
    span = {"traceId": "0" * 32, "spanId": "0" * 16, "kind": 2, "attributes": attributes(members)}
    export = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    for _ in range(2):
        assert tenant.post("/v1/traces", export).status_code == 200
    assert _stored(tenant, "event_id") == [None, None]


def test_a_word_for_nothing_gives_way_to_an_attribute_that_says_something(tenant) -> None:
    members = {"session.id": "undefined", "feature_flag.context.id": "s-1"}
    members |= {"feature_flag.key": "cart", "feature_flag.result.value": ""}
    members |= {"feature_flag.result.variant": "new"}
    record = {"eventName": "feature_flag.evaluation", "attributes": attributes(members)}
    answer = tenant.post("/v1/logs", {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]})
    assert receipt(answer)[0] == 0
    assert (_stored(tenant, "session_id"), _stored(tenant, "flags")) == (["s-1"], [{"cart": "new"}])
    unit = {"session.id": "null", "user.id": "undefined", "enduser.id": "ada"}
    span = {"traceId": "1" * 32, "spanId": "1" * 16, "kind": 2, "attributes": attributes(unit)}
    answer = tenant.post("/v1/traces", {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
    assert receipt(answer)[0] == 0
    assert [len(name) for name in _stored(tenant, "session_id")] == [3, 64]


@pytest.mark.parametrize("reason", ["error", "ERROR"])
def test_a_flag_whose_evaluation_failed_served_no_arm(tenant, reason) -> None:
    members = {"session.id": "s-1", "feature_flag.key": "cart", "feature_flag.result.value": "new"}
    members["feature_flag.result.reason"] = reason
    record = {"eventName": "feature_flag.evaluation", "attributes": attributes(members)}
    tenant.post("/v1/logs", {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]})
    assert _stored(tenant, "flags") == []


def test_an_event_in_the_future_by_a_wrong_sent_at_is_refused_in_its_name(tenant) -> None:
    event = {**_EVENT, "occurred_at": datetime.now(UTC).isoformat()}
    answer = tenant.post("/v1/events", {"sent_at": "2016-01-01T00:00:00Z", "events": [event]})
    assert answer.status_code == 422
    assert "sent_at" in answer.json()["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("amount", "fault"),
    [
        ({"value": 1, "currency": "XXX"}, "/amount/currency"),
        ({"value": 1, "currency": "xau"}, "/amount/currency"),
        ({"value": 1, "currency": "XDR"}, "/amount/currency"),
    ],
)
def test_an_amount_is_of_a_currency_with_a_minor_unit(tenant, amount, fault) -> None:
    answer = tenant.post("/v1/revenue/events", {**_PAID, "amount": amount})
    assert [each["pointer"] for each in answer.json()["errors"]] == [fault]


def _stored(shop: Any, column: str, table: str = "runtime_events") -> list[Any]:
    select = text(f"SELECT {column} FROM {table} WHERE project_id = :number")
    bound = {"number": shop.project_id}
    return shop.in_store(lambda connection: connection.execute(select, bound).scalars().all())
