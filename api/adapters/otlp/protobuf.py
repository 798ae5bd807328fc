"""OTLP in protobuf: an export, read field by field without building its messages."""

import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

from api.adapters.otlp.record import LogRecord, Scalar, Span, require_few, unreadable
from api.wire.problem import Problem

PartT = TypeVar("PartT")

# Tags: a field's number and its wire type. Of an export, the parts of a resource, and those of a
# scope, which logs and traces number alike:
_RESOURCES, _RESOURCE, _SCOPES, _PARTS = 0x0A, 0x0A, 0x12, 0x12
# Of Resource and LogRecord:
_RESOURCE_ATTRIBUTES, _ATTRIBUTES, _EVENT_NAME = 0x0A, 0x32, 0x62
_TIME, _OBSERVED_TIME = 0x09, 0x59
# Of Span, and of its Status:
_TRACE_ID, _SPAN_ID, _KIND, _START, _END = 0x0A, 0x12, 0x30, 0x39, 0x41
_SPAN_ATTRIBUTES, _STATUS, _CODE = 0x4A, 0x7A, 0x18
SERVER, FAILED = 2, 2
# Of KeyValue and AnyValue:
_KEY, _VALUE = 0x0A, 0x12
_STRING, _BOOL, _INT, _DOUBLE = 0x0A, 0x10, 0x18, 0x21

_VARINT, _BYTES = 0, 2
_FIXED: Mapping[int, int] = {1: 8, 5: 4}
_LONGEST_VARINT = 10
_NONE = (0, 0)


def records_of_protobuf(raw: bytes, names: Collection[str], *, most_fields: int) -> list[LogRecord]:
    """Returns the log records of an export.

    Args:
        raw: The body.
        names: Of the attributes that are of use.
        most_fields: How many fields may be read.

    Raises:
        Problem: The body is no export, or it is too large.
    """
    export = _Export(raw, names, most_fields)
    return export.parts(export.record)


def spans_of_protobuf(raw: bytes, names: Collection[str], *, most_fields: int) -> list[Span]:
    """Returns the spans of an export, as `records_of_protobuf` does log records."""
    export = _Export(raw, names, most_fields)
    return export.parts(export.span)


