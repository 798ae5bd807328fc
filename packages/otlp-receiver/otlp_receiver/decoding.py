"""Exports decoded: from protobuf by its library, from JSON by structs with the same members."""

from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Annotated, Any

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from api.wire.problem import Problem
from otlp_receiver.record import LogRecord, Scalar, Span, require_few, unreadable
from otlp_receiver.wire import WireError, count_elements, parts_of

# Integers of 64 bits stand there as text; a number is taken as well.
_Digits = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}$(?!\n)")]
_Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | _Digits
_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | str


class _Value(msgspec.Struct, rename="camel", gc=False):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: _Integer | None = None
    double_value: float | str | None = None
    array_value: dict[str, list["_Value"] | None] | None = None


class _Attribute(msgspec.Struct, gc=False):
    key: str = ""
    value: _Value | None = None


class _Source(msgspec.Struct):
    name: str | None = None
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
    parent_span_id: str | None = None
    flags: int | None = None
    kind: int | str | None = None
    start_time_unix_nano: _Nanoseconds | None = None
    end_time_unix_nano: _Nanoseconds | None = None
    attributes: list[_Attribute] | None = None
    status: _Status | None = None


class _Scope(msgspec.Struct, rename="camel"):
    scope: _Source | None = None
    log_records: list[_Record] | None = None
    spans: list[_Span] | None = None


class _Whole(msgspec.Struct, rename="camel"):
    resource: _Source | None = None
    scope_logs: list[_Scope] | None = None
    scope_spans: list[_Scope] | None = None


class _Export(msgspec.Struct, rename="camel"):
    resource_logs: list[_Whole] | None = None
    resource_spans: list[_Whole] | None = None


_EXPORT = msgspec.json.Decoder(_Export)
_SCALARS = ("string_value", "bool_value", "int_value", "double_value")
# Numbers by OTLP's own rule, names by protobuf's JSON.
# Flags tell whether it is known where the parent is, and whether it is in another process.
_PARENT, _LOCAL = 0x300, 0x100
_SERVER, _FAILED = (2, "SPAN_KIND_SERVER"), (2, "STATUS_CODE_ERROR")
_LOGS = ("resource_logs", "scope_logs", "log_records")
_TRACES = ("resource_spans", "scope_spans", "spans")
# Classes of the parts that are built.
_KINDS: Mapping[str, Any] = {
    "resource": Resource,
    "scope": InstrumentationScope,
    "log_records": logs_pb2.LogRecord,
    "spans": trace_pb2.Span,
}
_NUMBERS = {
    field.name: field.number
    for kind in (
        logs_pb2.LogsData,
        logs_pb2.ResourceLogs,
        logs_pb2.ScopeLogs,
        trace_pb2.TracesData,
        trace_pb2.ResourceSpans,
        trace_pb2.ScopeSpans,
    )
    for field in kind.DESCRIPTOR.fields
}
# A smaller part is built within milliseconds, whatever it holds.
_LARGE_PART = 2**16
_MOST_ATTRIBUTES = 2**18


class _JsonExport:
    """An export in JSON, which is built whole: its values were counted with its body."""

    def __init__(self, raw: bytes) -> None:
        self.export: Any = _EXPORT.decode(raw)

    def below(self, whole: object, member: str) -> Iterable[Any]:
        """Returns the parts of a part."""
        parts = getattr(whole, member)
        return parts if isinstance(parts, list) else [parts] if parts else []

    def built(self, parts: Iterable[Any], _member: str) -> Iterable[Any]:
        """Returns parts with their attributes."""
        return parts


class _WireExport:
    """An export in protobuf, of which a single record at a time is built."""

    def __init__(self, raw: bytes) -> None:
        self.export: Any = memoryview(raw)
        self._attributes = 0

    def below(self, whole: memoryview, member: str) -> Iterable[memoryview]:
        """Yields the bytes of the parts of a part."""
        wanted = _NUMBERS[member]
        return (part for number, part in parts_of(whole) if number == wanted)

    def built(self, parts: Iterable[memoryview], member: str) -> Iterator[Any]:
        """Yields parts with their attributes."""
        kind = _KINDS[member]
        for part in parts:
            if len(part) > _LARGE_PART:
                count_elements(part, kind.DESCRIPTOR)
            message = kind.FromString(part)
            self._attributes += len(message.attributes)
            if self._attributes > _MOST_ATTRIBUTES:
                detail = f"an export holds at most {_MOST_ATTRIBUTES} attributes"
                raise Problem("body_too_large", detail)
            yield message


