"""Faults of an import: each is a line that names the member, or the row, column and cell."""

from collections.abc import Iterable
from difflib import get_close_matches

from domain.figures import first_names

_LONGEST_CELL = 60
_MOST_NAMES = 20


class ImportFailedError(ValueError):
    """A file or map that cannot be imported; the message is a line for the user."""


class MapError(ImportFailedError):
    """A map that cannot be read, or that does not fit the file; the message names the member."""


class RowError(ImportFailedError):
    """A row that is no event.

    Args:
        row: Where the row stands, such as `row 3 (line 4)`.
        is_secret: Whether the cell names a person and must not be shown.
    """

    def __init__(
        self,
        row: str,
        reason: str,
        *,
        column: str | None = None,
        cell: object = None,
        is_secret: bool = False,
    ) -> None:
        where = row
        if column is not None:
            where += f", column {column!r}"
            where += ", cell not shown" if is_secret else f", cell {shown_cell(cell)}"
        super().__init__(f"{where}: {reason}")


def shown_cell(cell: object) -> str:
    """Returns a cell as a message shows it: on a line, and cut where it is long."""
    if cell is None:
        return "NULL"
    text = repr(cell) if isinstance(cell, str) else repr(str(cell))
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"


def name_list(names: Iterable[object]) -> str:
    """Returns names as a message lists them, the first ones where there are many."""
    return first_names([str(name) for name in names], _MOST_NAMES)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns `did you mean X? ` where a known name is close, else nothing."""
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}? " if close else ""
