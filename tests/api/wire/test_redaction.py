"""A canary in every header, parameter, member and name of a request: where it is heard again."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

from storage.postgres.engine import connection_string, session_options
from tests.api.routes.test_tenants import HEADER, KINDS, OPERATIONS

HEADERS = ("User-Agent", "Cookie", "Referer", "X-Forwarded-For", "X-Anything", "Idempotency-Key")
# What docs/operations/keeping.md and the interface say is stored as sent, and nothing else.
STORED = {
    "/v1/events": {
        *("event", "session_id", "commit", "environment", "event_id", "flags", "properties"),
        "route",
    },
    "/v1/logs": {"resourceLogs"},
    "/v1/traces": {"resourceSpans"},
    "/v1/revenue/events": {"idempotency_key", "attributes"},
    "/v1/deploys": {"commit", "environment", "graph", "diff", "Idempotency-Key"},
    "/v1/static-graphs": None,
    "/v1/reward/register": {
        *("target_metric", "routes", "guardrails", "metadata", "treatment_flag", "deploy_id"),
        *("treatment_commit", "control_commit"),
    },
    "/v1/reward/gate": {"metadata"},
    "/v1/places": {"flag", "change", "environment", "target_metric", "actor"},
}
# Of a diff: source code is never stored. Of a log: no text, nobody's name, no unknown attribute.
DROPPED = {"patch", "url", "resource", "body", "traceState"}
_EVALUATION = {"context": {"targetingKey": "?", "environment": "?", "plan": "?"}}
_OF_SESSION = {"attributes": [{"key": "session.id", "value": {"stringValue": "?"}}]}
_RESOURCE = {
    "attributes": [{"key": key, "value": {"stringValue": "?"}} for key in ("user.id", "?")]
}
BODIES: dict[str, Any] = {
    "/ofrep/v1/evaluate/flags": _EVALUATION,
    "/ofrep/v1/evaluate/flags/{key}": _EVALUATION,
    "/v1/events": {
        **dict.fromkeys(("event", "session_id", "environment", "user_ref", "event_id"), "?"),
        "route": "/?",
        "properties": {"a": "?"},
        "flags": {"f": "?"},
    },
    "/v1/logs": {
        "resourceLogs": [
            {
                "resource": _RESOURCE,
                "scopeLogs": [
                    {
                        "logRecords": [
                            {"eventName": "?", "body": {"stringValue": "?"}, **_OF_SESSION}
                        ]
                    }
                ],
            }
        ]
    },
    "/v1/traces": {
        "resourceSpans": [
            {
                "resource": _RESOURCE,
                "scopeSpans": [{"spans": [{"kind": 2, "traceState": "?", **_OF_SESSION}]}],
            }
        ]
    },
    "/v1/static-graphs": {"schema_version": "?", "routes": [{"path": "?", "files": ["?"]}]},
    "/v1/deploys": {
        "commit": {"sha": "abcdef1", "message": "?", "author": "?", "branch": "?"},
        "environment": "?",
        "diff": {"files": [{"filename": "?", "status": "modified", "patch": "?"}], "url": "?"},
    },
    "/v1/revenue/events": {
        "event": "activation",
        "occurred_at": "2026-01-31T12:00:00Z",
        "user_ref": "?",
        "idempotency_key": "?",
        "attributes": {"session_id": "?", "plan": "?"},
    },
    "/v1/reward/register": {
        "target_metric": "?",
        "routes": ["?"],
        "guardrails": ["?"],
        "metadata": {"a": "?"},
    },
    "/v1/reward/gate": {"name": "?", "checksum": "?", "metadata": {"target_metric": "?"}},
    "/v1/reward/{experiment_id}/close": {},
    "/v1/places": {
        **dict.fromkeys(("change", "environment", "target_metric", "actor"), "?"),
        "flag": {"name": "?", "treatment": "?", "control": "?"},
    },
    "/v1/places/{place_id}/end": {},
}


@dataclass
class Canaries:
    """Words that stand nowhere else, and where each was put."""

    places: dict[str, tuple[str, str]] = field(default_factory=dict)

    def make(self, path: str, place: str) -> str:
        name = f"canary{len(self.places):05d}"
        self.places[name] = (path, place)
        return name

    def filled(self, path: str, place: str, node: Any) -> Any:
        """A body with a canary in each `?`."""
        if isinstance(node, dict):
            return {
                name: self.filled(path, name if name in DROPPED else place or name, value)
                for name, value in node.items()
            }
        if isinstance(node, list):
            return [self.filled(path, place, value) for value in node]
        return node.replace("?", self.make(path, place)) if isinstance(node, str) else node

    def heard(self, text: str) -> dict[str, tuple[str, str]]:
        return {name: place for name, place in self.places.items() if name in text}


def requests_of(canaries: Canaries, path: str, body: Any) -> Iterator[tuple[dict[str, Any], bool]]:
    """Requests with canaries all over, and whether their members' names are canaries too."""
    headers = {name: canaries.make(path, name) for name in HEADERS}
    query = {
        "q": canaries.make(path, "query"),
        canaries.make(path, "query"): "1",
        "cursor": canaries.make(path, "query"),
        "decided_after": canaries.make(path, "query"),
    }
    if body is None:
        yield {"headers": headers, "params": query}, False
        return
    taken = canaries.filled(path, "", body)
    yield {"headers": headers, "json": taken}, False
    yield {"headers": headers, "json": taken, "params": {"q": canaries.make(path, "query")}}, False
    for name in body:
        # Of another type, and where it is not expected.
        for wrong in ([canaries.make(path, name)], {"x": canaries.make(path, name)}):
            answer = {**canaries.filled(path, "", body), name: wrong}
            yield {"headers": headers, "json": answer}, False
    yield {"headers": headers, "json": {**taken, canaries.make(path, "name"): 1}}, True
    text = canaries.make(path, "wrong")
    for content in (text, f'{{"{text}', f'{{"a": "{text}"}}}}', json.dumps(text)):
        yield (
            {
                "headers": {**headers, "Content-Type": "application/json"},
                "content": content.encode(),
            },
            False,
        )
    yield {"headers": {**headers, "Content-Type": text}, "content": b"{}"}, False


