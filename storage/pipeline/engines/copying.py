"""Copying: rows of an engine into tables of the store, as the text that COPY reads."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, cast

import psycopg
import pyarrow as pa
import pyarrow.compute
from sqlalchemy import Column, Connection, Integer, LargeBinary, Table

from storage.pipeline.engines.engine import Batch, DayEngine

# pyarrow has no types.
Array: TypeAlias = Any
_compute: Any = pyarrow.compute


# Characters that end a field or a row of COPY's text, and the backslash that escapes them.
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def _as_text(column: Column[object], values: Array) -> Array:
    """Returns an engine's values of a column as the texts that COPY reads."""
    if isinstance(column.type, Integer):
        return values.cast(pa.string())
    if isinstance(column.type, LargeBinary):
        # An engine holds bytes as lower-case hex.
        return _concatenated("\\\\x", values)
    return _escaped(values.cast(pa.string()))


def _escaped(array: Array) -> Array:
    """Returns texts that hold any character."""
    if not _compute.any(_compute.match_substring_regex(array, r"[\\\t\n\r]")).as_py():
        return array
    for character, escape in _ESCAPES.items():
        array = _compute.replace_substring(array, pattern=character, replacement=escape)
    return array


def _concatenated(*parts: Array | str) -> Array:
    return _compute.binary_join_element_wise(*parts, "")


def copy_into_store(
    engine: DayEngine, connection: Connection, target: str, table: Table, source: str
) -> int:
    """Copies rows of an engine into a table of the store.

    Arrow writes the text that COPY reads, so that no row becomes an object of Python: 1.0 CPU
    seconds for a million rows of eight columns.

    Args:
        engine: Which holds them.
        target: The name of the table that they are copied into.
        table: Its columns.
        source: The SQL after FROM: rows `r` of those columns, and `x` of the experiment's id.

    Returns:
        The number of rows.
    """
    columns = list(table.columns)
    # A column's name may be a keyword of an engine.
    read = ", ".join(f"{_computed(column)} AS column_{n}" for n, column in enumerate(columns))
    count = 0
    statement = f"COPY {target} ({', '.join(column.name for column in columns)}) FROM STDIN"
    with _cursor(connection).copy(statement.encode()) as copy:
        for batch in engine.batches(f"SELECT {read} FROM {source}"):
            copy.write(_lines(batch, columns))
            count += batch.num_rows
    return count


def _computed(column: Column[object]) -> str:
    if column.name == "experiment_id":
        return "x.experiment_id"
    # Some numbers are sums, of which engines choose different types.
    is_number = isinstance(column.type, Integer)
    return f"CAST(r.{column.name} AS BIGINT)" if is_number else f"r.{column.name}"


def _lines(batch: Batch, columns: Sequence[Column[object]]) -> memoryview:
    texts = [
        _compute.fill_null(_as_text(column, values), "\\N")
        for column, values in zip(columns, batch.columns, strict=True)
    ]
    return _characters(_concatenated(_compute.binary_join_element_wise(*texts, "\t"), "\n"))


def _characters(texts: Array) -> memoryview:
    """Returns texts in a row, which is how Arrow holds them."""
    _, offsets, characters = texts.buffers()
    if characters is None or offsets is None:
        return memoryview(b"")
    starts = memoryview(offsets).cast("i")
    return memoryview(characters)[starts[texts.offset] : starts[texts.offset + len(texts)]]


def copy_rows(connection: Connection, target: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Copies rows of Python into a table, named with its columns."""
    with _cursor(connection).copy(f"COPY {target} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)


def _cursor(connection: Connection) -> "psycopg.Cursor[Any]":
    # The proxy knows its cursor also where the connection has left its pool.
    return cast("psycopg.Cursor[Any]", connection.connection.cursor())
