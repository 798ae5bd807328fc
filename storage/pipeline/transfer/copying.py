"""Copying: rows of an engine into tables of the store, and rows of the store into an engine."""

import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import psycopg
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from sqlalchemy import Connection

from storage.log.parquet import Batch
from storage.pipeline.engines.engine import Columns, DayEngine
from storage.pipeline.engines.input_tables import input_schema, input_table

# pyarrow has no types.
Array: TypeAlias = Any
_compute: Any = pyarrow.compute
_csv: Any = pyarrow.csv

# --- Into the store -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Field:
    """A column that is copied.

    Attributes:
        sql: The engine's expression for it.
        as_text: Converts its values to the texts that COPY reads.
    """

    sql: str
    as_text: Callable[[Array], Array]


def plain_field(sql: str) -> Field:
    """Returns a field of numbers, or of texts that hold no character to escape."""
    return Field(sql=sql, as_text=lambda array: array.cast(pa.string()))


def text_field(sql: str) -> Field:
    """Returns a field of texts that hold any character."""
    return Field(sql=sql, as_text=_escaped)


def moment_field(sql: str) -> Field:
    """Returns a field of times, which the engine holds as microseconds since the epoch."""
    return Field(sql=sql, as_text=_moments)


def bytes_field(sql: str) -> Field:
    """Returns a field of bytes, which the engine holds as lower-case hex."""
    return Field(sql=sql, as_text=lambda array: _concatenated("\\\\x", array))


# Characters that end a field or a row of COPY's text, and the backslash that escapes them.
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def _escaped(array: Array) -> Array:
    array = array.cast(pa.string())
    if not _compute.any(_compute.match_substring_regex(array, r"[\\\t\n\r]")).as_py():
        return array
    for character, escape in _ESCAPES.items():
        array = _compute.replace_substring(array, pattern=character, replacement=escape)
    return array


def _moments(array: Array) -> Array:
    return _concatenated(array.cast(pa.timestamp("us")).cast(pa.string()), "+00")


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
    # Under names of their own: a column's name in the store may be a keyword of an engine.
    columns = ", ".join(
        f"{field.sql} AS field_{number}" for number, field in enumerate(fields.values())
    )
    count = 0
    with open_copy(connection, f"{target} ({', '.join(fields)})") as copy:
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
    with open_copy(connection, target) as copy:
        for row in rows:
            copy.write_row(row)


@contextmanager
def open_copy(connection: Connection, target: str) -> Generator[psycopg.Copy]:
    """Yields a COPY into a table (with its columns) of the connection's transaction."""
    with _cursor(connection).copy(f"COPY {target} FROM STDIN".encode()) as copy:
        yield copy


def _cursor(connection: Connection) -> "psycopg.Cursor[Any]":
    # The proxy knows its cursor also where the connection has left its pool.
    return cast("psycopg.Cursor[Any]", connection.connection.cursor())


# --- Out of the store -----------------------------------------------------------------------------


def copy_from_store(
    engine: DayEngine, connection: Connection, name: str, columns: Columns, sql: str
) -> None:
    """Copies the rows of a statement of the store into a relation of an engine.

    Args:
        connection: To the store, whose transaction may have written what it reads.
        name: The relation's.
        columns: Their names and types, in the order of the statement.
        sql: A SELECT without parameters.
    """
    statement = f"COPY ({sql}) TO STDOUT (FORMAT csv)"
    with tempfile.TemporaryDirectory(prefix="deploy-reward-") as folder:
        lines = Path(folder) / "rows.csv"
        with lines.open("wb") as file, _cursor(connection).copy(statement.encode()) as rows:
            for row in rows:
                file.write(row)
        if lines.stat().st_size:
            with _open_csv(lines, columns) as batches:
                engine.copy(name, batches)
        else:
            engine.copy(name, input_table(columns, ()))


def _open_csv(lines: Path, columns: Columns) -> Any:  # noqa: ANN401 - pyarrow has no types
    return _csv.open_csv(
        lines,
        read_options=_csv.ReadOptions(column_names=list(columns), use_threads=False),
        # A text may hold anything, the end of a line included.
        parse_options=_csv.ParseOptions(newlines_in_values=True),
        convert_options=_csv.ConvertOptions(
            column_types=input_schema(columns),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
