"""The log of runtime events: the stored members of an event, and appending in batches."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import repeat
from typing import Any, Self, TypeVar

import msgspec
import psycopg
from msgspec.structs import astuple
from psycopg import AsyncConnection
from sqlalchemy import Connection, text
from sqlalchemy.util import await_only

from storage.log.parts import hour_of, next_part, note_part
from storage.postgres.batching import Batcher
from storage.postgres.engine import opened_engine
from storage.postgres.exchange import Exchange
from storage.postgres.refusal import Conflict
from storage.postgres.rows import value_of
from storage.schema.clock import LOG_LOCK, receipt_time
from storage.schema.encoding import EPOCH, MICROSECOND, epoch_microseconds
from storage.schema.partitions import MOST_NEW_DAYS, create_days, write_past_days
from storage.schema.policy_columns import HISTORY_FROM
from storage.tenants.settings import lock_project

MemberT = TypeVar("MemberT")

_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
# From so many characters on a round costs its rows more than its commit.
_LARGE_ROUND = 2**15


class RuntimeEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event as it is stored, but for its time of receipt.

    `flags` and `properties` are JSON, `value` is in whole millionths. `occurred_at` is by our
    clock, as far as its request alone tells. The log stores `occurred_text`, if any: the time as
    its sender wrote it, by a clock that showed `sent_at` when the request was sent.
    """

    project_id: int
    environment: str
    event: str
    session_id: str
    occurred_at: datetime
    occurred_text: str | None = None
    commit_sha: str | None = None
    route: str | None = None
    pseudonym: bytes | None = None
    trusted: bool = False
    event_id: str | None = None
    value: int | None = None
    flags: str | None = None
    properties: str | None = None
    signed: bool = False
    sent_at: str | None = None


COLUMNS = (
    *(name for name in RuntimeEvent.__struct_fields__ if name != "occurred_text"),
    "received_at",
)
# PostgreSQL's text format. No text that is stored is empty: the empty field is free for NULL.
_COPY = f"COPY runtime_events ({', '.join(COLUMNS)}) FROM STDIN WITH (NULL '')"
_TIME = COLUMNS.index("occurred_at")
# The clock is read after the lock is held: the argument is evaluated first.
_APPEND = f"""
SELECT {epoch_microseconds("clock_timestamp()")}
FROM (SELECT pg_advisory_xact_lock_shared({LOG_LOCK}) OFFSET 0) AS locked;
{_COPY}
""".encode()


@dataclass(frozen=True, kw_only=True, slots=True)
class EventLines:
    """Events as COPY's text, and their members that are counted."""

    text: str
    occurred_at: Sequence[datetime]
    names: Sequence[str]
    commits: Sequence[str | None]
    environments: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class EventColumns:
    """Events as they are stored, column by column, but for their time of receipt.

    Many events cost half as much by their columns as row by row. Members are those of
    `RuntimeEvent`, an entry an event.
    """

    project_id: Iterable[int]
    environment: Sequence[str]
    event: Sequence[str]
    session_id: Sequence[str]
    occurred_at: Sequence[datetime]
    occurred_text: Sequence[str | None]
    commit_sha: Sequence[str | None]
    route: Sequence[str | None]
    pseudonym: Sequence[bytes | None]
    trusted: Iterable[bool]
    event_id: Sequence[str | None]
    value: Sequence[int | None]
    flags: Sequence[str | None]
    properties: Sequence[str | None]
    signed: Iterable[bool]
    sent_at: Sequence[str | None]

    @classmethod
    def of(cls, events: Sequence[RuntimeEvent]) -> Self:
        """Returns the columns of some events."""
        names = RuntimeEvent.__struct_fields__
        columns = [*map(list, zip(*map(astuple, events), strict=True))] or [[]] * len(names)
        return cls(**dict(zip(names, columns, strict=True)))

    def lines(self, *, history: bool = False) -> EventLines:
        """Returns the events as lines; those of the past are received when they occurred."""
        return EventLines(
            text=_lines(self._fields(), history=history),
            occurred_at=self.occurred_at,
            names=self.event,
            commits=self.commit_sha,
            environments=self.environment,
        )

    def _fields(self) -> list[tuple[str, ...]]:
        """Returns the members of each event as texts, in the order of COLUMNS, but for the last."""
        times = zip(self.occurred_text, self.occurred_at, strict=True)
        return list(
            zip(
                map(str, self.project_id),
                self.environment,
                self.event,
                self.session_id,
                [text or at.isoformat() for text, at in times],
                _texts(self.commit_sha, str),
                _texts(self.route, str),
                _texts(self.pseudonym, lambda pseudonym: f"\\x{pseudonym.hex()}"),
                map(_LETTERS.__getitem__, self.trusted),
                _texts(self.event_id, str),
                _texts(self.value, str),
                _texts(self.flags, str),
                _texts(self.properties, str),
                map(_LETTERS.__getitem__, self.signed),
                _texts(self.sent_at, str),
                strict=False,
            )
        )


