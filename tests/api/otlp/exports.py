"""Exports of logs and spans, as OTLP's two encodings have them, and what becomes of them."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from sqlalchemy import text

PROTOBUF = {"Content-Type": "application/x-protobuf"}
BUILD = "ba5e" * 10
# Members that tell which request a span belongs to.
ABOVE = ("traceId", "parentSpanId", "flags")
BEGAN = 1_790_000_000_250_000_000
KINDS = pytest.mark.parametrize("protobuf", [False, True], ids=["JSON", "protobuf"])


def attributes(members: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value_of(value)} for key, value in members.items()]


def value_of(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"arrayValue": {"values": [*map(value_of, value)]}}
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
    return {kinds[type(value)]: str(value) if type(value) is int else value}


def record(event: str, **members: Any) -> dict[str, Any]:
    """A log event; in the names of members `__` stands for a dot."""
    named = {name.replace("__", "."): value for name, value in members.items()}
    return {"eventName": event, "attributes": attributes(named)}


def evaluation(flag: str, session: str, *, value: Any = True, **members: Any) -> dict[str, Any]:
    return record(
        "feature_flag.evaluation",
        session__id=session,
        feature_flag__key=flag,
        feature_flag__result__value=value,
        **members,
    )


def span(
    number: int = 1, *, kind: Any = 2, failed: bool = False, ms: float = 182.5, **members: Any
) -> dict[str, Any]:
    """A request that a server answered, unless it is of another kind; `number` makes its ids."""
    above: dict[str, Any] = {name: members.pop(name) for name in ABOVE if name in members}
    named = {name.replace("__", "."): value for name, value in members.items()}
    return {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "kind": kind,
        "startTimeUnixNano": str(BEGAN),
        "endTimeUnixNano": str(BEGAN + int(ms * 1e6)),
        "attributes": attributes(named),
        "status": {"code": 2 if failed else 0},
    } | above


def traces(spans: Sequence[Mapping[str, Any]], **resource: Any) -> dict[str, Any]:
    """An export of spans, of a resource as `export` has it."""
    (logs,) = export([], **resource)["resourceLogs"]
    return {
        "resourceSpans": [{"resource": logs["resource"], "scopeSpans": [{"spans": list(spans)}]}]
    }


def export(records: Sequence[Mapping[str, Any]], **resource: Any) -> dict[str, Any]:
    """An export of a resource, which names a build unless a test chooses otherwise."""
    named = {name.replace("__", "."): value for name, value in resource.items()}
    shared = {"vcs.ref.head.revision": BUILD} | named
    return {
        "resourceLogs": [
            {
                "resource": {"attributes": attributes(shared)},
                "scopeLogs": [{"scope": {"name": "shop"}, "logRecords": list(records)}],
            }
        ]
    }


def encoded(document: Mapping[str, Any]) -> bytes:
    """The same export in protobuf."""
    if "resourceSpans" not in document:
        return ParseDict(dict(document), ExportLogsServiceRequest()).SerializeToString()
    whole = deepcopy(dict(document))
    # OTLP's JSON has ids in hexadecimal, the library's own in base64.
    for resource in whole["resourceSpans"]:
        for scope in resource.get("scopeSpans", ()):
            for part in scope.get("spans", ()):
                for name in part.keys() & {"traceId", "spanId", "parentSpanId"}:
                    part[name] = b64encode(bytes.fromhex(part[name])).decode()
    return ParseDict(whole, ExportTraceServiceRequest()).SerializeToString()


def sent(tenant: Any, document: Any, *, protobuf: bool, **headers: str) -> Any:
    """The answer to an export of logs, by default with the public key, or of spans."""
    spans = "resourceSpans" in document
    path = "/v1/traces" if spans else "/v1/logs"
    key = headers or (tenant.write if spans else tenant.public)
    if not protobuf:
        return tenant.client.post(path, json=document, headers=key)
    return tenant.client.post(path, content=encoded(document), headers=key | PROTOBUF)


def receipt(answer: Any) -> tuple[int, str]:
    """The rejected records that an answer counts, and its message."""
    if answer.headers["Content-Type"] == "application/x-protobuf":
        # Both kinds of receipts number their members alike.
        partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
        return partial.rejected_log_records, partial.error_message
    partial = answer.json().get("partialSuccess", {})
    message = partial.pop("errorMessage", "")
    return sum(map(int, partial.values())), message


def stored(tenant: Any) -> Sequence[Any]:
    statement = text(
        "SELECT event, session_id, environment, commit_sha, route, flags, event_id, value,"
        " occurred_at, pseudonym IS NOT NULL AS named, trusted"
        " FROM runtime_events WHERE project_id = :project ORDER BY session_id, event, event_id"
    )
    return tenant.in_store(
        lambda connection: connection.execute(statement, {"project": tenant.project_id}).all()
    )
