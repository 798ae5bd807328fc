"""Exports of logs, as OTLP's two encodings have them."""

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

PROTOBUF = {"Content-Type": "application/x-protobuf"}
BUILD = "ba5e" * 10


def attributes(members: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value_of(value)} for key, value in members.items()]


def value_of(value: Any) -> dict[str, Any]:
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
    return ParseDict(dict(document), ExportLogsServiceRequest()).SerializeToString()
