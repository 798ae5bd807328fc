"""The log of runtime events: what is kept of one, and how many are appended at once."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import psycopg
from psycopg import AsyncConnection
from sqlalchemy import Connection, bindparam, text
from sqlalchemy.util import await_only

from storage.clock import LOG_LOCK, receipt_time
from storage.engine import connection_string, open_engine, session_options
from storage.partitions import create_days
from storage.refusal import Conflict

COLUMNS = (
    "project_id",
    "environment",
    "event",
    "session_id",
    "occurred_at",
    "received_at",
    "commit_sha",
    "route",
    "pseudonym",
    "trusted",
    "event_id",
    "value",
    "flags",
    "properties",
)
_COPY = f"COPY runtime_events ({', '.join(COLUMNS)}) FROM STDIN"


class RuntimeEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event as it is stored, but for its time of receipt; `flags` and `properties` are JSON."""

    project_id: int
    environment: str
    event: str
    session_id: str
    occurred_at: datetime
    commit_sha: str | None = None
    route: str | None = None
    pseudonym: bytes | None = None
    trusted: bool = False
    event_id: str | None = None
    value: float | None = None
    flags: str | None = None
    properties: str | None = None

    def row(self, received_at: datetime) -> tuple[Any, ...]:
        """Returns the event's row, in the order of COLUMNS."""
        return (
            self.project_id,
            self.environment,
            self.event,
            self.session_id,
            self.occurred_at,
            received_at,
            self.commit_sha,
            self.route,
            self.pseudonym,
            self.trusted,
            self.event_id,
            self.value,
            self.flags,
            self.properties,
        )


class StoreUnavailable(Exception):  # noqa: N818 - a state of the store, retried by the client
    """The store cannot be reached, or more waits to be written than it takes."""


@dataclass(frozen=True, kw_only=True)
class _Waiting:
    events: Sequence[RuntimeEvent]
    committed: asyncio.Future[datetime]


