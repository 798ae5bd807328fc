"""The reader of the whole log: its sealed files, and the rest that PostgreSQL alone holds."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING

import pyarrow as pa
from psycopg import sql
from sqlalchemy import Connection, Engine, text

from storage.lake.lake import Lake
from storage.lake.parquet import (
    COLUMNS,
    EVENT_COLUMNS,
    REVENUE_COLUMNS,
    Schema,
    SnapshotReader,
    export_snapshot,
    read_events,
    read_revenue,
)
from storage.lake.sealed_hours import (
    Erasure,
    SealedFile,
    UnsealedRange,
    keep_files,
    read_erasures,
    sealed_files,
    unsealed_ranges,
)
from storage.lake.verification import wrong_files
from storage.log.file_errors import WrongFileError
from storage.log.parts import HOUR
from storage.pipeline.engines.engine import Batch, Batches
from storage.pipeline.moments import moment_of
from storage.schema.partitions import existing_days, partition_name

if TYPE_CHECKING:
    # It imports pandas, half a CPU second and 40 MiB, which only a reading of the log needs.
    import adbc_driver_postgresql.dbapi as adbc

_SNAPSHOT_LEVELS = ("repeatable read", "serializable")


@dataclass(frozen=True, kw_only=True)
class Extent:
    """The part of the log that a computation reads; times in microseconds since the epoch.

    Attributes:
        named_from: From when on events are read that name a user: a session may have named its
            user weeks before.
        with_history: Whether revenue is read from `named_from` on, as events that name a user are.
        environments: The (project_id, environment) pairs; revenue is read by project.
        units: The sessions, and the users by their pseudonyms in hex, whose events and revenue are
            read; None for all.
    """

    named_from: int
    received_from: int
    received_to: int
    environments: frozenset[tuple[int, str]]
    with_properties: bool = False
    with_history: bool = False
    units: frozenset[str] | None = None

    @property
    def columns(self) -> Schema:
        """The columns of events that are read."""
        return COLUMNS if self.with_properties else EVENT_COLUMNS


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """A Parquet file of the log."""

    uri: str
    last_erasure: int


@dataclass(frozen=True, kw_only=True)
class LogRows:
    """An extent of the log, for whatever engine reads Parquet and Arrow.

    Attributes:
        files: Parquet files with at least `EVENT_COLUMNS`.
        erasures: Whose events in files with an older `last_erasure` are no events any more.
        revenue: The revenue events, in `REVENUE_COLUMNS`; it is read once.
    """

    extent: Extent
    files: Sequence[LogFile]
    erasures: Sequence[Erasure]
    rest: Batches
    revenue: Batches


@dataclass(frozen=True, kw_only=True)
class SealedLog:
    """The log as a transaction sees it, opened by `open_log`."""

    connection: Connection
    lake: Lake
    reader: SnapshotReader
    snapshot: str

    @contextmanager
    def read(self, statement: str) -> Generator[Batches]:
        """Yields the rows of a statement of PostgreSQL, as the transaction saw them at first."""
        with self.reader.cursor(self.snapshot) as cursor:
            cursor.execute(statement)
            yield cursor.fetch_record_batch()

    @contextmanager
    def rows(self, extent: Extent) -> Generator[LogRows]:
        """Yields the rows of an extent.

        A sealed hour is read from its file, once that was seen to be as it is listed. Where it is
        not, or cannot be read from here, as in the shell of an operator who has not named the lake,
        the hour is read from PostgreSQL for as long as its day is there: both hold the same events.

        Raises:
            WrongFileError: Such a file alone holds events of the extent.
        """
        received_from, received_to = moment_of(extent.named_from), moment_of(extent.received_to)
        listed = sealed_files(self.connection, received_from, received_to)
        faults = wrong_files(self.lake, listed)
        wrong = [file for file in listed if file.name in faults]
        self._require_stored(wrong, extent, faults)
        ranges = unsealed_ranges(self.connection, received_from, received_to, unread=wrong)
        with ExitStack() as stack:
            yield LogRows(
                extent=extent,
                files=[
                    LogFile(uri=self.lake.uri(file.name), last_erasure=file.last_erasure)
                    for file in listed
                    if file.name not in faults
                ],
                erasures=read_erasures(self.connection),
                rest=self._rest(stack, extent, ranges),
                revenue=self._revenue(stack, extent),
            )

    def _require_stored(
        self, wrong: Sequence[SealedFile], extent: Extent, faults: Mapping[str, str]
    ) -> None:
        present = existing_days(self.connection) if wrong else set[str]()
        received_from = moment_of(extent.received_from)
        lost = {
            file.name: faults[file.name]
            for file in wrong
            if partition_name(file.hour.astimezone(UTC).date()) not in present
            or (file.is_moved and not (file.keeps_named and file.hour + HOUR <= received_from))
        }
        if lost:
            raise WrongFileError(self.lake.uri, lost)

    def _rest(self, stack: ExitStack, extent: Extent, ranges: Sequence[UnsealedRange]) -> Batches:
        if not ranges:
            return pa.RecordBatchReader.from_batches(extent.columns, [])
        begins = moment_of(extent.received_from).isoformat()
        condition = (
            f"({' OR '.join(hours.condition for hours in ranges)})"
            f" AND (received_at >= '{begins}' OR pseudonym IS NOT NULL)"
            f" AND {_of_projects(extent)}{_of_units(extent)}"
        )
        return self._lazily(
            stack, extent.columns, lambda cursor: read_events(cursor, condition, extent.columns)
        )

    def _revenue(self, stack: ExitStack, extent: Extent) -> Batches:
        begins = extent.named_from if extent.with_history else extent.received_from
        condition = (
            f"received_at BETWEEN '{moment_of(begins).isoformat()}'"
            f" AND '{moment_of(extent.received_to).isoformat()}' AND {_of_projects(extent)}"
            f"{_of_units(extent)}"
        )
        # Most projects send none: no second connection is made to read nothing.
        if not self.connection.execute(
            text(f"SELECT EXISTS (SELECT FROM revenue_events WHERE {condition})")
        ).scalar_one():
            return pa.RecordBatchReader.from_batches(REVENUE_COLUMNS, [])
        return self._lazily(stack, REVENUE_COLUMNS, lambda cursor: read_revenue(cursor, condition))

    def _lazily(
        self, stack: ExitStack, columns: Schema, read: Callable[["adbc.Cursor"], Iterator[Batch]]
    ) -> Batches:
        def batches() -> Generator[Batch]:
            with self.reader.cursor(self.snapshot) as cursor:
                yield from read(cursor)

        generator = batches()
        stack.callback(generator.close)
        return pa.RecordBatchReader.from_batches(columns, generator)


@contextmanager
def open_log(connection: Connection, lake: Lake) -> Generator[SealedLog]:
    """Yields the log as a transaction sees it, for as long as that lasts.

    Args:
        connection: In a REPEATABLE READ transaction that began with `keep_log`, outside of any
            savepoint. Its own writes are not seen.

    Raises:
        ValueError: The transaction is of a weaker level: its list of files, and the rest, could be
            of two states of the log.
    """
    level = connection.execute(text("SHOW transaction_isolation")).scalar_one()
    if level not in _SNAPSHOT_LEVELS:
        raise ValueError(f"the log is read in a transaction that is {level}, not repeatable read")
    with SnapshotReader(connection.engine) as reader:
        snapshot = export_snapshot(connection)
        yield SealedLog(connection=connection, lake=lake, reader=reader, snapshot=snapshot)


@contextmanager
def read_apart(engine: Engine, lake: Lake) -> Generator[SealedLog]:
    """Yields the log as a transaction of its own sees it.

    For whoever is in a savepoint, or in a transaction that sees several states of the store: up to
    a time at which the log is final, all of them are the same but for who was forgotten.
    """
    with engine.connect() as connection, connection.begin():
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
        keep_log(connection)
        with open_log(connection, lake) as log:
            yield log


def keep_log(connection: Connection) -> None:
    """Keeps days from being dropped, and listed files from being deleted, until a transaction ends.

    Args:
        connection: Before its first look at the store: a day that was dropped since then would be
            missing, and not be known as gone. A lock of a table takes no snapshot.
    """
    keep_files(connection)
    connection.execute(text("LOCK TABLE runtime_events IN ACCESS SHARE MODE"))


def _of_projects(extent: Extent) -> str:
    projects = sorted({project_id for project_id, _ in extent.environments})
    return f"project_id IN ({', '.join(map(str, projects))})" if projects else "false"


def _of_units(extent: Extent) -> str:
    if extent.units is None:
        return ""
    units = ", ".join(sql.Literal(value).as_string() for value in sorted(extent.units))
    if not units:
        return " AND false"
    return f" AND (session_id IN ({units}) OR encode(pseudonym, 'hex') IN ({units}))"
