"""Apache Spark as an engine of the text: a cluster that is reached by Spark Connect."""

import logging
import re
import socket
import sys
import threading
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from storage.lake.day_engines import PORT, REMOTE
from storage.lake.input_tables import input_table
from storage.lake.lake import Lake
from storage.pipeline.engines.engine import Batch, Batches, Columns, EngineError
from storage.pipeline.steps import Dialect, Step

_TYPES = {
    "int": "INT",
    "bigint": "BIGINT",
    "text": "STRING",
    "json": "STRING",
    "experiment": "INT",
    "bool": "BOOLEAN",
}
# Texts are compared by their bytes anyway, and this collation has another name.
_COLLATION = ' COLLATE "C"'

_SETTINGS = {
    # A sum that does not fit is an error, rather than another number.
    "spark.sql.ansi.enabled": "true",
    # A file that is listed and not there is an error, whatever the cluster's own settings say.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}

_BATCH_ROWS = 20_000
# The client asks an absent server again for some 45 s; its own default is ten minutes.
_RETRIES, _LONGEST_WAIT_MS = 8, 10_000
# Inputs up to this size go with the statement; larger ones as a file.
_SENT_BYTES = 1 << 20
_ANSWER_SECONDS = 10


# The client writes each error there, with the values and the statement that it met.
_CLIENT_LOGS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
# SQLSTATE of errors that the data makes: a number out of range, say.
_OF_DATA = "22"


class SparkDataError(ValueError):
    """The data of an experiment cannot be computed: a value, or too much; no value is named."""


@contextmanager
def open_spark(
    remote: str, *, lake: Lake, seconds: float | None = None
) -> Generator["SparkEngine"]:
    """Yields an engine in a session of its own, of which nothing is left afterwards.

    Args:
        lake: Where the engine keeps intermediate results: in a folder of its own, which the
            cluster's processes must be able to read and write.
        seconds: How long a step may take; None for as long as it needs.
    """
    _require_answer(remote)
    builder = _client().SparkSession.builder
    with _plain_errors("open a session"):
        session = builder.remote(remote).create()
    try:
        with _plain_errors("open a session"):
            retries: Any = import_module("pyspark.sql.connect.client.retries")
            policy = retries.DefaultPolicy(max_retries=_RETRIES, max_backoff=_LONGEST_WAIT_MS)
            session.client.set_retry_policies([policy])
            if not (version := session.version).startswith("4."):
                fault = f"the server that {REMOTE} names runs Spark {version}: Spark 4 is needed"
                raise EngineError(fault)
            for name, value in _SETTINGS.items():
                session.conf.set(name, value)
        with lake.scratch() as folder:
            yield SparkEngine(session, lake=lake, folder=folder, seconds=seconds)
    finally:
        session.stop()


@contextmanager
def _plain_errors(work: str) -> Generator[None]:
    """Says what failed without the client's own words, which may quote a token or an event."""
    try:
        yield
    except _client_errors() as failure:
        error: Any = failure
        # An error of Spark has a name and a state; an error of the connection has neither.
        name = (hasattr(error, "getCondition") and error.getCondition()) or type(error).__name__
        state = (hasattr(error, "getSqlState") and error.getSqlState()) or ""
        if state.startswith(_OF_DATA):
            raise SparkDataError(f"Spark could not {work}: {name}") from None
        raise EngineError(
            f"Spark could not {work}: {name}; the log of the Connect server says more"
        ) from None


def _client_errors() -> tuple[type[Exception], ...]:
    errors: Any = import_module("pyspark.errors")
    grpc: Any = import_module("grpc")
    return errors.PySparkException, grpc.RpcError


def _client() -> Any:  # noqa: ANN401 - an optional package
    # In a main module without a file, as of Dagster's runs, which multiprocessing spawns, the
    # client takes itself for a doctest and ends the process.
    main = sys.modules["__main__"]
    main.__spec__ = main.__spec__ or ModuleSpec("__main__", None)
    try:
        with warnings.catch_warnings():
            # pyspark warns about pandas 3; no pandas object is passed to it.
            warnings.simplefilter("ignore", FutureWarning)
            client = import_module("pyspark.sql.connect.session")
    except ImportError as error:
        raise EngineError(
            f"SERVICE_ENGINE is 'spark', and {error.name or error} is not installed: install"
            " deploy-reward[spark], or set SERVICE_ENGINE to duckdb"
        ) from error
    for name in _CLIENT_LOGS:
        logging.getLogger(name).disabled = True
    return client


def _require_answer(remote: str) -> None:
    """Asks whether anybody listens: the client would try again for ten minutes."""
    address = urlsplit(remote)
    host, port = address.hostname or "", address.port or PORT
    try:
        socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        raise EngineError(
            f"no Spark Connect server answers at {host}:{port}, which {REMOTE} names"
            f" ({error.strerror or error}): start a server there, or set SERVICE_ENGINE to duckdb"
        ) from error


class SparkEngine:
    """Runs the text on a cluster; each step is written to files, and so survives lost workers."""

    dialect = Dialect(
        digest=("sha2(", ", 256)"),
        row_digest="CAST(conv(left(md5({words}), 10), 16, 10) AS BIGINT)",
        flag="try_element_at(from_json(e.flags, 'map<string,string>'), s.flag)",
        event_property="get_json_object({event}.properties, '$.' || {name})",
    )

    def __init__(
        self,
        session: Any,  # noqa: ANN401 - an optional package
        *,
        lake: Lake,
        folder: str,
        seconds: float | None = None,
    ) -> None:
        self._session = session
        self._lake = lake
        self._folder = folder
        self._seconds = seconds
        self._files = 0

    def register(self, name: str, columns: Columns, rows: Iterable[Sequence[Any]]) -> None:
        """Makes a small input of rows."""
        table = input_table(columns, rows)
        if table.nbytes > _SENT_BYTES:
            self.copy(name, table)
            return
        with _plain_errors(f"register {name}"):
            if table.num_rows:
                self._session.createDataFrame(table).createOrReplaceTempView(name)
            else:
                # The client takes no types from an empty table.
                members = (
                    f"CAST(NULL AS {_TYPES[kind]}) AS {column}" for column, kind in columns.items()
                )
                self.define(name, f"SELECT {', '.join(members)} WHERE 1 = 0")

    def copy(self, name: str, batches: Batches) -> None:
        """Makes a relation of Arrow batches, which may be many and are read once."""
        self._files += 1
        file = f"{self._folder}/{name}-{self._files}.parquet"
        reader = pa.RecordBatchReader.from_stream(batches)
        with (
            self._lake.writing(file) as path,
            pq.ParquetWriter(path, reader.schema, compression="zstd") as writer,
        ):
            for batch in reader:
                writer.write_batch(batch)
        self._read([self._uri(file)], name)

    def parquet(self, uris: Sequence[str]) -> str:
        """Returns the name of a view of these Parquet files."""
        self._files += 1
        name = f"files_{self._files}"
        self._read([_as_uri(uri) for uri in uris], name)
        return name

    def define(self, name: str, sql: str) -> None:
        """Gives a relation's name to a statement."""
        with _plain_errors(f"define {name}"):
            self._statement(sql).createOrReplaceTempView(name)

    def run(self, step: Step) -> None:
        """Materializes a step."""
        self._files += 1
        uri = self._uri(f"{self._folder}/{step.name}-{self._files}")
        with self._limited(step), _plain_errors(f"compute {step.name}"):
            rows = self._statement(step.sql)
            rows.write.parquet(uri)
            self._session.read.schema(rows.schema).parquet(uri).createOrReplaceTempView(step.name)

    @contextmanager
    def _limited(self, step: Step) -> Generator[None]:
        if self._seconds is None:
            yield
            return
        expired = threading.Event()

        def interrupt() -> None:
            expired.set()
            self._session.interruptAll()

        timer = threading.Timer(self._seconds, interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        except EngineError:
            if expired.is_set():
                raise SparkDataError(f"{step.name} took longer than a step may") from None
            raise
        finally:
            timer.cancel()

    def rows(self, sql: str) -> Iterable[Sequence[Any]]:
        """Yields the rows of a statement as they come."""
        with _plain_errors("return rows"):
            yield from self._statement(sql).toLocalIterator()

    def batches(self, sql: str) -> Iterable[Batch]:
        """Yields the rows of a statement as Arrow, from files: the client would hold them all."""
        self._files += 1
        folder = f"{self._folder}/rows-{self._files}"
        with _plain_errors("return rows"):
            self._statement(sql).write.parquet(self._uri(folder))
        for name in self._lake.files(folder):
            if name.endswith(".parquet"):
                with self._lake.reading(name) as path, closing(pq.ParquetFile(path)) as file:
                    yield from file.iter_batches(_BATCH_ROWS)

    def keep_few(self, name: str, counted: str) -> None:
        """Does nothing: a cluster is for many."""

    def split(self, readings: Iterable[int]) -> None:
        """Does nothing: a cluster computes all units at once."""

    def distribute(self, name: str, sql: str, keys: Sequence[str]) -> None:  # noqa: ARG002 - no parts
        """Gives a relation's name to a statement."""
        self.define(name, sql)

    def each_part(self) -> Iterator[int]:
        """Yields once."""
        yield 0

    def drop(self, steps: Iterable[Step]) -> None:
        """Does nothing: the files of a step last as long as the engine."""

    def experiment_key(self, number: int, experiment_id: str) -> object:  # noqa: ARG002
        """Returns an experiment's key in the derived relations: its number."""
        return number

    def _read(self, uris: Sequence[str], name: str) -> None:
        with _plain_errors(f"read the files of {name}"):
            self._session.read.parquet(*uris).createOrReplaceTempView(name)

    def _statement(self, sql: str) -> Any:  # noqa: ANN401 - an optional package
        return self._session.sql(self.dialect.written(sql).replace(_COLLATION, ""))

    def _uri(self, name: str) -> str:
        return _as_uri(self._lake.uri(name))


def _as_uri(path: str) -> str:
    """Returns an address that a cluster does not take for a place in its own file system."""
    return path if re.match(r"[a-z0-9+.-]+://", path) else f"file://{path}"
