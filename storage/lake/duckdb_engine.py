"""DuckDB as an engine of the text: in this process, within a bound of memory, over whole days."""

import re
import shutil
import tempfile
import threading
from collections import namedtuple
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.pipeline.engines.engine import Batch, Batches, Columns, EngineMemoryError
from storage.pipeline.steps import Dialect, Step

if TYPE_CHECKING:
    # It takes a tenth of a CPU second to load, which a run that reads no whole day does without.
    import duckdb

_BATCH_ROWS = 20_000
_TYPES = {
    **dict.fromkeys(("int", "experiment"), "INTEGER"),
    **dict.fromkeys(("text", "json"), "VARCHAR"),
    "bigint": "BIGINT",
    "bool": "BOOLEAN",
}
# Its columns are those of a statement.
_Names: Any = namedtuple


@dataclass(frozen=True, kw_only=True)
class DuckDBLimits:
    """The limits of a computation on the machine's resources.

    Attributes:
        folder: Where that folder is made; None for the system's own.
        readings_a_mib: How many events, each counted for every experiment that reads it, are
            computed at once for each MiB, at the cost of some spilling.
        few_rows: Up to how many events a log is copied into memory.
    """

    memory_mib: int = 1024
    threads: int = 1
    folder: Path | None = None
    readings_a_mib: int = 30_000
    few_rows: int = 200_000

    def parts(self, readings: int) -> int:
        """Returns in how many parts so many readings are computed."""
        at_once = self.memory_mib * self.readings_a_mib
        # Once they are distributed, parts that need not spill cost less.
        return 1 if readings <= at_once else -(-readings // (at_once // 2))


@contextmanager
def open_duckdb(limits: DuckDBLimits, *, seconds: float | None = None) -> Generator["DuckDBEngine"]:
    """Yields an engine on a database of its own, which is gone afterwards.

    Args:
        seconds: How long a step may take; None for as long as it needs.

    Raises:
        EngineMemoryError: A computation within the context exceeds the limits.
    """
    import duckdb  # noqa: PLC0415 - it takes long to load, as said above

    # In memory, of which what does not fit is written to `spill`: a database in a file would write
    # every step to its log as well, for 1.6 times the CPU.
    folder = Path(tempfile.mkdtemp(prefix="deploy-reward-", dir=limits.folder))
    try:
        with duckdb.connect(
            ":memory:",
            config={
                "memory_limit": f"{limits.memory_mib}MiB",
                "threads": limits.threads,
                "temp_directory": str(folder / "spill"),
                "preserve_insertion_order": False,
                # Extensions are downloaded; the text needs none.
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        ) as database:
            # Drawn on standard output, where `evaluate --json` prints a document.
            database.execute("SET enable_progress_bar = false")
            # Rows that are distributed to many files take half the CPU where few of them wait.
            database.execute("SET partitioned_write_flush_threshold = 20000")
            yield DuckDBEngine(database, folder=folder, limits=limits, seconds=seconds)
    except duckdb.OutOfMemoryException as error:
        raise EngineMemoryError(
            f"DuckDB needs more than {limits.memory_mib} MiB of memory, or more space than"
            f" {folder.parent} has: raise SERVICE_ENGINE_MEMORY_MIB, or set TMPDIR to a larger disk"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class DuckDBEngine:
    """Runs the text on a database of its own.

    A day that is computed part by part is in files: its events are distributed to files of each
    part, and the rows of a part that are read later are written to a file. So neither memory nor
    what DuckDB spills grows with the day.
    """

    dialect = Dialect(
        digest=("sha256(", ")"),
        row_digest="CAST('0x' || left(md5({words}), 10) AS BIGINT)",
        # By a pointer of JSON, in which a name's own ~ and / are written otherwise.
        flag="json_extract_string(e.flags, '/' || replace(replace(s.flag, '~', '~0'), '/', '~1'))",
        event_property="json_extract_string({event}.properties, '$.\"' || {name} || '\"')",
    )

    def __init__(
        self,
        database: "duckdb.DuckDBPyConnection",
        *,
        folder: Path,
        limits: DuckDBLimits,
        seconds: float | None = None,
    ) -> None:
        self.database = database
        self.folder = folder
        self._limits = limits
        self._filesystems: set[str] = set()
        self._seconds = seconds
        self._parts = 1
        self._part: int | None = None
        self._constants: Mapping[str, str] = {}
        self._in_order = False
        self._few = False
        # By relation, the statement that was distributed, and the files of each part.
        self._distributed: dict[str, str] = {}
        self._written: dict[str, dict[int, list[Path]]] = {}

    def register(self, name: str, columns: Columns, rows: Iterable[Sequence[Any]]) -> None:
        """Makes a small input of rows."""
        # As lists: of Arrow's arrays made from a sequence pyarrow loads pandas, for half a second.
        values = list(zip(*rows, strict=True)) or [()] * len(columns)
        if name == "scope":
            self._constants = _constants(columns, values)
        lists = ", ".join(
            f"unnest(CAST(? AS {_TYPES[kind]}[])) AS {column}" for column, kind in columns.items()
        )
        self.database.execute(
            f"CREATE OR REPLACE TABLE {name} AS SELECT {lists}", [list(each) for each in values]
        )

    def define(self, name: str, sql: str) -> None:
        """Gives a relation's name to a statement."""
        self.database.execute(f"CREATE OR REPLACE VIEW {name} AS {sql}")

    def run(self, step: Step) -> None:
        """Materializes a step."""
        sql = self._in_words(step.sql)
        # DuckDB expects no row of a left join to an empty relation and would hash the other side:
        # the statement's own order of joins is kept.
        if step.small_right is not self._in_order:
            kept = "build_side_probe_side,join_order" if step.small_right else ""
            self.database.execute(f"SET disabled_optimizers = '{kept}'")
            self._in_order = step.small_right
        with self._limited(self._seconds):
            if self._part is not None and not step.temporary:
                self.define(step.name, self._write(step.name, sql, self._part))
            elif step.words and not self._few:
                self._store_numbered(step, sql)
            else:
                self.database.execute(f"CREATE OR REPLACE TABLE {step.name} AS {sql}")

    def _store_numbered(self, step: Step, sql: str) -> None:
        """Stores a step's words by number, and defines the step with them as texts again."""
        for column, words in step.words.items():
            self.database.execute(
                f"CREATE TYPE {column}_word AS ENUM (SELECT DISTINCT word FROM"
                f" (SELECT '' UNION ALL {words}) AS words (word) WHERE word IS NOT NULL)"
            )
        stored = ", ".join(f"CAST({each} AS {each}_word) AS {each}" for each in step.words)
        read = ", ".join(f"CAST({each} AS VARCHAR) AS {each}" for each in step.words)
        self.database.execute(
            f"CREATE TABLE {step.name}_numbered AS SELECT * REPLACE ({stored}) FROM ({sql})"
        )
        self.define(step.name, f"SELECT * REPLACE ({read}) FROM {step.name}_numbered")

    @contextmanager
    def _limited(self, seconds: float | None) -> Generator[None]:
        if seconds is None:
            yield
            return
        timer = threading.Timer(seconds, self.database.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def copy(self, name: str, batches: Batches) -> None:
        """Writes batches to a file: Parquet takes a tenth of the place that a table takes."""
        self.database.register("copied_batches", batches)
        written = self._write(name, "FROM copied_batches", self._part)
        self.database.unregister("copied_batches")
        self.define(name, written)

    def keep_few(self, name: str, counted: str) -> None:
        """Copies a relation into memory if it has few rows: some twenty statements read it."""
        ((rows,),) = self.rows(f"SELECT count(*) FROM {counted}")
        self._few = rows <= self._limits.few_rows
        if self._few:
            self.database.execute(f"CREATE OR REPLACE TABLE few_{name} AS FROM {name}")
            self.define(name, f"FROM few_{name}")

    def split(self, readings: Iterable[int]) -> None:
        """Chooses in how many parts units are computed."""
        for bound in readings:
            self._parts = self._limits.parts(bound)
            if self._parts == 1:
                return

    def distribute(self, name: str, sql: str, keys: Sequence[str]) -> None:
        """Gives a relation's name to a statement, and distributes its rows to the parts."""
        self.define(name, sql)
        if self._parts == 1:
            return
        self._distributed[name] = sql
        distributed: list[str] = []
        for number, key in enumerate(keys):
            # Once into a part that several of its units are in. NULL has a hash, and is no unit.
            others = "".join(
                f" AND ({earlier} IS NULL OR {self._part_of(key)} <> {self._part_of(earlier)})"
                for earlier in keys[:number]
            )
            distributed.append(
                f"SELECT *, {self._part_of(key)} AS part FROM ({sql}) AS rows_{number}"
                f" WHERE {key} IS NOT NULL{others}"
            )
        folder = self.folder / name
        with self._limited(self._seconds):
            self.database.execute(
                f"COPY ({' UNION ALL '.join(distributed)}) TO {_literal(str(folder))}"
                " (FORMAT parquet, PARTITION_BY (part))"
            )
        for part in range(self._parts):
            files = list(folder.glob(f"part={part}/*.parquet"))
            if files:
                self._written.setdefault(name, {})[part] = files
            else:
                self._write(name, f"FROM ({sql}) AS distributed LIMIT 0", part)

    def each_part(self) -> Iterator[int]:
        """Yields the number of each part, while that part is computed."""
        if self._parts == 1:
            yield 0
            return
        for part in range(self._parts):
            self._part = part
            for name, paths in self._written.items():
                if part in paths:
                    self.define(name, _read(paths[part]))
            yield part
        self._part = None
        for name, paths in self._written.items():
            self.define(name, self._distributed.get(name) or _read([*chain(*paths.values())]))

    def _write(self, name: str, sql: str, part: int | None) -> str:
        """Writes rows to a file, of a part if any, and returns SQL that reads it."""
        path = self.folder / f"{name}{'' if part is None else f'-{part}'}.parquet"
        self.database.execute(f"COPY ({sql}) TO {_literal(str(path))} (FORMAT parquet)")
        if part is not None:
            self._written.setdefault(name, {})[part] = [path]
        return _read([path])

    def _part_of(self, key: str) -> str:
        # DuckDB's own tables and joins use the hash of the unit: all units of a part must not
        # share bits of it.
        return f"hash(hash({key})) % {self._parts}"

    def _in_words(self, sql: str) -> str:
        in_part = "true" if self._part is None else f"{self._part_of('unit')} = {self._part}"
        constant = _SCOPE.sub(lambda match: self._constants.get(match[1], match[0]), sql)
        return self.dialect.written(constant, in_part=in_part)

    def drop(self, steps: Iterable[Step]) -> None:
        """Drops the rows of those steps that are temporary."""
        for step in steps:
            if step.temporary:
                self.database.execute(f"DROP TABLE {step.name}")

    def parquet(self, uris: Sequence[str]) -> str:
        """Returns SQL that reads these files; those of a bucket by fsspec."""
        for uri in uris:
            protocol, separator, _ = uri.partition("://")
            if separator and protocol not in self._filesystems:
                self._filesystems.add(protocol)
                fsspec: Any = import_module("fsspec")
                self.database.register_filesystem(fsspec.core.url_to_fs(uri)[0])
        return f"read_parquet([{', '.join(map(_literal, uris))}], hive_partitioning = false)"

    def rows(self, sql: str) -> Iterable[Sequence[Any]]:
        """Yields the rows of a statement, some thousands at a time."""
        result = self.database.execute(sql)
        while batch := result.fetchmany(10_000):
            yield from batch

    def answer(
        self, sql: str, parameters: Mapping[str, object], *, seconds: float
    ) -> Sequence[Any]:
        """Returns the rows of a statement with parameters, with the names of its columns."""
        with self._limited(seconds):
            result = self.database.execute(sql, dict(parameters))
            row = _Names("Row", [column[0] for column in result.description])
            return [row(*values) for values in result.fetchall()]

    def batches(self, sql: str) -> Iterable[Batch]:
        """Yields the rows of a statement as Arrow."""
        yield from self.database.sql(self._in_words(sql)).to_arrow_reader(_BATCH_ROWS)

    def experiment_key(self, number: int, experiment_id: str) -> object:  # noqa: ARG002
        """Returns an experiment's key in the derived relations: its number."""
        return number


# The columns of `scope` that statements compute with.
_SCOPE = re.compile(
    r"\b[sb]\.(by_user|trusted_only|signed_only|vouched_only|by_route|drawn|flag|flag_treatment"
    r"|flag_control|sample_bound|starts_at|grace|seen_from|from_block|to_block|received_from"
    r"|received_to|horizon|warm_at)\b"
)


def _constants(columns: Columns, values: Sequence[Sequence[Any]]) -> dict[str, str]:
    """Returns the columns of the same value in each row, as literals, which DuckDB folds."""
    constants: dict[str, str] = {}
    for (column, kind), listed in zip(columns.items(), values, strict=True):
        distinct = set(listed)
        value = distinct.pop() if len(distinct) == 1 else ""
        if value is None or isinstance(value, int):
            literal = "NULL" if value is None else str(value)
            constants[column] = f"CAST({literal} AS {_TYPES[kind]})"
    return constants


def _read(paths: Sequence[Path]) -> str:
    files = ", ".join(_literal(str(path)) for path in paths)
    return f"FROM read_parquet([{files}], hive_partitioning = false)"


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
