"""The report of a measurement: its options, its rows as a table, and as JSON lines in a file."""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def options(about: str | None, *, sizes: Sequence[int] = ()) -> ArgumentParser:
    """Returns the options that measurements have; `--sizes` where there are several days."""
    parser = ArgumentParser(description=about)
    parser.add_argument("--lines", type=Path, help="JSON lines are appended to this file")
    if sizes:
        parser.add_argument("--sizes", type=numbers, default=sizes, help="events of the day")
    return parser


def numbers(text: str) -> list[int]:
    """Returns numbers that commas part."""
    return [int(number) for number in text.split(",")]


def report(
    rows: Sequence[Any],
    columns: Mapping[str, Callable[[Any], str]],
    *,
    lines: Path | None,
    title: str | None = None,
    caption: str | None = None,
) -> None:
    """Prints the rows, each column by the text of its cells, and appends them to a file."""
    table = Table(title=title, caption=caption)
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(text(row) for text in columns.values()))
    Console(width=220).print(table)
    if lines is not None:
        at = datetime.now(UTC).isoformat()
        with lines.open("a") as file:
            file.writelines(
                json.dumps({"at": at, **asdict(row)}, default=str) + "\n" for row in rows
            )
