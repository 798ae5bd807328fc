"""Copying: rows of an engine into tables of the store, as the text that COPY reads."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import psycopg
import pyarrow as pa
import pyarrow.compute
from sqlalchemy import Connection

from storage.log.parquet import Batch
from storage.pipeline.engines.engine import DayEngine

# pyarrow has no types.
Array: TypeAlias = Any
_compute: Any = pyarrow.compute


@dataclass(frozen=True, kw_only=True)
class Field:
    """A column that is copied.

    Attributes:
        sql: The engine's expression for it.
        as_text: Converts its values to the texts that COPY reads.
    """

    sql: str
    as_text: Callable[[Array], Array]


def as_plain_text(array: Array) -> Array:
    """Returns numbers, or texts that hold no character to escape, as COPY reads them."""
    return array.cast(pa.string())


def as_moments(array: Array) -> Array:
    """Returns times, which an engine holds as microseconds since the epoch."""
    return _concatenated(array.cast(pa.timestamp("us")).cast(pa.string()), "+00")


def as_bytes(array: Array) -> Array:
    """Returns bytes, which an engine holds as lower-case hex."""
    return _concatenated("\\\\x", array)


# Characters that end a field or a row of COPY's text, and the backslash that escapes them.
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def as_escaped_text(array: Array) -> Array:
    """Returns texts that hold any character."""
    array = array.cast(pa.string())
    if not _compute.any(_compute.match_substring_regex(array, r"[\\\t\n\r]")).as_py():
        return array
    for character, escape in _ESCAPES.items():
        array = _compute.replace_substring(array, pattern=character, replacement=escape)
    return array


def _concatenated(*parts: Array | str) -> Array:
    return _compute.binary_join_element_wise(*parts, "")


def copy_into_store(
    engine: DayEngine,
    connection: Connection,
    target: str,
    fields: Mapping[str, Field],
    source: str,
) -> int:
    """Copies rows of an engine into a table of the store.

    Arrow writes the text that COPY reads, so that no row becomes an object of Python: 1.0 CPU
    seconds for a million rows of eight columns.

    Args:
        engine: Which holds them.
        target: The table.
        fields: By its columns.
        source: The SQL after FROM.

    Returns:
        The number of rows.
    """
    # Fields have names of their own: a column's name may be a keyword of an engine.
    columns = ", ".join(
        f"{field.sql} AS field_{number}" for number, field in enumerate(fields.values())
    )
    count = 0
    statement = f"COPY {target} ({', '.join(fields)}) FROM STDIN"
    with _cursor(connection).copy(statement.encode()) as copy:
        for batch in engine.batches(f"SELECT {columns} FROM {source}"):
            copy.write(_lines(batch, fields))
            count += batch.num_rows
    return count


def _lines(batch: Batch, fields: Mapping[str, Field]) -> memoryview:
    texts = [
        _compute.fill_null(field.as_text(column), "\\N")
        for field, column in zip(fields.values(), batch.columns, strict=True)
    ]
    return _characters(_concatenated(_compute.binary_join_element_wise(*texts, "\t"), "\n"))


def _characters(texts: Array) -> memoryview:
    """Returns texts one after another, which is how Arrow holds them."""
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
