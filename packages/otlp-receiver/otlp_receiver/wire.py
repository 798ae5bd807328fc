"""Protobuf on the wire: the parts of a message, counted before any of them is built."""

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor

from api.wire.problem import Problem

# SDKs limit a record to 128 attributes; a part of an export has 10,000 records at most.
_MOST_ELEMENTS = 2**15
# The wire types without a length of their own: 64 bits, and 32 bits.
_FIXED = {1: 8, 5: 4}


class WireError(ValueError):
    """Bytes that are no message."""


def parts_of(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yields number and bytes of each field that has a length: messages, texts and lists."""
    place, end = 0, len(message)
    for _ in range(_MOST_ELEMENTS):
        if place == end:
            return
        tag, place = _varint(message, place)
        kind, begin = tag & 7, place
        if kind == 2:
            size, begin = _varint(message, place)
            place = begin + size
        elif kind == 0:
            _, place = _varint(message, place)
        elif kind in _FIXED:
            place += _FIXED[kind]
        else:
            raise WireError
        if place > end:
            raise WireError
        if kind == 2:
            yield tag >> 3, message[begin:place]
    raise _too_many()


def count_elements(message: memoryview, kind: Descriptor, count: int = 0) -> int:
    """Returns the number of messages inside a message, however deep, and `count` with them."""
    for number, part in parts_of(message):
        field = kind.fields_by_number.get(number)
        if field is not None and field.message_type is not None:
            if count == _MOST_ELEMENTS:
                raise _too_many()
            count = count_elements(part, field.message_type, count + 1)
    return count


def _too_many() -> Problem:
    return Problem("body_too_large", f"a part of an export holds at most {_MOST_ELEMENTS} elements")


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """Returns a number, and where it ends."""
    value = shift = 0
    while shift < 70 and place < len(message):
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise WireError
