"""The rows of a file, in chunks of columns: CSV, NDJSON and Parquet, each also gzipped."""

import csv
import gzip
import shutil
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from cli.imports.faults import ImportFailedError, MapError, RowError, name_list, suggestion

CHUNK_ROWS = 10_000
_NDJSON = (".ndjson", ".jsonl", ".json")
_DELIMITERS = ",;\t"
_GZIP = b"\x1f\x8b"
# A cell of CSV is at most so long; a quote that is never closed ends there, not at the file's end.
_LONGEST_CELL = 2**20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Some successive rows of a file.

    Attributes:
        first_row: The number of the first row, counted from 1.
        size: How many rows these are.
        first_line: The line of the first row, where every row is one line of text.
        progress: Which share of the file is read with these.
        columns: Name -> cells, one of each row, for the columns that were asked for and are there.
    """

    first_row: int
    size: int
    first_line: int | None
    progress: float
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])

    def place(self, index: int) -> str:
        """Returns where a row of the chunk stands in the file."""
        row = f"row {self.first_row + index}"
        return row if self.first_line is None else f"{row} (line {self.first_line + index})"

    def cells(self, column: str) -> Sequence[Any]:
        """Returns the cells of a column; all empty where no row of the chunk names it."""
        cells = self.columns.get(column)
        return [None] * self.size if cells is None else cells


@contextmanager
def opened(path: Path) -> Generator[IO[bytes]]:
    """Opens a file, unpacking gzip where its first bytes are gzip's.

    Raises:
        ImportFailedError: It is cut off, or no gzip after all.
    """
    with path.open("rb") as stream:
        if stream.peek(2)[:2] != _GZIP:
            yield stream
            return
        try:
            with gzip.open(stream) as unpacked:
                yield unpacked  # pyright: ignore[reportReturnType] - it reads like a file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ImportFailedError(f"{path.name} is no whole gzip file: {error}") from error


def file_format(path: Path) -> str:
    """Returns the format of a file by its name: `ndjson`, `parquet` or `csv`."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".parquet"):
        return "parquet"
    return "ndjson" if name.endswith(_NDJSON) else "csv"


def share_read(path: Path, stream: IO[bytes]) -> float:
    """Returns which share of a file is read, below any unpacking."""
    packed: Any = getattr(stream, "fileobj", stream)
    return packed.tell() / max(1, path.stat().st_size)


def chunks(path: Path, named: Mapping[str, str]) -> Iterator[Chunk]:
    """Yields a file's rows.

    Args:
        path: The file; its format is told by its name.
        named: Column -> the member of the map that names it.

    Raises:
        MapError: The file has no such column.
        ImportFailedError: It cannot be read in its format.
    """
    readers: Mapping[str, Callable[[Path, IO[bytes], Mapping[str, str]], Iterator[Chunk]]]
    readers = {"csv": _csv_chunks, "ndjson": _ndjson_chunks, "parquet": _parquet_chunks}
    with opened(path) as stream:
        yield from readers[file_format(path)](path, stream, named)


def header(path: Path) -> list[str]:
    """Returns the names of the columns of a CSV or Parquet file."""
    with opened(path) as stream:
        if file_format(path) == "parquet":
            with _seekable(stream) as whole:
                return _parquet_file(path, whole).schema_arrow.names
        return _csv_header(path, _text_lines(path, stream))[0]


def _require_columns(path: Path, named: Mapping[str, str], present: Sequence[str]) -> None:
    for column, member in named.items():
        if column not in present:
            raise MapError(
                f"{member} names column {column!r}, which {path.name} does not have:"
                f" {suggestion(column, present)}it has {name_list(present)}"
            )


# --- CSV ----------------------------------------------------------------------------------------


