"""OTLP in protobuf: an export of logs, read field by field without building its messages."""

import struct
from collections.abc import Collection, Iterator, Mapping

from api.adapters.otlp.record import LogRecord, Scalar, require_few, unreadable
from api.wire.problem import Problem

# Tags: a field's number and its wire type. Of ExportLogsServiceRequest, ResourceLogs, ScopeLogs:
_RESOURCE_LOGS, _RESOURCE, _SCOPE_LOGS, _LOG_RECORDS = 0x0A, 0x0A, 0x12, 0x12
# Of Resource and LogRecord:
_RESOURCE_ATTRIBUTES, _ATTRIBUTES, _EVENT_NAME = 0x0A, 0x32, 0x62
_TIME, _OBSERVED_TIME = 0x09, 0x59
# Of KeyValue and AnyValue:
_KEY, _VALUE = 0x0A, 0x12
_STRING, _BOOL, _INT, _DOUBLE = 0x0A, 0x10, 0x18, 0x21

_VARINT, _BYTES = 0, 2
_FIXED: Mapping[int, int] = {1: 8, 5: 4}
_LONGEST_VARINT = 10


def records_of_protobuf(raw: bytes, names: Collection[str], *, most_fields: int) -> list[LogRecord]:
    """Returns the log records of an export.

    Args:
        raw: The body.
        names: Of the attributes that are of use.
        most_fields: How many fields may be read.

    Raises:
        Problem: The body is no export of logs, or it is too large.
    """
    try:
        return _Export(raw, names, most_fields).records()
    except (IndexError, UnicodeDecodeError):
        raise unreadable() from None


class _Export:
    """The bytes of an export; messages are spans of it: where they begin, and where they end."""

    def __init__(self, raw: bytes, names: Collection[str], most_fields: int) -> None:
        self._raw = raw
        self._names = {name.encode(): name for name in names}
        self._fields_left = most_fields

    def records(self) -> list[LogRecord]:
        records: list[LogRecord] = []
        for logs in self._messages(_RESOURCE_LOGS, 0, len(self._raw)):
            shared: dict[str, Scalar] = {}
            for resource in self._messages(_RESOURCE, *logs):
                shared |= self._scalars(_RESOURCE_ATTRIBUTES, *resource)
            for scope in self._messages(_SCOPE_LOGS, *logs):
                spans = list(self._messages(_LOG_RECORDS, *scope))
                require_few(len(records) + len(spans))
                records += [self._record(shared, *span) for span in spans]
        return records

    def _record(self, shared: Mapping[str, Scalar], begin: int, end: int) -> LogRecord:
        event, time, observed = "", 0, 0
        attributes = dict(shared)
        for tag, first, last in self._fields(begin, end):
            if tag == _ATTRIBUTES:
                self._add_scalar(attributes, first, last)
            elif tag == _EVENT_NAME:
                event = self._raw[first:last].decode()
            elif tag == _TIME:
                time = int.from_bytes(self._raw[first:last], "little")
            elif tag == _OBSERVED_TIME:
                observed = int.from_bytes(self._raw[first:last], "little")
        return LogRecord(event=event, nanoseconds=time or observed, attributes=attributes)

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
