"""A user's SELECT over files of a folder, and its rows as events, read by a confined DuckDB."""

import re
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import duckdb

from api.wire.event_batch import EVENT_MEMBERS
from cli.imports.faults import ImportFailedError, RowError, name_list, suggestion

# A router makes the token; no file has it.
MEMBERS = EVENT_MEMBERS - {"assignment"}
ARM = "arm"
_REQUIRED = ("event", "session_id", "occurred_at")
IDENTIFIERS = ("session_id", "event_id", "user_ref")
_OBJECTS = ("flags", "properties")
_NDJSON = (".ndjson", ".jsonl", ".json")
# The columns of a query whose rows are events as JSON.
_DOCUMENTS = {"json": "JSON"}
_BATCH_ROWS = 10_000
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "512MiB",
    "threads": 1,
    # Extensions are downloaded; those that are needed are built in.
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # A table's name is no variable of this program.
    "python_enable_replacements": False,
}
# Numbers that floating point, or a spreadsheet, wrote as text.
_ROUNDED = r"[+-]?\d([.,]\d+)?[eE]\+\d{2,}|[+-]?\d[.,]\d+[eE]\d+|-?\d{16,}[.,]0+"
# From here on the type does not have every whole number.
_EXACT = {"FLOAT": 1 << 24, "DOUBLE": 1 << 53}


query_option = click.option(
    "--query", help="The SELECT itself, over files of the working directory."
)


def quoted(name: str) -> str:
    """Returns the name of a column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Returns a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def query_result(file: Path | None, query: str | None) -> Generator["QueryResult"]:
    """Runs a query and gives its rows; they are gone at the end.

    Args:
        file: A `.sql` file with a SELECT, or a file of events. Its folder is all that is read.
        query: The SELECT itself, over files of the working directory, where there is no file.

    Raises:
        ImportFailedError: It is no single SELECT, or DuckDB cannot run it.
    """
    folder = Path() if file is None else file.parent
    name = "the query" if file is None else file.name
    with (
        tempfile.TemporaryDirectory(prefix="deploy-reward-") as spill,
        duckdb.connect(config={**_CONFIG, "temp_directory": spill}) as database,
    ):
        _confine(database, [str(folder.resolve()), spill])
        try:
            # DuckDB takes a relative name for one of the working directory.
            with chdir(folder):
                if query is None and not name.lower().endswith(".sql"):
                    select = _select_of_events(database, name)
                else:
                    select = _single_select(query or Path(name).read_text())
                database.execute(f"CREATE TABLE result AS {select}")
            yield QueryResult(name=name, database=database)
        except (duckdb.Error, UnicodeDecodeError) as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise ImportFailedError(f"{name}: {' '.join(filter(None, lines[:6]))}") from error


def _confine(database: duckdb.DuckDBPyConnection, folders: list[str]) -> None:
    """Leaves a database some folders, so that no SQL reads or writes anything else."""
    database.execute("SET enable_progress_bar = false")
    database.execute("SET TimeZone = 'UTC'")
    database.execute(f"SET allowed_directories = [{', '.join(map(literal, folders))}]")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")


def _single_select(text: str) -> str:
    """Returns a query."""
    statements = duckdb.extract_statements(text)
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise ImportFailedError("the query must be a single SELECT")
    return statements[0].query


def _select_of_events(database: duckdb.DuckDBPyConnection, name: str) -> str:
    """Returns the SELECT of a file whose columns, or members, are called like an event's."""
    # `*`, `?` and `[` are a pattern's.
    file = literal(re.sub(r"([*?\[])", r"[\1]", name))
    plain = name.lower().removesuffix(".gz")
    if plain.endswith(_NDJSON):
        return f"SELECT json FROM read_ndjson_objects({file})"
    is_parquet = plain.endswith(".parquet")
    # Read as numbers, ids of hexadecimal digits would be those of others: 12e3 and 0x1F.
    csv = f"read_csv({file}, all_varchar = true, sample_size = -1)"
    source = f"read_parquet({file})" if is_parquet else csv
    names = [row[0] for row in database.execute(f"DESCRIBE FROM {source}").fetchall()]
    _require_members(name, names)
    return f"SELECT {', '.join(quoted(each) for each in names if each in MEMBERS)} FROM {source}"


def _require_members(source: str, names: list[str]) -> None:
    missing = [member for member in _REQUIRED if member not in names]
    if missing:
        raise ImportFailedError(
            f"{source} has no column {name_list(missing)}: it has {name_list(names)};"
            " write a query that gives its columns the names of an event's members: docs/import.md"
        )


