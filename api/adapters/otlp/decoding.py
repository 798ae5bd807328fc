"""Exports decoded: from protobuf by its library, from JSON by structs with the same members."""

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from api.adapters.otlp.record import LogRecord, Scalar, Span, require_few, unreadable

ExportT = TypeVar("ExportT")

# Integers of 64 bits stand there as text; a number is taken as well.
_Digits = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}$(?!\n)")]
_Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | _Digits
_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | str


class _Value(msgspec.Struct, rename="camel", gc=False):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: _Integer | None = None
    double_value: float | str | None = None


class _Attribute(msgspec.Struct, gc=False):
    key: str = ""
    value: _Value | None = None


class _Resource(msgspec.Struct):
    attributes: list[_Attribute] | None = None


class _Record(msgspec.Struct, rename="camel"):
    time_unix_nano: _Nanoseconds | None = None
    observed_time_unix_nano: _Nanoseconds | None = None
    event_name: str | None = None
    attributes: list[_Attribute] | None = None


class _Status(msgspec.Struct):
    code: int | str | None = None


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str | None = None
    span_id: str | None = None
    kind: int | str | None = None
    start_time_unix_nano: _Nanoseconds | None = None
    end_time_unix_nano: _Nanoseconds | None = None
    attributes: list[_Attribute] | None = None
    status: _Status | None = None


class _Scope(msgspec.Struct, rename="camel"):
    log_records: list[_Record] | None = None
    spans: list[_Span] | None = None


class _Whole(msgspec.Struct, rename="camel"):
    resource: _Resource | None = None
    scope_logs: list[_Scope] | None = None
    scope_spans: list[_Scope] | None = None


class _Export(msgspec.Struct, rename="camel"):
    resource_logs: list[_Whole] | None = None
    resource_spans: list[_Whole] | None = None


_EXPORT = msgspec.json.Decoder(_Export)
_SCALARS = ("string_value", "bool_value", "int_value", "double_value")
# Numbers by OTLP's own rule, names by protobuf's JSON.
_SERVER, _FAILED = (2, "SPAN_KIND_SERVER"), (2, "STATUS_CODE_ERROR")


def records_of(raw: bytes, names: Container[str], *, protobuf: bool) -> list[LogRecord]:
    """Returns the log records of an export.

    Args:
        raw: The body.
        names: Of the attributes that are of use.
        protobuf: Whether the body is in protobuf; else it is in JSON.

    Raises:
        Problem: The body is no export, or it is too large.
    """
    export = _decoded(raw, ExportLogsServiceRequest.FromString if protobuf else _EXPORT.decode)
    return [
        LogRecord(
            event=record.event_name or "",
            nanoseconds=int(record.time_unix_nano or 0) or int(record.observed_time_unix_nano or 0),
            attributes=shared | _scalars(record.attributes, names),
        )
        for shared, record in _parts(export.resource_logs, "scope_logs", "log_records", names)
    ]


def spans_of(raw: bytes, names: Container[str], *, protobuf: bool) -> list[Span]:
    """Returns the spans of an export, as `records_of` does log records."""
    export = _decoded(raw, ExportTraceServiceRequest.FromString if protobuf else _EXPORT.decode)
    return [
        Span(
            identity=_hexadecimal(span.trace_id) + _hexadecimal(span.span_id),
            is_server=span.kind in _SERVER,
            failed=span.status is not None and span.status.code in _FAILED,
            started=int(span.start_time_unix_nano or 0),
            ended=int(span.end_time_unix_nano or 0),
            attributes=shared | _scalars(span.attributes, names),
        )
        for shared, span in _parts(export.resource_spans, "scope_spans", "spans", names)
    ]


def _decoded(raw: bytes, decode: Callable[[bytes], ExportT]) -> ExportT:
    try:
        return decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, DecodeError):
        raise unreadable() from None


def _parts(
    wholes: Sequence[Any] | None, scopes: str, parts: str, names: Container[str]
) -> Iterator[tuple[dict[str, Scalar], Any]]:
    """Yields the log records, or spans, of an export, each with its resource's attributes."""
    number = 0
    for whole in _few(wholes):
        shared = _scalars(whole.resource.attributes if whole.resource else None, names)
        for scope in _few(getattr(whole, scopes)):
            some = _few(getattr(scope, parts))
            number += len(some)
            require_few(number)
            for part in some:
                yield shared, part


def _few(parts: Sequence[Any] | None) -> Sequence[Any]:
    require_few(len(parts or ()))
    return parts or ()


def _hexadecimal(identity: str | bytes | None) -> str:
    return identity.hex() if isinstance(identity, bytes) else (identity or "").lower()


def _scalars(attributes: Sequence[Any] | None, names: Container[str]) -> dict[str, Scalar]:
    scalars: dict[str, Scalar] = {}
    for attribute in _few(attributes):
        if attribute.key in names and (scalar := _scalar(attribute.value)) is not None:
            scalars[attribute.key] = scalar
    return scalars


def _scalar(value: _Value | AnyValue | None) -> Scalar | None:
    """Returns the value of an attribute; None where it is missing, or is no scalar."""
    if isinstance(value, _Value):
        members = (getattr(value, name) for name in _SCALARS)
        return next((member for member in members if member is not None), None)
    name = None if value is None else value.WhichOneof("value")
    return getattr(value, name) if name in _SCALARS else None