_LETTERS = {True: "t", False: "f"}


def _texts(column: Sequence[MemberT | None], as_text: Callable[[MemberT], str]) -> Iterable[str]:
    # Most members are left out by all events, or by none.
    if column.count(None) == len(column):
        return repeat("")
    return ["" if member is None else as_text(member) for member in column]


def event_lines(events: Sequence[RuntimeEvent], *, history: bool = False) -> EventLines:
    """Returns events as lines; those of the past are received when they occurred."""
    return EventColumns.of(events).lines(history=history)


def _lines(rows: Sequence[tuple[str, ...]], *, history: bool) -> str:
    if history:
        rows = [(*fields, fields[_TIME]) for fields in rows]
    text = "\n".join([*map("\t".join, rows), ""])
    # A tab or line feed within a text is rare: then it is a separator too many.
    tabs = len(rows[0]) - 1 if rows else 0
    if text.count("\t") == tabs * len(rows) and text.count("\n") == len(rows):
        return text.replace("\\", r"\\").replace("\r", r"\r")
    escaped = ["\t".join([field.translate(_ESCAPES) for field in row]) for row in rows]
    return "\n".join([*escaped, ""])


class EventWriter:
    """Appends events to the log: a single COPY and commit for all requests that wait."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._batcher: Batcher[str, datetime] = Batcher(
            url, self._commit, connections=2, large=_LARGE_ROUND
        )
        self._days: set[date] = set()
        self._clock_offset = timedelta(0)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """Runs the writer; at the end everything that waits is written first."""
        async with self._batcher.running():
            yield self

    def now(self) -> datetime:
        """Returns the store's time, as estimated at the last commit."""
        return datetime.now(UTC) + self._clock_offset

    async def append(self, lines: EventLines) -> datetime:
        """Stores events and returns their time of receipt, once they are committed.

        Raises:
            StoreUnavailable: Nothing of the request was stored, or its commit was lost sight of.
        """
        return await self._batcher.submit(lines.text, size=len(lines.text))

    async def _commit(self, exchange: Exchange, appends: Sequence[str]) -> Sequence[datetime]:
        lines = "".join(appends)
        while True:
            microseconds = (await exchange.begun(_APPEND)).get_value(0, 0)
            if microseconds is None:  # pragma: no cover - a clock is never NULL
                raise psycopg.OperationalError("the store did not tell its time")
            received_at = EPOCH + int(microseconds) * MICROSECOND
            # Before the lines are written: what they take is no part of a clock's difference.
            self._clock_offset = received_at - datetime.now(UTC)
            if received_at.date() in self._days:
                ended = f"\t{received_at.isoformat()}\n"
                await exchange.copied(lines.replace("\n", ended).encode())
                break
            await exchange.abandoned()
            await asyncio.to_thread(_create_days, self._url, received_at.date())
            self._days = {received_at.date(), received_at.date() + timedelta(days=1)}
        return [received_at] * len(appends)


def _create_days(url: str, today: date) -> None:
    with opened_engine(url) as engine, engine.begin() as connection:
        create_days(connection, (today, today + timedelta(days=1)))


