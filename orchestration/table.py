"""A table as Dagster's pages show it."""

import re

import dagster as dg
import pandas as pd

# Each run's record is kept: a table says what to look at, the store holds the rest.
MOST_ROWS = 20
_MARKUP = re.compile(r"[\\`*\[\]<>|]")


def markdown(table: pd.DataFrame, *, beyond: int = 0) -> dg.MarkdownMetadataValue:
    """Returns a table's first rows as Markdown, and how many there are beyond.

    Args:
        table: The rows, the most telling first.
        beyond: How many there are that the table itself leaves out.
    """
    if table.empty:
        return dg.MetadataValue.md("None.")
    shown = table.head(MOST_ROWS).astype(object).where(table.head(MOST_ROWS).notna(), "")
    text = shown.to_markdown(index=False, disable_numparse=True)
    more = beyond + len(table) - len(shown)
    return dg.MetadataValue.md(f"{text}\n\nand {more} more" if more else text)


def plain(text: str) -> str:
    """Returns a text of others, so that Markdown reads nothing into it."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


def unbroken(text: str) -> str:
    """Returns a text that is not broken into lines where a column is narrow."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")