def _text_lines(path: Path, stream: IO[bytes]) -> Iterator[str]:
    for number, line in enumerate(stream, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise ImportFailedError(f"{path.name}, line {number}: is no text in UTF-8") from None


def _csv_header(path: Path, lines: Iterator[str]) -> tuple[list[str], str]:
    """Returns the names of the columns, and the sign between them."""
    first = next(lines, "")
    if not first.strip():
        raise ImportFailedError(f"{path.name} is empty: the first line of CSV names the columns")
    delimiter = max(_DELIMITERS, key=first.count)
    return [name.strip() for name in next(csv.reader([first], delimiter=delimiter))], delimiter


def _csv_chunks(path: Path, stream: IO[bytes], named: Mapping[str, str]) -> Iterator[Chunk]:
    lines = _text_lines(path, stream)
    names, delimiter = _csv_header(path, lines)
    _require_columns(path, named, names)
    places = {name: names.index(name) for name in named}
    table = _Csv(path, lines, delimiter)
    row = 1
    while rows := table.rows():
        line = 2 + table.lines - len(rows)
        filled = [cells for cells in rows if cells]
        chunk = Chunk(
            first_row=row,
            size=len(filled),
            # Rows of several lines, and empty lines, shift the count.
            first_line=line if line == row + 1 and len(filled) == len(rows) else None,
            progress=share_read(path, stream),
        )
        _require_width(chunk, filled, width=len(names))
        columns = list(zip(*filled, strict=True)) or [()] * len(names)
        yield replace(chunk, columns={name: columns[place] for name, place in places.items()})
        row += len(filled)


class _Csv:
    """The rows of CSV after its header, in lists of a chunk's length."""

    def __init__(self, path: Path, lines: Iterator[str], delimiter: str) -> None:
        self._path = path
        csv.field_size_limit(_LONGEST_CELL)
        self._reader = csv.reader(lines, delimiter=delimiter)

    @property
    def lines(self) -> int:
        """How many lines were read."""
        return self._reader.line_num

    def rows(self) -> list[list[str]]:
        """Returns the next rows, none at the end."""
        try:
            return list(islice(self._reader, CHUNK_ROWS))
        except csv.Error as error:
            where = f"{self._path.name}, about line {self.lines + 1}"
            raise ImportFailedError(f"{where}: {error}") from error


def _require_width(chunk: Chunk, rows: Sequence[Sequence[str]], *, width: int) -> None:
    for index, cells in enumerate(rows):
        if len(cells) != width:
            raise RowError(
                chunk.place(index), f"has {len(cells)} cells, but the first line names {width}"
            )


# --- NDJSON -------------------------------------------------------------------------------------


def _ndjson_chunks(path: Path, stream: IO[bytes], named: Mapping[str, str]) -> Iterator[Chunk]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    row, line, names = 1, 1, set[str]()
    while lines := list(islice(stream, CHUNK_ROWS)):
        documents: list[Mapping[str, Any]] = []
        for number, text in enumerate(lines, start=line):
            if not text.strip():
                continue
            try:
                documents.append(decode(text))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise _no_object(path, number, text, error) from None
        names.update(*documents)
        yield Chunk(
            first_row=row,
            size=len(documents),
            columns={
                name: [document.get(name) for document in documents]
                for name in named
                if name in names
            },
            first_line=line if len(documents) == len(lines) else None,
            progress=share_read(path, stream),
        )
        row += len(documents)
        line += len(lines)
    _require_columns(path, named, sorted(names))


def _no_object(path: Path, number: int, text: bytes, error: Exception) -> ImportFailedError:
    if number == 1 and text.lstrip().startswith(b"["):
        return ImportFailedError(
            f"{path.name} is one JSON array: NDJSON has an object a line, as `jq -c '.[]'` writes"
        )
    return ImportFailedError(f"{path.name}, line {number}: is no JSON object: {error}")


# --- Parquet ------------------------------------------------------------------------------------


@contextmanager
def _seekable(stream: IO[bytes]) -> Generator[IO[bytes]]:
    """Gives a file that can be read at any place: Parquet begins at its end."""
    if not isinstance(stream, gzip.GzipFile):
        yield stream
        return
    with tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(stream, unpacked)
        unpacked.seek(0)
        yield unpacked


def _parquet_file(path: Path, stream: IO[bytes]) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(stream)
    except (pa.ArrowException, OSError) as error:
        raise ImportFailedError(f"{path.name} is no Parquet file: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _parquet_chunks(path: Path, stream: IO[bytes], named: Mapping[str, str]) -> Iterator[Chunk]:
    with _seekable(stream) as whole:
        file = _parquet_file(path, whole)
        _require_columns(path, named, file.schema_arrow.names)
        total, row = max(1, file.metadata.num_rows), 1
        batches = file.iter_batches(batch_size=CHUNK_ROWS, columns=list(named), use_threads=False)
        try:
            for batch in batches:
                yield Chunk(
                    first_row=row,
                    size=batch.num_rows,
                    columns={name: _python_cells(batch.column(name)) for name in named},
                    first_line=None,
                    progress=(row + batch.num_rows) / total,
                )
                row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise ImportFailedError(
                f"{path.name}, after row {row}: {_first_line(error)}"
            ) from error


def _python_cells(column: Any) -> Sequence[Any]:  # noqa: ANN401 - pyarrow has no types
    """Returns a column's cells as Python's values, None where they are NULL."""
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()
    # By way of integers: pyarrow makes a time four times as slowly, and of nanoseconds by pandas.
    cut = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
    epoch = _EPOCH.replace(tzinfo=None) if column.type.tz is None else _EPOCH
    return [
        None if micros is None else epoch + timedelta(0, 0, micros)
        for micros in cut.cast(pa.int64()).to_pylist()
    ]