class _Export:
    """The bytes of an export; messages are stretches: where they begin, and where they end."""

    def __init__(self, raw: bytes, names: Collection[str], most_fields: int) -> None:
        self._raw = raw
        self._names = {name.encode(): name for name in names}
        self._fields_left = most_fields

    def parts(self, read: Callable[[Mapping[str, Scalar], int, int], PartT]) -> list[PartT]:
        """Returns the log records, or spans, by the method that reads them."""
        try:
            return self._read(read)
        except (IndexError, UnicodeDecodeError):
            raise unreadable() from None

    def _read(self, read: Callable[[Mapping[str, Scalar], int, int], PartT]) -> list[PartT]:
        parts: list[PartT] = []
        for whole in self._messages(_RESOURCES, 0, len(self._raw)):
            shared: dict[str, Scalar] = {}
            for resource in self._messages(_RESOURCE, *whole):
                shared |= self._scalars(_RESOURCE_ATTRIBUTES, *resource)
            for scope in self._messages(_SCOPES, *whole):
                stretches = list(self._messages(_PARTS, *scope))
                require_few(len(parts) + len(stretches))
                parts += [read(shared, *stretch) for stretch in stretches]
        return parts

    def record(self, shared: Mapping[str, Scalar], begin: int, end: int) -> LogRecord:
        """Returns a log record."""
        attributes, members = self._members(_ATTRIBUTES, shared, begin, end)
        return LogRecord(
            event=self._bytes(members, _EVENT_NAME).decode(),
            nanoseconds=self._number(members, _TIME) or self._number(members, _OBSERVED_TIME),
            attributes=attributes,
        )

    def span(self, shared: Mapping[str, Scalar], begin: int, end: int) -> Span:
        """Returns a span."""
        attributes, members = self._members(_SPAN_ATTRIBUTES, shared, begin, end)
        _, status = self._members(_SPAN_ATTRIBUTES, {}, *members.get(_STATUS, _NONE))
        return Span(
            identity=(self._bytes(members, _TRACE_ID) + self._bytes(members, _SPAN_ID)).hex(),
            is_server=members.get(_KIND, _NONE)[0] == SERVER,
            failed=status.get(_CODE, _NONE)[0] == FAILED,
            started=self._number(members, _START),
            ended=self._number(members, _END),
            attributes=attributes,
        )

    def _members(
        self, of_attributes: int, shared: Mapping[str, Scalar], begin: int, end: int
    ) -> tuple[dict[str, Scalar], dict[int, tuple[int, int]]]:
        """Returns the attributes of a message, and where its other fields stand, by their tags."""
        attributes = dict(shared)
        members: dict[int, tuple[int, int]] = {}
        for tag, first, last in self._fields(begin, end):
            if tag == of_attributes:
                self._add_scalar(attributes, first, last)
            else:
                members[tag] = (first, last)
        return attributes, members

    def _bytes(self, members: Mapping[int, tuple[int, int]], tag: int) -> bytes:
        return self._raw[slice(*members.get(tag, _NONE))]

    def _number(self, members: Mapping[int, tuple[int, int]], tag: int) -> int:
        return int.from_bytes(self._bytes(members, tag), "little")

    def _scalars(self, attributes: int, begin: int, end: int) -> dict[str, Scalar]:
        scalars: dict[str, Scalar] = {}
        for attribute in self._messages(attributes, begin, end):
            self._add_scalar(scalars, *attribute)
        return scalars

    def _add_scalar(self, scalars: dict[str, Scalar], begin: int, end: int) -> None:
        name, value = None, None
        for tag, first, last in self._fields(begin, end):
            if tag == _KEY:
                name = self._names.get(self._raw[first:last])
            elif tag == _VALUE:
                value = (first, last)
        if name is not None and value is not None:
            scalar = self._scalar(*value)
            if scalar is not None:
                scalars[name] = scalar

    def _scalar(self, begin: int, end: int) -> Scalar | None:
        scalar: Scalar | None = None
        for tag, first, last in self._fields(begin, end):
            if tag == _STRING:
                scalar = self._raw[first:last].decode()
            elif tag == _BOOL:
                scalar = first != 0
            elif tag == _INT:
                scalar = first - 2**64 if first >= 2**63 else first
            elif tag == _DOUBLE:
                (scalar,) = struct.unpack_from("<d", self._raw, first)
            else:
                scalar = None
        return scalar

    def _messages(self, wanted: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
        number = 0
        for tag, first, last in self._fields(begin, end):
            if tag == wanted:
                number += 1
                require_few(number)
                yield first, last

    def _fields(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yields the fields of a message: its tag and its span; of a varint, its value twice.

        Raises:
            Problem: The bytes are no message, or too many fields were read.
            IndexError: The message is cut off.
        """
        raw = self._raw
        while begin < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise Problem("body_too_large", "the export has too many fields")
            # Nearly all tags and lengths are a single byte.
            tag, begin = (raw[begin], begin + 1) if raw[begin] < 0x80 else self._varint(begin)
            kind = tag & 7
            if kind == _VARINT:
                number, begin = self._varint(begin)
                yield tag, number, number
                continue
            if kind == _BYTES:
                size, begin = (raw[begin], begin + 1) if raw[begin] < 0x80 else self._varint(begin)
            elif kind in _FIXED:
                size = _FIXED[kind]
            else:
                raise unreadable()
            first, begin = begin, begin + size
            if begin > end:
                raise unreadable()
            yield tag, first, begin
        if begin > end:
            raise unreadable()

    def _varint(self, begin: int) -> tuple[int, int]:
        """Returns a number of seven bits a byte, and where it ends."""
        number = 0
        for place in range(_LONGEST_VARINT):
            byte = self._raw[begin + place]
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return number % 2**64, begin + place + 1
        raise unreadable()
