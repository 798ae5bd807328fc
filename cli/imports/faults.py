"""Faults of an import: each is a line that names the option, or the row and its member."""

from collections.abc import Iterable
from difflib import get_close_matches

from domain.figures import first_names

_LONGEST_VALUE = 60
_MOST_NAMES = 20
_SECRET = ("user_ref", "properties")


class ImportFailedError(ValueError):
    """A query or file that cannot be imported; the message is a line for the user."""


class RowError(ImportFailedError):
    """A row that is no event; the values of members that name a person are not shown."""

    def __init__(self, row: int, member: str, value: object, rule: str) -> None:
        shown = "value not shown" if member in _SECRET else shown_value(value)
        super().__init__(f"row {row}, {member}, {shown}: {rule}")


def shown_value(value: object) -> str:
    """Returns a value as a message shows it: on a line, and cut where it is long."""
    if value is None:
        return "NULL"
    text = repr(value) if isinstance(value, str) else repr(str(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def name_list(names: Iterable[object]) -> str:
    """Returns names as a message lists them, the first ones where there are many."""
    return first_names([str(name) for name in names], _MOST_NAMES)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns `did you mean X? ` where a known name is close, else nothing."""
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}? " if close else ""