def _moment(column: str, kind: str, text: str) -> str:
    """Returns a time's SQL as JSON has it; a clock without a zone is UTC's."""
    clock = column
    if kind in ("VARCHAR", "JSON") or kind.startswith("ENUM"):
        # Snowflake writes a space before the zone.
        clock = f"regexp_replace({text}, ' (Z|[+-]\\d\\d)', '\\1')"
    if clock != column or kind in ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"):
        clock = f"timezone('UTC', TRY_CAST({clock} AS TIMESTAMPTZ))"
    clock = f"CAST(TRY_CAST({clock} AS TIMESTAMP) AS VARCHAR)"
    return f"coalesce(replace({clock}, ' ', 'T') || 'Z', {text})"


@dataclass(frozen=True, kw_only=True)
class QueryResult:
    """The rows of a query, in its table `result`."""

    name: str
    database: duckdb.DuckDBPyConnection

    def query(self, select: str, *values: object) -> list[Any]:
        """Returns the rows of a statement, also while the batches of another are read."""
        return self.database.cursor().execute(select, list(values)).fetchall()

    @property
    def types(self) -> dict[str, str]:
        """The types of the columns."""
        return {row[0]: row[1] for row in self.query("DESCRIBE result")}

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.query("SELECT count(*) FROM result")[0][0]

    def drop(self) -> None:
        """Frees the memory of the rows."""
        self.database.execute("DROP VIEW events; DROP TABLE result")

    def name_members(self, commits: Mapping[str, str]) -> None:
        """Makes the view `events`: the rows as JSON, with unit, commit and time.

        Args:
            commits: Word of the column `arm` -> the commit that it stands for.

        Raises:
            ImportFailedError: A column is no member of an event.
            RowError: An identifier has lost digits.
        """
        types = self.types
        if types == _DOCUMENTS:
            values = {name: f"json ->> '$.{name}'" for name in MEMBERS}
            event, where = "json", "true"
            for member in IDENTIFIERS:
                self._require_exact(member, "VARCHAR", values[member])
        else:
            self._require_columns(types, commits)
            values = {name: self._value(name, kind) for name, kind in types.items()}
            where = "true"
            if commits:
                cases = " ".join(
                    f"WHEN {literal(arm)} THEN {literal(commit)}" for arm, commit in commits.items()
                )
                arm = f"trim({values.pop(ARM)})"
                values["commit"] = f"CASE {arm} {cases} END"
                # An outcome need not name the arm of its unit again.
                where = f"coalesce({arm}, '') IN ('', {', '.join(map(literal, commits))})"
            pairs = ", ".join(f"{literal(name)}, {value}" for name, value in values.items())
            event = f"json_object({pairs})"
        if "event_id" in values:
            self._require_ids(values["event"], values["event_id"], where)
        commit = values.get("commit", "NULL")
        self.database.execute(
            f"CREATE VIEW events AS SELECT rowid + 1 AS row, {event} AS event,"
            f" {values['session_id']} AS unit, lower({commit}) AS commit,"
            f" {values['occurred_at']} AS moment FROM result WHERE {where}"
        )

    def batches(self) -> Iterator[tuple[list[int], list[str]]]:
        """Yields the numbers of rows, from 1, and their events as JSON."""
        for batch in self.database.sql("SELECT row, event FROM events").to_arrow_reader(
            _BATCH_ROWS
        ):
            yield batch.column("row").to_pylist(), batch.column("event").to_pylist()

    def _require_columns(self, types: Mapping[str, str], commits: Mapping[str, str]) -> None:
        known = [*sorted(MEMBERS), ARM]
        for name in types:
            if name not in known:
                raise ImportFailedError(
                    f"column {name!r} is no member of an event:"
                    f" {suggestion(name, known)}known are {name_list(known)}"
                )
        if (ARM in types) is not bool(commits) or {ARM, "commit"} <= types.keys():
            raise ImportFailedError(
                "a row names its build by commit, or by arm, a word of which [commits] in"
                " --experiments says the commit: name one of them"
            )
        _require_members(self.name, list(types))

    def _value(self, member: str, kind: str) -> str:
        """Returns a column's SQL as JSON has it; what cannot be is left to the API's reader."""
        column = quoted(member)
        text = f"{column} ->> '$'" if kind == "JSON" else f"trim(CAST({column} AS VARCHAR))"
        if member == "occurred_at":
            return _moment(column, kind, text)
        if member == "value":
            number = f"TRY_CAST({column} AS DOUBLE)"
            finite = f"to_json(CASE WHEN isfinite({number}) THEN {number} END)"
            return f"coalesce({finite}, to_json(CAST({column} AS VARCHAR)))"
        if member in _OBJECTS:
            is_text = kind == "VARCHAR"
            parsed = f"CASE WHEN json_valid({column}) THEN CAST({column} AS JSON) END"
            return f"coalesce({parsed}, to_json({column}))" if is_text else f"to_json({column})"
        if kind.startswith(("STRUCT", "MAP")) or kind.endswith("]"):
            raise ImportFailedError(f"column {member!r} is a {kind}: name a member of it")
        if kind == "BLOB":
            return self._text_of_bytes(member)
        if member in IDENTIFIERS:
            self._require_exact(member, kind, text)
            return self._identifier(column, kind, text)
        return f"nullif({text}, '')"

    def _identifier(self, column: str, kind: str, text: str) -> str:
        """Returns the SQL of an identifier as it was before its column became floating point."""
        if kind == "BOOLEAN":
            raise ImportFailedError(
                f"column {column} holds true and false, which are no identifiers"
            )
        if kind not in (*_EXACT, "VARCHAR", "JSON") and not kind.startswith("DECIMAL"):
            return text
        if kind in _EXACT:
            whole = f"CAST(TRY_CAST({column} AS BIGINT) AS VARCHAR)"
            is_whole = f"{column} = trunc({column})"
            return f"CASE WHEN {is_whole} THEN {whole} WHEN NOT isnan({column}) THEN {text} END"
        # Programs write it into CSV for a gap in a column of numbers.
        text = f"nullif({text}, 'nan')"
        ((are_whole,),) = self.query(
            f"SELECT bool_and(regexp_full_match({text}, '-?\\d+(\\.0+)?')) FROM result"
        )
        return f"regexp_replace({text}, '\\.0+$', '')" if are_whole else f"nullif({text}, '')"

    def _require_exact(self, member: str, kind: str, text: str) -> None:
        """Holds that an identifier is text, or a whole number with all its digits."""
        rounded = f"regexp_full_match(trim({text}), {literal(_ROUNDED)})"
        if kind.startswith("DECIMAL"):
            return
        if kind in _EXACT:
            rounded = f"abs({quoted(member)}) >= {_EXACT[kind]} AND isfinite({quoted(member)})"
        ((row, number),) = self.query(
            f"SELECT min(rowid) + 1, arg_min({text}, rowid) FROM result WHERE {rounded}"
        )
        if row is not None:
            raise RowError(
                row,
                member,
                number,
                "is a rounded number: its last digits are lost, so that different ids are the same."
                " Floating point and spreadsheets do that to long numbers: export and read the"
                ' column as whole numbers or as text (in pandas as "Int64", not float64)',
            )

    def _require_ids(self, event: str, own: str, where: str) -> None:
        """Holds that the rows of an event all have an id, or none.

        A gap, which an export may write as `nan`, is no id: beside ids it is a lost id, and
        rows of the same time and value would count once.
        """
        ((row,),) = self.query(
            f"SELECT min(gap) + 1 FROM (SELECT min(rowid) FILTER (({own}) IS NULL) AS gap"
            f" FROM result WHERE {where} GROUP BY {event} HAVING count({own}) > 0)"
        )
        if row is not None:
            rule = "has no id, and other rows of this event have ids: give each its own, or none"
            raise RowError(row, "event_id", None, rule)

    def _text_of_bytes(self, member: str) -> str:
        column = quoted(member)
        uuid = f"octet_length({column}) = 16 AND hex({column})[13] BETWEEN '1' AND '8'"
        uuid += f" AND hex({column})[17] BETWEEN '8' AND 'B'"
        text = f"coalesce(NOT contains(try(decode({column})), chr(0)), false)"
        ((are_uuids, are_texts),) = self.query(
            f"SELECT bool_and({uuid}), bool_and({text}) FROM result WHERE {column} IS NOT NULL"
        )
        if are_uuids:
            return f"CAST(CAST({column} AS UUID) AS VARCHAR)"
        if are_texts is False:
            raise ImportFailedError(
                f"column {member!r} holds bytes that are neither text nor UUIDs of 16 bytes"
            )
        return f"decode({column})"
