"""A table of a command's output, of rows of text."""

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text


def table(
    rows: Iterable[Sequence[str | Text]],
    *columns: str,
    title: str | None = None,
    left: bool = False,
) -> Table:
    """Returns a table; without columns it has no header.

    Args:
        columns: The names of the columns; a `>` before a name sets its cells to the right.
    """
    drawn = Table(
        title=title, title_justify="left" if left else "center", show_header=bool(columns)
    )
    for column in columns:
        name = column.removeprefix(">")
        drawn.add_column(name, justify="left" if name == column else "right")
    for row in rows:
        drawn.add_row(*row)
    return drawn