_CLOSED = text(f"""
SELECT DISTINCT ON (x.environment) x.experiment_id, x.environment,
    coalesce(x.starts_at, b.began_at) AS starts_at,
    coalesce({HISTORY_FROM}, b.began_at - interval '30 minutes') AS closed_from
FROM experiments AS x
-- Until its start is frozen it may be any time since then.
CROSS JOIN LATERAL (SELECT CAST(x.binding ->> 'began_at' AS timestamptz) AS began_at) AS b
WHERE x.project_id = :project_id AND x.bound_at IS NOT NULL AND x.cannot_start IS NULL
ORDER BY x.environment, closed_from
""")


def append_history(
    connection: Connection, events: Sequence[RuntimeEvent], *, most_new_days: int = MOST_NEW_DAYS
) -> None:
    """Stores events of the past of a project, received when they occurred.

    Raises:
        Conflict: An event falls at or after the start of an experiment that is already bound
            in its environment: its past is closed. Or there are too many days. Nothing is stored.
    """
    if not events:
        return
    hours = {hour_of(event.occurred_at) for event in events}
    days = {hour.date() for hour in hours}
    write_past_days(connection, days, most_new=most_new_days)
    part = next_part(connection, days)
    lock_project(connection, events[0].project_id, shared=True)
    moments = [(event.environment, event.occurred_at) for event in events]
    require_open_history(connection, events[0].project_id, moments)
    receipt_time(connection)
    copy_history(connection, [event_lines(events, history=True).text.encode()], part=part)
    note_part(connection, part, hours)
    note_history(connection, events[0].project_id, moments)
    names = {event.event for event in events}
    note_names(connection, {events[0].project_id: names}, live=False)


# Anybody who has a public key can invent names: so many of a project are kept.
MOST_INVENTED = 1000
_NOTE_NAMES = text(f"""
WITH named AS (
    SELECT n.project_id, n.event, s.newest_at, s.vouched, s.claimed_at, row_number() OVER (
        PARTITION BY n.project_id, s.event IS NULL ORDER BY n.event
    ) AS place
    FROM unnest(CAST(:ids AS int[]), CAST(:names AS text[])) AS n (project_id, event)
    LEFT JOIN seen_names AS s USING (project_id, event)
)
INSERT INTO seen_names AS s (project_id, event, first_at, newest_at, vouched, claimed_at)
SELECT n.project_id, n.event, t.newest_at, t.newest_at, :vouched,
    CASE WHEN NOT :vouched THEN t.newest_at END
FROM named AS n
CROSS JOIN (
    SELECT CASE WHEN :live THEN clock_timestamp() ELSE '-infinity' END AS newest_at
) AS t
WHERE CASE
    WHEN n.newest_at IS NULL THEN :vouched OR :is_read OR n.place + (
        SELECT count(*) FROM seen_names AS o WHERE o.project_id = n.project_id AND NOT o.vouched
    ) <= {MOST_INVENTED}
    -- To an hour: a name that comes all the time costs a look at the index.
    ELSE n.newest_at < t.newest_at - interval '1 hour' OR n.vouched < :vouched
        OR NOT :vouched AND coalesce(n.claimed_at < t.newest_at - interval '1 hour', true)
END
-- In one order, so that no two processes wait for one another.
ORDER BY n.project_id, n.event
ON CONFLICT (project_id, event) DO UPDATE
SET newest_at = greatest(s.newest_at, excluded.newest_at),
    vouched = s.vouched OR excluded.vouched,
    claimed_at = greatest(s.claimed_at, excluded.claimed_at)
""")


def note_names(
    connection: Connection,
    names: Mapping[int, Collection[str]],
    *,
    live: bool = True,
    vouched: bool = True,
    is_read: bool = False,
) -> None:
    """Notes the names of events by project, and to an hour when each came last.

    Args:
        vouched: Whether a write key sent them, and not the public key.
        is_read: Whether a metric reads them. Of others that nobody vouches for a project has
            `MOST_INVENTED` at most.
    """
    pairs = [(project_id, name) for project_id, of in names.items() for name in of]
    if pairs:
        ids, events = zip(*pairs, strict=True)
        bound = {"ids": list(ids), "names": list(events), "live": live}
        bound |= {"vouched": vouched, "is_read": is_read}
        connection.execute(_NOTE_NAMES, bound)


