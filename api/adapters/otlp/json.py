"""OTLP in JSON: an export of logs read, as protobuf's own JSON has it."""

from collections.abc import Container, Iterator, Sequence
from typing import Annotated

import msgspec

from api.adapters.otlp.record import LogRecord, Scalar, require_few, unreadable

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


class _Scope(msgspec.Struct, rename="camel"):
    log_records: list[_Record] | None = None


class _Logs(msgspec.Struct, rename="camel"):
    resource: _Resource | None = None
    scope_logs: list[_Scope] | None = None


class _Export(msgspec.Struct, rename="camel"):
    resource_logs: list[_Logs] | None = None


_EXPORT = msgspec.json.Decoder(_Export)


def records_of_json(raw: bytes, names: Container[str]) -> list[LogRecord]:
    """Returns the log records of an export.

    Args:
        raw: The body.
        names: Of the attributes that are of use.

    Raises:
        Problem: The body is no export of logs, or it is too large.
    """
    try:
        export = _EXPORT.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise unreadable() from None
    records: list[LogRecord] = []
    require_few(len(export.resource_logs or ()))
    for logs in export.resource_logs or ():
        shared = _scalars(logs.resource.attributes if logs.resource else None, names)
        require_few(len(logs.scope_logs or ()))
        for scope in logs.scope_logs or ():
            require_few(len(records) + len(scope.log_records or ()))
            records.extend(_records(scope.log_records or (), shared, names))
    return records


def _records(
    records: Sequence[_Record], shared: dict[str, Scalar], names: Container[str]
) -> Iterator[LogRecord]:
    for record in records:
        yield LogRecord(
            event=record.event_name or "",
            nanoseconds=int(record.time_unix_nano or 0) or int(record.observed_time_unix_nano or 0),
            attributes=shared | _scalars(record.attributes, names),
        )


def _scalars(attributes: Sequence[_Attribute] | None, names: Container[str]) -> dict[str, Scalar]:
    scalars: dict[str, Scalar] = {}
    for attribute in attributes or ():
        if attribute.key in names and attribute.value is not None:
            scalar = attribute.value.scalar()
            if scalar is not None:
                scalars[attribute.key] = scalar
    return scalars
