"""DuckDB as an engine of the text: in this process, within a bound of memory, over whole days."""

import shutil
import tempfile
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb

from storage.log.parquet import Batch, Batches
from storage.pipeline.engines.engine import Columns, EngineMemoryError
from storage.pipeline.engines.input_tables import input_table
from storage.pipeline.steps import COMPUTED_ONCE, IN_SAMPLE, Step

_BATCH_ROWS = 20_000

# As `storage.tenants.sample` says it to PostgreSQL.
_UNIT_IN_SAMPLE = """
(sample_bound IS NULL
 OR left(sha256(concat('sample:', project_id, ':', unit)), 8) < sample_bound)
"""


@dataclass(frozen=True, kw_only=True)
class DuckDBLimits:
    """The limits of a computation on the machine's resources.

    Attributes:
        memory_mib: Of memory; what needs more is written to a temporary folder.
        threads: How many threads compute.
        folder: Where that folder is made; None for the system's own.
    """

    memory_mib: int = 1024
    threads: int = 1
    folder: Path | None = None


@contextmanager
def open_duckdb(limits: DuckDBLimits, *, seconds: float | None = None) -> Generator["DuckDBEngine"]:
    """Yields an engine on a database of its own, which is gone afterwards.

    Args:
        limits: The memory and threads that it may use.
        seconds: How long a step may take; None for as long as it needs.

    Raises:
        EngineMemoryError: A computation within the context exceeds the limits.
    """
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
            yield DuckDBEngine(database, folder=folder, seconds=seconds)
    except duckdb.OutOfMemoryException as error:
        raise EngineMemoryError(
            f"DuckDB needs more than {limits.memory_mib} MiB of memory, or more space than"
            f" {folder.parent} has: raise SERVICE_ENGINE_MEMORY_MIB, or set TMPDIR to a larger disk"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class DuckDBEngine:
    """Runs the text on a database of its own.

    Args:
        folder: Of files that last as long as the engine.
        seconds: How long a step may take; None for as long as it needs.
    """

    def __init__(
        self, database: duckdb.DuckDBPyConnection, *, folder: Path, seconds: float | None = None
    ) -> None:
        self.database = database
        self.folder = folder
        self._filesystems: set[str] = set()
        self._seconds = seconds

    def register(self, name: str, columns: Columns, rows: Iterable[Sequence[Any]]) -> None:
        """Makes a small input of rows."""
        self.database.register("registered_rows", input_table(columns, rows))
        self.database.execute(f"CREATE OR REPLACE TABLE {name} AS FROM registered_rows")
        self.database.unregister("registered_rows")

    def define(self, name: str, sql: str) -> None:
        """Gives a relation's name to a statement."""
        self.database.execute(f"CREATE OR REPLACE VIEW {name} AS {sql}")

    def run(self, step: Step) -> None:
        """Materializes a step.

        Raises:
            duckdb.InterruptException: It took longer than a step may.
        """
        sql = step.sql.replace(IN_SAMPLE, _UNIT_IN_SAMPLE).replace(COMPUTED_ONCE, "")
        # Of a left join to an empty relation DuckDB expects no row, and would hash the other side.
        # The text's own order of joins is kept.
        kept = "build_side_probe_side,join_order" if step.small_right else ""
        self.database.execute(f"SET disabled_optimizers = '{kept}'")
        with self._limited():
            self.database.execute(f"CREATE OR REPLACE TABLE {step.name} AS {sql}")

    @contextmanager
    def _limited(self) -> Generator[None]:
        if self._seconds is None:
            yield
            return
        timer = threading.Timer(self._seconds, self.database.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def copy(self, name: str, batches: Batches) -> None:
        """Writes batches to a file: Parquet takes a tenth of the place that a table takes."""
        path = _literal(str(self.folder / f"{name}.parquet"))
        self.database.register("copied_batches", batches)
        self.database.execute(f"COPY (FROM copied_batches) TO {path} (FORMAT parquet)")
        self.database.unregister("copied_batches")
        self.define(name, f"FROM read_parquet({path})")

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

    def batches(self, sql: str) -> Iterable[Batch]:
        """Yields the rows of a statement as Arrow."""
        yield from self.database.sql(sql).to_arrow_reader(_BATCH_ROWS)

    def property_text(self, name: str) -> str:
        """Returns SQL for a property of the event `e` as text."""
        return f"json_extract_string(e.properties, '$.\"{name}\"')"

    def experiment_key(self, number: int, experiment_id: str) -> object:  # noqa: ARG002
        """Returns an experiment's key in the derived relations: its number."""
        return number


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
