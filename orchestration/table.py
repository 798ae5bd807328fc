"""A table as Dagster's pages show it."""

import dagster as dg
import pandas as pd

# Each run's record is kept: a table says what to look at, the store holds the rest.
MOST_ROWS = 20


def markdown(table: pd.DataFrame) -> dg.MarkdownMetadataValue:
    """Returns a table's first rows as Markdown, and how many there are beyond."""
    if table.empty:
        return dg.MetadataValue.md("None.")
    shown = table.head(MOST_ROWS).astype(object).where(table.head(MOST_ROWS).notna(), "")
    text = shown.to_markdown(index=False)
    beyond = len(table) - len(shown)
    return dg.MetadataValue.md(f"{text}\n\nand {beyond} more" if beyond else text)
