"""OTLP in JSON: an export of logs or of spans read, as protobuf's own JSON has it."""

from collections.abc import Container, Iterator, Sequence
from typing import Annotated

import msgspec

from api.adapters.otlp.record import LogRecord, Scalar, Span, require_few, unreadable

# Integers of 64 bits stand there as text; a number is taken as well.
_Digits = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}$(?!\n)")]
_Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | _Digits
_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | str


class _Value(msgspec.Struct, rename="camel", gc=False):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: _Integer | None = None
    double_value: float | str | None = None

    def scalar(self) -> Scalar | None:
        for value in (self.string_value, self.bool_value, self.int_value, self.double_value):
            if value is not None:
                return value
        return None


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
# Numbers by OTLP's own rule, names by protobuf's.
_SERVER, _FAILED = (2, "SPAN_KIND_SERVER"), (2, "STATUS_CODE_ERROR")


def records_of_json(raw: bytes, names: Container[str]) -> list[LogRecord]:
    """Returns the log records of an export.

    Args:
        raw: The body.
        names: Of the attributes that are of use.

    Raises:
        Problem: The body is no export, or it is too large.
    """
    return [
        LogRecord(
            event=record.event_name or "",
            nanoseconds=int(record.time_unix_nano or 0) or int(record.observed_time_unix_nano or 0),
            attributes=shared | _scalars(record.attributes, names),
        )
        for shared, scope in _scopes(_decoded(raw).resource_logs, names)
        for record in scope.log_records or ()
    ]


def spans_of_json(raw: bytes, names: Container[str]) -> list[Span]:
    """Returns the spans of an export, as `records_of_json` does log records."""
    return [
        Span(
            identity=f"{span.trace_id or ''}{span.span_id or ''}".lower(),
            is_server=span.kind in _SERVER,
            failed=span.status is not None and span.status.code in _FAILED,
            started=int(span.start_time_unix_nano or 0),
            ended=int(span.end_time_unix_nano or 0),
            attributes=shared | _scalars(span.attributes, names),
        )
        for shared, scope in _scopes(_decoded(raw).resource_spans, names)
        for span in scope.spans or ()
    ]


def _decoded(raw: bytes) -> _Export:
    try:
        return _EXPORT.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise unreadable() from None


def _scopes(
    wholes: Sequence[_Whole] | None, names: Container[str]
) -> Iterator[tuple[dict[str, Scalar], _Scope]]:
    """Yields the scopes of an export, each with its resource's attributes."""
    number = 0
    require_few(len(wholes or ()))
    for whole in wholes or ():
        shared = _scalars(whole.resource.attributes if whole.resource else None, names)
        for scopes in (whole.scope_logs or (), whole.scope_spans or ()):
            require_few(len(scopes))
            for scope in scopes:
                number += len(scope.log_records or ()) + len(scope.spans or ())
                require_few(number)
                yield shared, scope


def _scalars(attributes: Sequence[_Attribute] | None, names: Container[str]) -> dict[str, Scalar]:
    scalars: dict[str, Scalar] = {}
    for attribute in attributes or ():
        if attribute.key in names and attribute.value is not None:
            scalar = attribute.value.scalar()
            if scalar is not None:
                scalars[attribute.key] = scalar
    return scalars