class EventWriter:
    """Appends events to the log: one COPY and one commit for all requests that wait.

    Requests that arrive while a commit is under way are written together by the next one: under
    load the log's cost is shared, and without load nobody waits for company.
    """

    def __init__(self, url: str, *, most_waiting: int = 200_000) -> None:
        self._url = url
        self._most_waiting = most_waiting
        self._waiting: list[_Waiting] = []
        self._rows_waiting = 0
        self._arrival = asyncio.Event()
        self._connection: AsyncConnection | None = None
        self._days: set[date] = set()
        self._closing = False
        self._clock_offset = timedelta(0)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator["EventWriter"]:
        """Runs the writer; at the end everything that waits is written first."""
        task = asyncio.create_task(self._write_forever())
        try:
            yield self
        finally:
            self._closing = True
            self._arrival.set()
            await task
            if self._connection is not None:
                await self._connection.close()

    def now(self) -> datetime:
        """Returns the store's time, as estimated at the last commit."""
        return datetime.now(UTC) + self._clock_offset

    async def append(self, events: Sequence[RuntimeEvent]) -> datetime:
        """Stores events and returns their time of receipt, once they are committed.

        Raises:
            StoreUnavailable: Nothing of the request was stored, or its commit was lost sight of.
        """
        if self._closing or self._rows_waiting + len(events) > self._most_waiting:
            raise StoreUnavailable("more events wait to be written than the store takes")
        waiting = _Waiting(events=events, committed=asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._rows_waiting += len(events)
        self._arrival.set()
        return await waiting.committed

    async def _write_forever(self) -> None:
        while True:
            await self._arrival.wait()
            self._arrival.clear()
            batch, self._waiting, self._rows_waiting = self._waiting, [], 0
            if batch:
                await self._write(batch)
            elif self._closing:
                return

    async def _write(self, batch: Sequence[_Waiting]) -> None:
        # Clients that gave up are written all the same: they may already have been told nothing.
        try:
            received_at = await self._commit([event for one in batch for event in one.events])
        except (psycopg.Error, OSError) as error:
            await self._forget_connection()
            unavailable = StoreUnavailable("the store cannot be reached")
            unavailable.__cause__ = error
            for one in batch:
                if not one.committed.done():
                    one.committed.set_exception(unavailable)
        else:
            for one in batch:
                if not one.committed.done():
                    one.committed.set_result(received_at)

    async def _commit(self, events: Sequence[RuntimeEvent]) -> datetime:
        connection = await self._connected()
        while True:
            async with connection.transaction():
                received_at = await self._receipt_time(connection)
                if received_at.date() in self._days:
                    async with connection.cursor().copy(_COPY) as copy:
                        for event in events:
                            await copy.write_row(event.row(received_at))
                    break
            await asyncio.to_thread(_create_days, self._url, received_at.date())
            self._days = {received_at.date(), received_at.date() + timedelta(days=1)}
        self._clock_offset = received_at - datetime.now(UTC)
        return received_at

    async def _receipt_time(self, connection: AsyncConnection) -> datetime:
        cursor = await connection.execute(
            # The clock is read after the lock is held: the argument is evaluated first.
            "SELECT clock_timestamp() FROM (SELECT pg_advisory_xact_lock_shared(%s) OFFSET 0) AS _",
            (LOG_LOCK,),
        )
        row = await cursor.fetchone()
        if row is None:  # pragma: no cover - a SELECT without FROM returns a row
            raise psycopg.OperationalError("the store did not tell its time")
        return row[0]

    async def _connected(self) -> AsyncConnection:
        if self._connection is None:
            self._connection = await AsyncConnection.connect(
                connection_string(self._url),
                autocommit=True,
                options=session_options(),
                connect_timeout=5,
            )
        return self._connection

    async def _forget_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                await connection.close()


def _create_days(url: str, today: date) -> None:
    engine = open_engine(url, pool_size=1)
    try:
        with engine.begin() as connection:
            create_days(connection, (today, today + timedelta(days=1)))
    finally:
        engine.dispose()


_CLOSED = text("""
SELECT experiment_id, environment, starts_at,
    starts_at - interval '30 minutes' AS closed_from -- where units in flight are looked for
FROM experiments
WHERE project_id = :project_id AND bound_at IS NOT NULL AND environment IN :environments
""").bindparams(bindparam("environments", expanding=True))


def append_history(connection: Connection, events: Sequence[RuntimeEvent]) -> None:
    """Stores events of the past of one project, received when they occurred.

    Raises:
        Conflict: An event falls at or after the start of an experiment that is already bound
            in its environment: its past is closed. Nothing is stored.
    """
    if not events:
        return
    create_days(connection, {event.occurred_at.astimezone(UTC).date() for event in events})
    receipt_time(connection)
    require_open_history(
        connection,
        events[0].project_id,
        [(event.environment, event.occurred_at) for event in events],
    )
    rows = (event.row(event.occurred_at) for event in events)
    driver = connection.connection.driver_connection
    if isinstance(driver, AsyncConnection):
        # The API's connections are asyncio's, under SQLAlchemy's blocking face.
        await_only(_copied(driver, rows))
    elif isinstance(driver, psycopg.Connection):
        with driver.cursor().copy(_COPY) as copy:
            for row in rows:
                copy.write_row(row)


async def _copied(connection: AsyncConnection[Any], rows: Iterable[tuple[Any, ...]]) -> None:
    async with connection.cursor().copy(_COPY) as copy:
        for row in rows:
            await copy.write_row(row)


def require_open_history(
    connection: Connection, project_id: int, moments: Sequence[tuple[str, datetime]]
) -> None:
    """Refuses what would change the past of a bound experiment.

    Args:
        connection: In the transaction that stores, its receipt time taken.
        project_id: The project.
        moments: Environment and time of each event.
    """
    latest: dict[str, datetime] = {}
    for environment, moment in moments:
        latest[environment] = max(moment, latest.get(environment, moment))
    bound = connection.execute(_CLOSED, {"project_id": project_id, "environments": sorted(latest)})
    for row in bound:
        if latest[row.environment] >= row.closed_from:
            raise Conflict(
                "history_closed",
                f"experiment {row.experiment_id} has been measuring {row.environment!r} since"
                f" {row.starts_at.isoformat()}: send history before registering",
            )
