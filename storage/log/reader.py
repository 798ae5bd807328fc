"""The reader of the whole log: its sealed files, and the rest that PostgreSQL alone holds."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Protocol

import duckdb
import pyarrow as pa
from sqlalchemy import Connection

from storage.log.lake import BucketLake, Lake
from storage.log.parquet import COLUMNS, Batch, Batches, SnapshotReader, read_events, read_revenue
from storage.log.sealed_hours import (
    Erasure,
    SealedFile,
    UnsealedRange,
    keep_files,
    read_erasures,
    sealed_files,
    unsealed_ranges,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ERASED = pa.schema(
    [
        pa.field("erasure_id", pa.int64()),
        pa.field("project_id", pa.int32()),
        pa.field("key", pa.string()),
    ]
)


class Extent(Protocol):
    """What is read: times of receipt in microseconds since the epoch, and whose events."""

    @property
    def named_from(self) -> int:
        """From when on events are read that name a user."""
        ...

    @property
    def received_from(self) -> int:
        """From when on all events are read."""
        ...

    @property
    def received_to(self) -> int:
        """The last one, itself included."""
        ...

    @property
    def environments(self) -> frozenset[tuple[int, str]]:
        """The (project_id, environment) pairs; more may be returned."""
        ...


@dataclass(frozen=True, kw_only=True)
class SealedLog:
    """The log as one transaction sees it: a log source that DuckDB reads.

    Attributes:
        connection: In a transaction that lasts until the rows have been read, and until then keeps
            every file that it read the name of from being deleted. Where it is of one snapshot,
            `keep_files` comes before that.
        lake: Where the files are.
    """

    connection: Connection
    lake: Lake

    def event_rows(self, database: duckdb.DuckDBPyConnection, extent: Extent) -> str:
        """Returns a SELECT of the columns of `COLUMNS`, without semicolon, for this database.

        What no file holds is copied into a temporary table first, which DuckDB may keep on disk.
        """
        keep_files(self.connection)
        received_from, received_to = (
            _EPOCH + timedelta(microseconds=moment)
            for moment in (extent.named_from, extent.received_to)
        )
        files = sealed_files(self.connection, received_from, received_to)
        erasures = read_erasures(self.connection)
        unsealed = unsealed_ranges(self.connection, received_from, received_to)
        rest = _copied(database, "log_rest", self._rest(unsealed, extent))
        received = (
            f"received BETWEEN {extent.named_from} AND {extent.received_to}"
            f" AND (received >= {extent.received_from} OR pseudonym IS NOT NULL)"
        )
        columns = ", ".join(COLUMNS.names)
        parts = [f"SELECT {columns} FROM {rest} WHERE {received}"]
        if isinstance(self.lake, BucketLake) and files:
            database.register_filesystem(self.lake.filesystem)
        _copy_erased(database, erasures)
        newest = max((one.erasure_id for one in erasures), default=0)
        for last, uris in self._by_erasure(files, newest):
            part = (
                f"SELECT {columns} FROM read_parquet([{uris}], hive_partitioning = false) AS e"
                f" WHERE {received}"
            )
            parts.append(part + (_without_erased(last) if last < newest else ""))
        return " UNION ALL ".join(parts)

    def revenue_rows(self, database: duckdb.DuckDBPyConnection, extent: Extent) -> str:
        """Returns a SELECT of revenue, which PostgreSQL keeps for good."""
        condition = _of_projects(extent.environments)
        with (
            SnapshotReader(self.connection.engine) as reader,
            reader.cursor(self.connection) as cursor,
        ):
            batches = read_revenue(cursor, condition)
            table = _copied(database, "log_revenue", batches)
        return f"SELECT * FROM {table}"

    def _rest(self, unsealed: Sequence[UnsealedRange], extent: Extent) -> Batches:
        if not unsealed:
            return pa.Table.from_batches([], COLUMNS)
        condition = " OR ".join(one.condition for one in unsealed)
        begins = _EPOCH + timedelta(microseconds=extent.received_from)
        named = f"(received_at >= '{begins.isoformat()}' OR pseudonym IS NOT NULL)"
        wanted = f"({condition}) AND {named} AND {_of_projects(extent.environments)}"

        def batches() -> Iterator[Batch]:
            with (
                SnapshotReader(self.connection.engine) as reader,
                reader.cursor(self.connection) as cursor,
            ):
                yield from read_events(cursor, wanted)

        return pa.RecordBatchReader.from_batches(COLUMNS, batches())

    def _by_erasure(self, files: Iterable[SealedFile], newest: int) -> Iterator[tuple[int, str]]:
        """Yields files, quoted, by the last erasure that each was written without.

        There are few such groups: files are rewritten each night.
        """

        def last_erasure(file: SealedFile) -> int:
            return min(file.last_erasure, newest)

        for last, group in groupby(sorted(files, key=last_erasure), key=last_erasure):
            yield last, ", ".join(_quoted(self.lake.uri(file.name)) for file in group)


def _of_projects(environments: frozenset[tuple[int, str]]) -> str:
    numbers = ", ".join(str(number) for number in sorted({project for project, _ in environments}))
    return f"project_id IN ({numbers})" if numbers else "false"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _without_erased(last: int) -> str:
    return "".join(
        f" AND NOT EXISTS (SELECT 1 FROM log_erased_{kind} AS x WHERE x.erasure_id > {last}"
        f" AND x.project_id = e.project_id AND x.key = e.{column})"
        for kind, column in (("sessions", "session_id"), ("users", "pseudonym"))
    )


def _copied(database: duckdb.DuckDBPyConnection, name: str, rows: Batches) -> str:
    """Copies rows into a temporary table and returns its name."""
    database.register("arriving", rows)
    database.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM arriving")
    database.unregister("arriving")
    return name


def _copy_erased(database: duckdb.DuckDBPyConnection, erasures: Iterable[Erasure]) -> None:
    keys: dict[str, list[dict[str, object]]] = {"sessions": [], "users": []}
    for one in erasures:
        kind, key = (
            ("users", one.pseudonym.hex())
            if one.pseudonym is not None
            else ("sessions", one.session_id)
        )
        keys[kind].append({"erasure_id": one.erasure_id, "project_id": one.project_id, "key": key})
    for kind, rows in keys.items():
        _copied(database, f"log_erased_{kind}", pa.Table.from_pylist(rows, _ERASED))