def dumped(url: str) -> str:
    """Every row of every table, as `pg_dump` writes it."""
    with psycopg.connect(connection_string(url), options=session_options()) as connection:
        tables = connection.execute(
            "SELECT oid::regclass::text FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = 'deploy_reward'::regnamespace"
        ).fetchall()
        rows: list[bytes] = []
        for (table,) in tables:
            with connection.cursor().copy(f"COPY {table} TO STDOUT".encode()) as copy:
                rows += [bytes(block) for block in copy]
    return b"".join(rows).decode()


def test_what_a_request_says_is_heard_nowhere_but_where_it_is_meant_to_be(service, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    canaries = Canaries()
    # What a gate is asked of a declared canary is registered.
    service.settings(ofrep="browser")
    service.deploy("abcdef2", 0.1)
    experiment_id = service.register()
    problems: list[str] = []
    keys = set(service.project.keys.values())
    statuses: set[int] = set()
    for parameter in OPERATIONS:
        path, method, _ = parameter.values
        body = BODIES[path] if method == "post" else None
        for key in (service.project.keys[min(KINDS[path])], canaries.make(path, "key"), None):
            for options, names in requests_of(canaries, path, body):
                sent = {**options["headers"], **({} if key is None else {HEADER: key})}
                answer = service.client.request(
                    method,
                    path.replace("{experiment_id}", experiment_id),
                    **{**options, "headers": sent},
                )
                statuses.add(answer.status_code)
                if answer.status_code >= 400 and not names:
                    problems.append(f"{answer.text} {answer.headers}")
    assert {200, 201, 202, 400, 401, 415, 422} <= statuses
    service.client.get(f"/v1/reward/{canaries.make('/v1/reward', 'path')}", headers=service.reward)
    service.client.get(f"/{canaries.make('/', 'path')}")

    ours = "\n".join(
        f"{record.getMessage()} {record.exc_info}"
        for record in caplog.records
        if not record.name.startswith("httpx")
    )
    assert "POST /v1/events 202" in ours
    metrics = service.client.get("/metrics").text
    for text in (ours, metrics, "\n".join(problems)):
        assert canaries.heard(text) == {}
        assert [key for key in keys if key in text] == []
    stored = dumped(service.store.url)
    assert [key for key in keys if key in stored] == []
    unmeant = {
        name: (path, place)
        for name, (path, place) in canaries.heard(stored).items()
        if STORED[path] is not None and place not in STORED[path]
    }
    assert unmeant == {}
    # The canaries sing: what is meant to be stored is seen by the same look.
    assert {path for path, _ in canaries.heard(stored).values()} == STORED.keys()
