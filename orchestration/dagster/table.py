"""A table as Dagster's pages show it."""

import re
from collections.abc import Mapping, Sequence, Sized
from typing import Any, TypeGuard

import dagster as dg

from orchestration.outbound.links import experiment_link

# All rows have the same columns.
Rows = Sequence[Mapping[str, str]]
# Each run's record is kept: a table says what to look at, the store holds the rest.
MOST_ROWS = 20
_MARKUP = re.compile(r"[\\`*\[\]<>|]")


def markdown(rows: Rows, *, beyond: int = 0) -> dg.MarkdownMetadataValue:
    """Returns a table's first rows as Markdown, a line each, and how many there are beyond.

    Dagster gives a value some 270 pixels, in which lines are broken and a table would be cut off.

    Args:
        rows: The rows, the most telling first; of a column without a name the value alone is shown.
    """
    if not rows:
        return dg.MetadataValue.md("None.")
    lines = [f"- {_line(*row.items())}" for row in rows[:MOST_ROWS]]
    more = beyond + len(rows) - len(rows[:MOST_ROWS])
    return dg.MetadataValue.md("\n".join([*lines, *([f"\nand {more} more"] if more else [])]))


def _line(first: tuple[str, str], *others: tuple[str, str]) -> str:
    words = [f"{name} {value}".strip() for name, value in others if value]
    return f"{first[1]}: {'; '.join(words)}" if words else first[1]


def plain(text: str) -> str:
    """Returns a text of others, so that Markdown reads nothing into it."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


def filled(**entries: Sized) -> dict[str, Any]:
    """Returns the entries that hold anything: a check's page hides each behind a click."""
    return {
        name: markdown(entry) if _is_table(entry) else entry
        for name, entry in entries.items()
        if len(entry)
    }


def _is_table(entry: Sized) -> TypeGuard[Rows]:
    return isinstance(entry, list) and isinstance(entry[0], dict)


def pages(ids: Sequence[str]) -> Rows:
    """Returns a table of links to experiments."""
    return [{"experiment": experiment_link(experiment_id)} for experiment_id in ids]