def copy_history(
    connection: Connection, blocks: Iterable[bytes], *, part: int | None = None
) -> None:
    """Copies lines of events into the log.

    Args:
        connection: In a transaction that keeps the days of the events from being dropped
            (`write_past_days`), and that asks `require_open_history` before it commits.
        blocks: The text of `EventLines` of the past, cut anywhere.
        part: What `storage.log.parts.next_part` returns of their days; `note_part` must follow.
    """
    copy = _COPY.encode()
    if part is not None:
        copy = copy.replace(b"received_at)", b"received_at, part)")
        blocks = (block.replace(b"\n", b"\t%d\n" % part) for block in blocks)
    driver = connection.connection.driver_connection
    if isinstance(driver, AsyncConnection):
        # The API's connections are asyncio's, under SQLAlchemy's blocking face.
        await_only(_copied(driver, copy, blocks))
    elif isinstance(driver, psycopg.Connection):
        with driver.cursor().copy(copy) as copying:
            for block in blocks:
                copying.write(block)


async def _copied(connection: AsyncConnection[Any], copy: bytes, blocks: Iterable[bytes]) -> None:
    async with connection.cursor().copy(copy) as copying:
        for block in blocks:
            await copying.write(block)


@dataclass(frozen=True, kw_only=True)
class ClosedHistory:
    """The past of an environment that experiments have been measuring."""

    environment: str
    closed_from: datetime
    experiment_id: str
    starts_at: datetime

    def require_before(self, latest: datetime) -> None:
        """Refuses history whose latest event falls into it.

        Raises:
            Conflict: It does.
        """
        if latest >= self.closed_from:
            raise Conflict(
                "history_closed",
                f"experiment {self.experiment_id} has been measuring {self.environment!r} since"
                f" {self.starts_at.isoformat()}: send history before registering",
            )


def closed_histories(connection: Connection, project_id: int) -> dict[str, ClosedHistory]:
    """Returns the closed histories of a project, by environment."""
    rows = connection.execute(_CLOSED, {"project_id": project_id})
    return {row.environment: value_of(ClosedHistory, row) for row in rows}


def require_open_history(
    connection: Connection, project_id: int, moments: Iterable[tuple[str, datetime]]
) -> None:
    """Refuses what would change the past of a bound experiment.

    Args:
        connection: In the transaction that stores; final once it has locked its project.

    Raises:
        Conflict: An event falls at or after the start of an experiment that is bound.
    """
    latest: dict[str, datetime] = {}
    for environment, moment in moments:
        latest[environment] = max(moment, latest.get(environment, moment))
    closed = closed_histories(connection, project_id)
    for environment in sorted(latest.keys() & closed.keys()):
        closed[environment].require_before(latest[environment])


_NOTE_HISTORY = text("""
INSERT INTO histories AS h (project_id, environment, day, newest_at, brought_at)
SELECT :project_id, environment, CAST(at AT TIME ZONE 'UTC' AS date), max(at), clock_timestamp()
FROM unnest(CAST(:environments AS text[]), CAST(:moments AS timestamptz[])) AS _ (environment, at)
GROUP BY 2, 3 ORDER BY 2, 3
ON CONFLICT (project_id, environment, day) DO UPDATE
SET newest_at = greatest(h.newest_at, excluded.newest_at), brought_at = excluded.brought_at
""")


def note_history(
    connection: Connection, project_id: int, moments: Sequence[tuple[str, datetime]]
) -> None:
    """Notes of which days events came as history: who registers after them could look first."""
    environments, times = map(list, zip(*moments, strict=True))
    bound = {"project_id": project_id, "environments": environments, "moments": times}
    connection.execute(_NOTE_HISTORY, bound)
