"""A table as Dagster's pages show it."""

import re
from collections.abc import Mapping, Sequence

import dagster as dg

# Each with the same columns.
Rows = Sequence[Mapping[str, str]]
# Each run's record is kept: a table says what to look at, the store holds the rest.
MOST_ROWS = 20
_MARKUP = re.compile(r"[\\`*\[\]<>|]")


def markdown(rows: Rows, *, beyond: int = 0) -> dg.MarkdownMetadataValue:
    """Returns a table's first rows as Markdown, and how many there are beyond.

    Args:
        rows: The rows, the most telling first.
        beyond: How many there are that the table itself leaves out.
    """
    if not rows:
        return dg.MetadataValue.md("None.")
    shown = [list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows[:MOST_ROWS])]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in shown)
    more = beyond + len(rows) - len(rows[:MOST_ROWS])
    return dg.MetadataValue.md(f"{text}\n\nand {more} more" if more else text)


def plain(text: str) -> str:
    """Returns a text of others, so that Markdown reads nothing into it."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


def unbroken(text: str) -> str:
    """Returns a text that is not broken into lines where a column is narrow."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")
