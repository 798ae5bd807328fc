"""OTLP in protobuf: an export of logs read."""

from collections.abc import Container, Iterable, Iterator

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import ScopeLogs

from api.wire.otlp.record import LogRecord, Scalar, require_few, unreadable

_SCALARS = frozenset({"string_value", "bool_value", "int_value", "double_value"})


def records_of_protobuf(raw: bytes, names: Container[str]) -> list[LogRecord]:
    """Returns the log records of an export.

    Args:
        raw: The body.
        names: Of the attributes that are of use.

    Raises:
        Problem: The body is no export of logs, or it is too large.
    """
    export = ExportLogsServiceRequest()
    try:
        export.ParseFromString(raw)
    except DecodeError:
        raise unreadable() from None
    records: list[LogRecord] = []
    require_few(len(export.resource_logs))
    for logs in export.resource_logs:
        shared = _scalars(logs.resource.attributes, names)
        require_few(len(logs.scope_logs))
        for scope in logs.scope_logs:
            require_few(len(records) + len(scope.log_records))
            records.extend(_records(scope, shared, names))
    return records


def _records(
    scope: ScopeLogs, shared: dict[str, Scalar], names: Container[str]
) -> Iterator[LogRecord]:
    for record in scope.log_records:
        yield LogRecord(
            event=record.event_name,
            nanoseconds=record.time_unix_nano or record.observed_time_unix_nano,
            attributes=shared | _scalars(record.attributes, names),
        )


def _scalars(attributes: Iterable[KeyValue], names: Container[str]) -> dict[str, Scalar]:
    scalars: dict[str, Scalar] = {}
    for attribute in attributes:
        if attribute.key in names:
            kind = attribute.value.WhichOneof("value")
            if kind in _SCALARS:
                scalars[attribute.key] = getattr(attribute.value, kind)
    return scalars
