"""The rows of a file as a table of DuckDB: CSV, NDJSON and Parquet, each also gzipped."""

import csv
import gzip
import re
import shutil
import tempfile
import zlib
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from cli.imports.faults import ImportFailedError, MapError, name_list, suggestion

# The column of the row's number, counted from 1; no file names a column so.
ROW = '"row#"'
_NDJSON = (".ndjson", ".jsonl", ".json")
_DELIMITERS = ",;\t"
_GZIP = b"\x1f\x8b"
_BATCH_ROWS = 10_000
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "512MiB",
    "threads": 1,
    # Extensions are downloaded; those that are needed are built in.
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
# Cuts `.0` off a floating-point number; longer ones may have lost digits, which `.0` shows.
_WHOLE = r"regexp_replace({0}, '^(-?\d{{1,15}})\.0$', '\1')"


def quoted(name: str) -> str:
    """Returns the name of a column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Returns a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def file_format(path: Path) -> str:
    """Returns `csv`, `ndjson` or `parquet`, by a file's name."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".parquet"):
        return "parquet"
    return "ndjson" if name.endswith(_NDJSON) else "csv"


@contextmanager
def opened_table(path: Path, *, decimal: str = ".") -> Generator["Table"]:
    """Opens a file as a table; its copy on disk is gone at the end.

    Raises:
        ImportFailedError: It is no whole gzip file, or cannot be read in its format.
    """
    with tempfile.TemporaryDirectory(prefix="deploy-reward-") as folder:
        # A name of our own: DuckDB takes `*` and `[` of a file's name for a pattern.
        plain = Path(folder) / "file"
        _unpack(path, plain)
        with duckdb.connect(config={**_CONFIG, "temp_directory": f"{folder}/spill"}) as database:
            database.execute("SET enable_progress_bar = false")
            database.execute("SET TimeZone = 'UTC'")
            _confine(database, folder, plain)
            try:
                yield Table(path=path, plain=plain, decimal=decimal, database=database)
            except duckdb.Error as error:
                raise ImportFailedError(f"{path.name}: {_first_line(error)}") from error


def _confine(database: duckdb.DuckDBPyConnection, folder: str, plain: Path) -> None:
    """Leaves a database a file and its own folder, so that no SQL reads or writes anything else."""
    database.execute(f"SET allowed_paths = [{literal(str(plain.resolve()))}]")
    database.execute(f"SET allowed_directories = [{literal(folder)}]")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")