def records_of(raw: bytes, names: Container[str], *, protobuf: bool) -> list[LogRecord]:
    """Returns the log records of an export."""
    with _readable():
        return [
            LogRecord(
                event=record.event_name or "",
                nanoseconds=int(record.time_unix_nano or 0)
                or int(record.observed_time_unix_nano or 0),
                attributes=shared | _scalars(record.attributes, names),
            )
            for shared, _, record in _parts(raw, _LOGS, names, protobuf=protobuf)
        ]


def spans_of(raw: bytes, names: Container[str], *, protobuf: bool) -> list[Span]:
    """Returns the spans of an export, as `records_of` does log records."""
    processes: dict[tuple[str, ...], int] = {}
    with _readable():
        return [
            Span(
                identity=_hexadecimal(span.trace_id) + _hexadecimal(span.span_id),
                parent=_hexadecimal(span.parent_span_id),
                process=processes.setdefault(
                    tuple(f"{name}={value}" for name, value in shared.items()), len(processes)
                ),
                library=library,
                is_server=span.kind in _SERVER,
                is_nested=bool(span.parent_span_id) and (span.flags or 0) & _PARENT == _LOCAL,
                failed=span.status is not None and span.status.code in _FAILED,
                started=int(span.start_time_unix_nano or 0),
                ended=int(span.end_time_unix_nano or 0),
                attributes=shared | _scalars(span.attributes, names),
            )
            for shared, library, span in _parts(raw, _TRACES, names, protobuf=protobuf)
        ]


@contextmanager
def _readable() -> Generator[None]:
    try:
        yield
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, DecodeError, WireError):
        raise unreadable() from None


def _parts(
    raw: bytes, members: tuple[str, str, str], names: Container[str], *, protobuf: bool
) -> Iterator[tuple[dict[str, Scalar], str, Any]]:
    """Yields log records or spans, with their resource's attributes and their library."""
    reader = _WireExport(raw) if protobuf else _JsonExport(raw)
    wholes, scopes, parts = members
    counts = {member: count(1) for member in members}

    def few(parts: Iterable[Any], member: str) -> Iterator[Any]:
        for part in parts:
            require_few(next(counts[member]))
            yield part

    for whole in few(reader.below(reader.export, wholes), wholes):
        shared: dict[str, Scalar] = {}
        for resource in reader.built(reader.below(whole, "resource"), "resource"):
            shared = _scalars(resource.attributes, names)
        for scope in few(reader.below(whole, scopes), scopes):
            libraries = reader.built(reader.below(scope, "scope"), "scope")
            library = next((each.name or "" for each in libraries), "")
            for part in reader.built(few(reader.below(scope, parts), parts), parts):
                yield shared, library, part


def _hexadecimal(identity: str | bytes | None) -> str:
    return identity.hex() if isinstance(identity, bytes) else (identity or "").lower()


def _scalars(attributes: Sequence[Any] | None, names: Container[str]) -> dict[str, Scalar]:
    scalars: dict[str, Scalar] = {}
    require_few(len(attributes or ()))
    for attribute in attributes or ():
        if attribute.key in names and (scalar := _scalar(attribute.value)) is not None:
            scalars[attribute.key] = scalar
    return scalars


def _scalar(value: _Value | AnyValue | None) -> Scalar | None:
    """Returns the value of an attribute, or the single value of its list; None if it has none.

    A captured header is a list: of one where it was sent once.
    """
    if isinstance(value, _Value):
        value, *others = (value.array_value or {}).get("values") or [value]
        members = () if others else (getattr(value, name) for name in _SCALARS)
        return next((member for member in members if member is not None), None)
    value, *others = (value.array_value.values if value else ()) or [value]
    name = value.WhichOneof("value") if value and not others else None
    return getattr(value, name) if value and name in _SCALARS else None
