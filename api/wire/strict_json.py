"""JSON as the service takes it: RFC 8259 without what two readers could read differently."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from api.wire.problem import Fault, Problem, invalid

DEEPEST = 32
_LEAST, _MOST = -(2**63), 2**63 - 1
_MOST_DIGITS = 20
# A longer name is not repeated in an answer.
_LONGEST_NAME = 128
# Sequences that the fast reader cannot see: an escaped colon, and NUL.
_ESCAPED = (rb"\u003a", rb"\u003A", rb"\u0000")


class _OutOfRange:
    """Stands for a number that neither 64 bits nor a double holds."""


_OUT_OF_RANGE = _OutOfRange()


class _DuplicateMemberError(ValueError):
    """An object names a member twice."""


class _DoubtfulError(Exception):
    """The fast reader leaves a document to the strict reader."""


def strict_document(raw: bytes) -> object:
    """Returns the document that a body holds.

    The fast reader's answer is taken where it cannot differ from the strict reader's.

    Raises:
        Problem: It is not JSON, names a member twice, or holds a value that the store cannot.
    """
    try:
        return _undoubted_document(raw)
    except (_DoubtfulError, msgspec.MsgspecError, ValueError, RecursionError):
        document, faults = examined(raw)
    if faults:
        raise invalid(faults)
    return document


def _undoubted_document(raw: bytes) -> object:
    """Returns a document that the strict reader would return alike."""
    if any(escape in raw for escape in _ESCAPED):
        raise _DoubtfulError
    document = msgspec.json.decode(raw)
    # The last of two members of the same name remains, so the text has a colon too many.
    if raw.count(b":") != msgspec.json.encode(document).count(b":") or not plain(document):
        raise _DoubtfulError
    return document


def examined(raw: bytes, *, last_wins: bool = False) -> tuple[Any, Sequence[Fault]]:
    """Returns the document that a body holds, and what in it the store cannot hold.

    Raises:
        Problem: The body is not JSON.
    """
    try:
        document = json.loads(
            raw.decode(),
            object_pairs_hook=dict if last_wins else _members,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_refused_constant,
        )
    except UnicodeDecodeError:
        raise Problem("invalid_json", "the body is not UTF-8") from None
    except _DuplicateMemberError:
        raise Problem("duplicate_member", "an object names the same member twice") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Problem("invalid_json", f"the body is not JSON: {error.msg}, {where}") from None
    except ValueError:
        raise Problem("invalid_json", "NaN and Infinity are not JSON") from None
    except RecursionError:
        return None, [_too_deep("")]
    return document, list(_faults(document, pointer="", room=DEEPEST))


def plain(document: object, *, room: int = DEEPEST) -> bool:
    """Tells whether a document nests, and counts, no further than the store holds."""
    if type(document) is dict:
        children = document.values()
    elif type(document) is list:
        children = document
    else:
        return not (type(document) is int and not _LEAST <= document <= _MOST)
    if room == 0:
        return False
    for child in children:
        kind = type(child)
        if kind is not str and kind is not float and not plain(child, room=room - 1):
            return False
    return True


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _DuplicateMemberError
    return members


def _integer(digits: str) -> int | _OutOfRange:
    # Python reads a number of a million digits in quadratic time.
    if len(digits) > _MOST_DIGITS:
        return _OUT_OF_RANGE
    number = int(digits)
    return number if _LEAST <= number <= _MOST else _OUT_OF_RANGE


def _number(digits: str) -> float | _OutOfRange:
    number = float(digits)
    return number if number - number == 0 else _OUT_OF_RANGE


def _refused_constant(constant: str) -> None:
    raise ValueError(constant)


def _faults(node: object, *, pointer: str, room: int) -> Iterator[Fault]:
    if isinstance(node, str):
        if (detail := _unstorable(node)) is not None:
            yield Fault(at=pointer, code="unstorable_text", detail=detail)
    elif node is _OUT_OF_RANGE:
        yield Fault(
            at=pointer,
            code="number_out_of_range",
            detail="an integer beyond 64 bits, or a number beyond a double",
        )
    elif isinstance(node, dict | list):
        if room == 0:
            yield _too_deep(pointer)
        elif isinstance(node, list):
            for index, child in enumerate(node):
                yield from _faults(child, pointer=f"{pointer}/{index}", room=room - 1)
        else:
            yield from _faults_of_members(node, pointer=pointer, room=room - 1)


def _faults_of_members(node: dict[str, object], *, pointer: str, room: int) -> Iterator[Fault]:
    for name, child in node.items():
        if (detail := _unstorable(name)) is not None:
            yield Fault(at=pointer, code="unstorable_text", detail=f"a member's name: {detail}")
        yield from _faults(child, pointer=child_pointer(pointer, name), room=room)


def child_pointer(pointer: str, name: str) -> str:
    """Returns the JSON pointer (RFC 6901) to a member; to its object, if the name is no text."""
    if len(name) > _LONGEST_NAME or _unstorable(name):
        return pointer
    escaped = name.replace("~", "~0").replace("/", "~1")
    return f"{pointer}/{escaped}"


def _unstorable(string: str) -> str | None:
    """Returns why PostgreSQL cannot hold a string."""
    if "\0" in string:
        return "the character U+0000 cannot be stored"
    try:
        string.encode()
    except UnicodeEncodeError:
        return "half a surrogate pair is no character"
    return None


def _too_deep(pointer: str) -> Fault:
    return Fault(at=pointer, code="too_deep", detail=f"nested deeper than {DEEPEST}")
