"""The readers of single cells: text, number, yes or no, and JSON object."""

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from cli.imports.faults import CellError

# What databases and pandas write for NULL in a file of text.
NULL_WORDS = frozenset(
    {"", "NULL", "null", "None", "NaN", "nan", "NA", "N/A", "<NA>", "NaT", r"\N"}
)
_LONGEST_NULL = max(map(len, NULL_WORDS))
_YES = frozenset({"true", "t", "yes", "y", "on"})
_NO = frozenset({"false", "f", "no", "n", "off"})
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
# Beyond it not every whole number is a double.
_EXACT = 2.0**53

Reader = Callable[[Any], Any]


def is_null(cell: object) -> bool:
    """Tells whether a cell is empty: NULL, not a number, or a word for these."""
    if isinstance(cell, str):
        # Most cells are known to be none of the words by their length.
        return (len(cell) <= _LONGEST_NULL or cell[0].isspace()) and cell.strip() in NULL_WORDS
    # Only what is not a number differs from itself.
    return cell is None or (isinstance(cell, float | Decimal) and cell != cell)  # noqa: PLR0124


def read_text(cell: object) -> str | None:
    """Returns a cell as text, None where it is empty.

    Raises:
        CellError: The cell is a list or an object, or holds half a character.
    """
    if type(cell) is int:
        return str(cell)
    if is_null(cell):
        return None
    if isinstance(cell, str):
        if not cell.isascii():
            _require_whole_characters(cell)
        return cell
    if isinstance(cell, float):
        # Whole numbers become doubles where a column of them has gaps.
        whole = cell.is_integer() and abs(cell) < _EXACT
        return str(int(cell)) if whole else repr(cell)
    return _typed_text(cell)


def _typed_text(cell: object) -> str:
    if isinstance(cell, int | Decimal):
        return str(cell).lower() if isinstance(cell, bool) else str(cell)
    if isinstance(cell, datetime | date):
        return cell.isoformat()
    if isinstance(cell, bytes):
        try:
            return cell.decode()
        except UnicodeDecodeError:
            raise CellError("is no text in UTF-8") from None
    raise CellError("is a list or an object, not a single value")


def _require_whole_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CellError("holds half a surrogate pair, which is no character") from None


def number_reader(decimal: str) -> Callable[[Any], float | None]:
    """Returns the reader of numbers that are written with this decimal sign, `.` or `,`."""
    other = "," if decimal == "." else "."

    def read_number(cell: object) -> float | None:
        """Returns a cell as a finite number, None where it is empty."""
        if is_null(cell):
            return None
        if isinstance(cell, bool) or not isinstance(cell, str | int | float | Decimal):
            raise CellError("is no number")
        return _finite(_text_number(cell.strip()) if isinstance(cell, str) else cell)

    def _text_number(text: str) -> float:
        if other in text:
            hint = 'set decimal = ","' if other == "," else 'leave out decimal = ","'
            raise CellError(
                f"is no number with the decimal sign {decimal!r} and without separators of"
                f" thousands; {hint} in the map if {other!r} is the decimal sign"
            )
        if not _NUMBER.fullmatch(plain := text.replace(decimal, ".")):
            raise CellError("is no number")
        return float(plain)

    return read_number


def _finite(number: float | Decimal) -> float:
    try:
        value = float(number)
    except OverflowError:
        value = float("inf")
    if value - value != 0:
        raise CellError("is beyond every number that can be stored")
    return value


def outcome_reader(decimal: str) -> Callable[[Any], bool]:
    """Returns the reader of outcomes: yes or no, in words or numbers; an empty cell is no."""
    read_number = number_reader(decimal)

    def read_outcome(cell: object) -> bool:
        """Returns whether a cell says yes."""
        if isinstance(cell, int):
            return cell != 0
        if is_null(cell):
            return False
        word = cell.strip().lower() if isinstance(cell, str) else None
        if word in _YES or word in _NO:
            return word in _YES
        try:
            return bool(read_number(cell))
        except CellError as fault:
            detail = str(fault) if "decimal" in str(fault) else _NEITHER
            raise CellError(detail) from None

    return read_outcome


_NEITHER = "is neither yes nor no: true, yes, t, y, on or a number, false, no, f, n, off or 0"


def read_object(cell: object) -> dict[str, Any] | None:
    """Returns a cell that holds a JSON object, None where it is empty.

    Raises:
        CellError: It holds something else.
    """
    if is_null(cell):
        return None
    if isinstance(cell, str):
        try:
            cell = msgspec.json.decode(cell)
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            raise CellError("is no JSON object") from None
    if not isinstance(cell, dict):
        raise CellError("is no JSON object")
    return cell