def _unpack(path: Path, plain: Path) -> None:
    with path.open("rb") as stream:
        is_packed = stream.read(2) == _GZIP
    if not is_packed:
        plain.symlink_to(path.absolute())
        return
    try:
        with gzip.open(path) as packed, plain.open("wb") as copy:
            shutil.copyfileobj(packed, copy)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ImportFailedError(f"{path.name} is no whole gzip file: {error}") from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file, and the database that reads it; once loaded, its table `cells` has texts alone."""

    path: Path
    plain: Path
    decimal: str
    database: duckdb.DuckDBPyConnection

    def names(self) -> list[str]:
        """Returns the names of the columns; of NDJSON those that any row has."""
        kind = file_format(self.path)
        if kind == "csv":
            return self._header()[0]
        if kind == "parquet":
            return [name for name, _ in self._parquet_columns()]
        return sorted(self._column(f"SELECT DISTINCT unnest(json_keys(json)) FROM {self._lines}"))

    def load(self, named: Mapping[str, str], identifiers: Collection[str] = ()) -> None:
        """Fills the table `cells` with the named columns.

        Args:
            identifiers: Those of which a number that may have lost digits is written with an
                exponent.

        Raises:
            MapError: The file has no such column.
            ImportFailedError: It cannot be read in its format.
        """
        kind = file_format(self.path)
        if kind == "ndjson":
            self._load_lines(named, identifiers)
        elif kind == "csv":
            self._load_csv(named)
        else:
            self._load_parquet(named, identifiers)

    def rows(self) -> int:
        """Returns how many rows were loaded."""
        return self._column("SELECT count(*) FROM cells")[0]

    def cell(self, row: int, column: str) -> str | None:
        """Returns the text of a cell."""
        cell = self._column(f"SELECT {quoted(column)} FROM cells WHERE {ROW} = {row}")[0]
        return "" if cell is None and file_format(self.path) == "csv" else cell

    def place(self, row: int) -> str:
        """Returns where a row stands in the file."""
        kind = file_format(self.path)
        if kind == "parquet":
            return f"row {row}"
        with self.plain.open("rb") as stream:
            lines = [number for number, line in enumerate(stream, start=1) if line.strip()]
        first = 1 if kind == "csv" else 0
        # A cell of several lines shifts the count.
        if len(lines) != self.rows() + first:
            return f"row {row}"
        return f"row {row} (line {lines[row - 1 + first]})"

    def batches(self, select: str) -> Iterator[Any]:
        """Yields the result of a statement as record batches of pyarrow."""
        yield from self.database.sql(select).to_arrow_reader(_BATCH_ROWS)

    def _column(self, select: str) -> list[Any]:
        return [row[0] for row in self.query(select)]

    def query(self, select: str, *values: object) -> list[Any]:
        """Returns the rows of a statement, also while the batches of another are read."""
        return self.database.cursor().execute(select, list(values)).fetchall()

    def _create(self, cells: Mapping[str, str], source: str) -> None:
        columns = [f"row_number() OVER () AS {ROW}"]
        columns += [f"{cell} AS {quoted(name)}" for name, cell in cells.items()]
        self.database.execute(f"CREATE TABLE cells AS SELECT {', '.join(columns)} FROM {source}")

    def _require(self, named: Mapping[str, str], present: Sequence[str]) -> None:
        for column, member in named.items():
            if column not in present:
                raise MapError(
                    f"{member} names column {column!r}, which {self.path.name} does not have:"
                    f" {suggestion(column, present)}it has {name_list(present)}"
                )

    # --- CSV ------------------------------------------------------------------------------------

    def _header(self) -> tuple[list[str], str]:
        """Returns the names of the columns, and the sign between them."""
        with self.plain.open(encoding="utf-8-sig", errors="replace") as stream:
            first = stream.readline()
        if not first.strip():
            raise ImportFailedError(
                f"{self.path.name} is empty: the first line of CSV names the columns"
            )
        delimiter = max(_DELIMITERS, key=first.count)
        return [name.strip() for name in next(csv.reader([first], delimiter=delimiter))], delimiter

    def _load_csv(self, named: Mapping[str, str]) -> None:
        names, delimiter = self._header()
        self._require(named, names)
        columns = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(len(names)))
        try:
            self._create(
                {name: f"c{names.index(name)}" for name in named},
                f"read_csv({literal(str(self.plain))}, auto_detect = false, header = true,"
                f" delim = {literal(delimiter)}, quote = '\"', escape = '\"',"
                f" columns = {{{columns}}},"
                " store_rejects = true)",
            )
        except duckdb.InvalidInputException as error:
            raise ImportFailedError(
                f"{self.path.name} is no CSV that can be read: its lines end in different ways, or"
                " a quote stands where none may: write all lines alike, as `dos2unix` does"
            ) from error
        rejects = self.database.execute(
            "SELECT line, error_type, error_message FROM reject_errors ORDER BY line LIMIT 1"
        ).fetchall()
        for line, kind, message in rejects:
            cells = re.search(r"Found: (\d+)", message)
            detail = {"INVALID ENCODING": "is no text in UTF-8"}.get(kind, message)
            if cells is not None:
                detail = f"has {cells[1]} cells, but the first line names {len(names)}"
            raise ImportFailedError(f"{self.path.name}, line {line}: {detail}")

    # --- NDJSON ---------------------------------------------------------------------------------

    @property
    def _lines(self) -> str:
        return f"read_ndjson_objects({literal(str(self.plain))})"

    def _load_lines(self, named: Mapping[str, str], identifiers: Collection[str]) -> None:
        # A JSON pointer writes any name; its cells are read in a single pass.
        pointers = [name.replace("~", "~0").replace("/", "~1") for name in named]
        # `a.b` is the member of that name, or `b` of the member `a`.
        both = [*pointers, *(pointer.replace(".", "/") for pointer in pointers)]
        paths = ", ".join(literal(f"/{pointer}") for pointer in both)
        objects = "json_type(json) = 'OBJECT'"
        cells: dict[str, str] = {}
        for number, name in enumerate(named, start=1):
            raw = f"raw[{number}]"
            if "." in name:
                raw = f"coalesce({raw}, raw[{number + len(named)}])"
            cells[name] = _json_text(raw, self.decimal)
            if name in identifiers:
                cells[name] = _exact_json_text(raw, name, cells[name])
        try:
            self._create(
                cells,
                f"(SELECT json, CASE WHEN {objects} THEN json_extract(json, [{paths}])"
                f" ELSE error('no object') END AS raw FROM {self._lines})"
                if named
                else f"(SELECT 1 FROM {self._lines} WHERE {objects} OR error('no object'))",
            )
        except duckdb.InvalidInputException as error:
            raise self._broken_line(error) from error
        counts = ", ".join(["1", *(f"count({quoted(name)})" for name in named)])
        (_, *filled) = self.database.execute(f"SELECT {counts} FROM cells").fetchall()[0]
        if not all(filled):
            self._require(named, self.names())

    def load_documents(self) -> None:
        """Fills the table `cells` with each line's own text, as column `json`.

        Raises:
            ImportFailedError: A line is no JSON object; it is named.
        """
        objects = "json_type(json) = 'OBJECT'"
        try:
            self._create(
                {"json": f"CASE WHEN {objects} THEN json ELSE error('no object') END"}, self._lines
            )
        except duckdb.InvalidInputException as error:
            raise self._broken_line(error) from error

    def _broken_line(self, error: Exception) -> ImportFailedError:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        with self.plain.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    if line.strip():
                        decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as broken:
                    if number == 1 and line.lstrip().startswith(b"["):
                        return ImportFailedError(
                            f"{self.path.name} is a single JSON array: NDJSON has an object a line,"
                            " as `jq -c '.[]'` writes"
                        )
                    return ImportFailedError(
                        f"{self.path.name}, line {number}: is no JSON object: {broken}"
                    )
        return ImportFailedError(f"{self.path.name}: {_first_line(error)}")

    # --- Parquet --------------------------------------------------------------------------------

    def _parquet_columns(self) -> list[tuple[str, str]]:
        try:
            described = self.database.execute(
                f"DESCRIBE SELECT * FROM read_parquet({literal(str(self.plain))})"
            ).fetchall()
        except duckdb.InvalidInputException as error:
            raise ImportFailedError(
                f"{self.path.name} is no Parquet file: {_first_line(error)}"
            ) from error
        return [(row[0], row[1]) for row in described]

    def _load_parquet(self, named: Mapping[str, str], identifiers: Collection[str]) -> None:
        source = f"read_parquet({literal(str(self.plain))})"
        types = dict(self._parquet_columns())
        columns = {name: quoted(name) for name in types}
        for name in named:
            head, *members = name.split(".")
            if name not in types and types.get(head, "").startswith("STRUCT"):
                nested = quoted(head) + "".join(f"[{literal(member)}]" for member in members)
                with suppress(duckdb.BinderException):
                    (types[name],) = self._column(
                        f"SELECT any_value(typeof({nested})) FROM {source}"
                    )
                    columns[name] = nested
        self._require(named, [*columns])
        cells: dict[str, str] = {}
        for name in named:
            column, kind = columns[name], types[name]
            cells[name] = (
                self._text_of_bytes(name, column, source)
                if kind == "BLOB"
                else _typed_text(column, kind, self.decimal)
            )
            if kind == "FLOAT" and name in identifiers:
                rounded = f"WHEN abs({column}) >= {1 << 24} THEN format('{{:.8e}}', {column})"
                cells[name] = f"CASE {rounded} ELSE {cells[name]} END"
        self._create(cells, source)

    def _text_of_bytes(self, name: str, column: str, source: str) -> str:
        uuid = f"octet_length({column}) = 16 AND hex({column})[13] BETWEEN '1' AND '8'"
        uuid += f" AND hex({column})[17] BETWEEN '8' AND 'B'"
        text = f"coalesce(NOT contains(try(decode({column})), chr(0)), false)"
        ((are_uuids, are_texts),) = self.query(
            f"SELECT bool_and({uuid}), bool_and({text}) FROM {source} WHERE {column} IS NOT NULL"
        )
        if are_uuids:
            return f"CAST(CAST({column} AS UUID) AS VARCHAR)"
        if are_texts is False:
            raise ImportFailedError(
                f"{self.path.name}: column {name!r} holds bytes that are neither text nor UUIDs of"
                " 16 bytes: export it as text"
            )
        return f"decode({column})"


def _typed_text(column: str, kind: str, decimal: str) -> str:
    """Returns the text of a typed column's cell, as a file of text would write it."""
    if kind == "VARCHAR":
        return column
    if kind.startswith(("STRUCT", "MAP")) or kind.endswith("]"):
        return f"CAST(to_json({column}) AS VARCHAR)"
    text = f"CAST({column} AS VARCHAR)"
    if kind in ("FLOAT", "DOUBLE"):
        # Whole numbers become doubles where a column of them has gaps.
        text = _WHOLE.format(text)
    if decimal == "," and kind.startswith(("FLOAT", "DOUBLE", "DECIMAL")):
        text = f"replace({text}, '.', {literal(decimal)})"
    return text


def _json_text(raw: str, decimal: str) -> str:
    """Returns the text of a JSON value: of a string its own, of a whole number its digits."""
    number = _WHOLE.format(f"{raw} ->> '$'")
    if decimal == ",":
        number = f"replace({number}, '.', ',')"
    is_number = f"json_type({raw}) IN ('DOUBLE', 'UBIGINT', 'BIGINT')"
    return f"CASE WHEN {is_number} THEN {number} ELSE {raw} ->> '$' END"


def _exact_json_text(raw: str, name: str, text: str) -> str:
    """Returns the text of an identifier, with an exponent where the line writes it so."""
    member = literal(rf'"{re.escape(name.rsplit(".", maxsplit=1)[-1])}"\s*:\s*-?[0-9.]+[eE]')
    has_exponent = f"json_type({raw}) = 'DOUBLE' AND regexp_matches(json, {member})"
    number = f"format('{{:.16e}}', CAST({raw} ->> '$' AS DOUBLE))"
    return f"CASE WHEN {has_exponent} THEN {number} ELSE {text} END"
