"""The raw log of an experiment, as the oracle reads it: row by row, from PostgreSQL."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, TextClause, text

from storage.pipeline.moments import microseconds
from tests.oracle.calendar import BLOCK, SECOND, block_of

# A client's clock may run ahead by 2 minutes; and a minute for the servers' own.
_AHEAD = timedelta(minutes=3)
_ROWS_AT_ONCE = 10_000
# The requests of a session are compared within the half hour of each, and those beside it.
_VISIT = 1800 * SECOND
_SKEW = 5 * SECOND


class RawEvent(NamedTuple):
    """A runtime event as received; times in microseconds since the epoch, `value` in millionths.

    `stamped_at` is by the sender's clock, which showed `sent_at`; `occurred_at` by its session's.
    """

    event: str
    session_id: str
    occurred_at: int
    received_at: int
    commit: str | None
    route: str | None
    pseudonym: bytes | None
    trusted: bool
    event_id: str | None
    value: int | None
    flags: Mapping[str, object] | None
    signed: bool
    properties: Mapping[str, object] | None
    sent_at: int | None
    stamped_at: int


class RawRevenue(NamedTuple):
    """A revenue event as received; times in microseconds since the epoch."""

    event: str
    key: str
    occurred_at: int
    received_at: int
    amount: int | None
    currency: str | None
    pseudonym: bytes | None
    session_id: str | None
    attributes: Mapping[str, object] | None


class Sighting(NamedTuple):
    """A user that an event of a session named, who may be forgotten (b""), in microseconds."""

    session_id: str
    occurred_at: int
    received_at: int
    pseudonym: bytes


class RawDeploy(NamedTuple):
    """A deploy of the environment; times in microseconds since the epoch."""

    deploy_id: str
    commit: str
    base: str | None
    base_assumed: bool
    deployed_at: int
    recorded_at: int
    allocation: float | None
    posted: Mapping[str, Any]


def _micros(column: str) -> str:
    return f"(extract(epoch FROM {column}) * 1000000)::bigint"


_EVENTS = text(f"""
SELECT event, session_id, {_micros("occurred_at")}, {_micros("received_at")}, commit_sha, route,
    pseudonym, trusted, event_id, value, flags, signed, properties, {_micros("sent_at")},
    {_micros("occurred_at")}
FROM runtime_events
WHERE project_id = :project_id AND environment = :environment
  AND received_at >= :received_from AND received_at <= :until
""")

_REVENUE = text(f"""
SELECT event, idempotency_key, {_micros("occurred_at")}, {_micros("received_at")},
    amount_value, amount_currency, pseudonym, session_id, attributes
FROM revenue_events
WHERE project_id = :project_id AND coalesce(environment, :environment) = :environment
  AND received_at <= :until AND occurred_at >= :since
""")

_SIGHTINGS = text(f"""
SELECT session_id, {_micros("occurred_at")}, {_micros("received_at")}, pseudonym
FROM runtime_events
WHERE project_id = :project_id AND environment = :environment
  AND received_at >= :since AND received_at <= :until
  AND pseudonym IS NOT NULL AND (trusted OR NOT :trusted_only)
  AND (trusted OR signed OR NOT :vouched_only)
UNION ALL
SELECT session_id, 0, {_micros("received_at")}, '' FROM forgotten_names
WHERE project_id = :project_id AND environment = :environment
  AND received_at >= :since AND received_at <= :until AND (trusted OR NOT :trusted_only)
  AND (trusted OR signed OR NOT :vouched_only)
""")

_DEPLOYS = text(f"""
SELECT deploy_id, commit_sha, base_commit, base_assumed, {_micros("deployed_at")},
    {_micros("recorded_at")}, allocation, commit
FROM deploys
WHERE project_id = :project_id AND environment = :environment
  AND (withdrawn_at IS NULL OR withdrawn_at > :bound_at)
ORDER BY deployed_at, recorded_at, deploy_id
""")


def _in_session_time(events: Iterable[RawEvent]) -> Iterator[RawEvent]:
    """Moves the events of each session by the smallest delay of its requests."""
    sessions: dict[str, list[RawEvent]] = defaultdict(list)
    for event in events:
        sessions[event.session_id].append(event)
    for own in sessions.values():
        requests = sorted(
            (each.received_at, each.received_at - each.sent_at)
            for each in own
            if each.sent_at is not None
        )
        for event in own:
            visit = event.received_at // _VISIT
            beside = [each for each in requests if abs(each[0] // _VISIT - visit) <= 1]
            yield event if event.sent_at is None else _moved(event, beside)


def _moved(event: RawEvent, requests: Iterable[tuple[int, int]]) -> RawEvent:
    """Moves an event by the clock of its sender, as known when its block ended."""
    occurred, moved, smallest = None, 0, 0
    for received, delay in requests:
        if occurred is not None and received >= block_of(occurred) + BLOCK:
            break
        smallest = delay if occurred is None else min(smallest, delay)
        before, moved = moved, smallest if abs(smallest) > _SKEW else 0
        if occurred is None:
            occurred = event.stamped_at + moved
        elif moved < before:
            occurred = max(event.stamped_at + moved, block_of(received))
    return event._replace(occurred_at=occurred)


@dataclass(frozen=True, kw_only=True)
class RawLog:
    """The log of a project's environment over a span of time."""

    connection: Connection
    project_id: int
    environment: str
    since: datetime
    until: datetime

    def _rows(self, statement: TextClause, **more: object) -> Iterator[Row[Any]]:
        asked = {
            "project_id": self.project_id,
            "environment": self.environment,
            "since": self.since,
            "until": self.until,
            **more,
        }
        options = {"yield_per": _ROWS_AT_ONCE}
        yield from self.connection.execute(statement, asked, execution_options=options)

    def events(self) -> Iterator[RawEvent]:
        """Yields the runtime events, in no order."""
        since, begins = microseconds(self.since), self.since - _AHEAD
        read_from = begins - timedelta(microseconds=2 * _VISIT)
        rows = map(RawEvent._make, self._rows(_EVENTS, received_from=read_from))
        for event in _in_session_time(rows):
            if event.received_at >= microseconds(begins) and event.occurred_at >= since:
                yield event

    def revenue(self) -> Iterator[RawRevenue]:
        """Yields the revenue events, in no order."""
        return map(RawRevenue._make, self._rows(_REVENUE))

    def sightings(
        self, *, since: datetime, trusted_only: bool, vouched_only: bool
    ) -> Iterator[Sighting]:
        """Yields every session's users by the time of receipt, in no order."""
        asked = {"trusted_only": trusted_only, "vouched_only": vouched_only}
        rows = self._rows(_SIGHTINGS, since=since, **asked)
        return map(Sighting._make, rows)

    def deploys(self, *, bound_at: datetime) -> list[RawDeploy]:
        """Returns the deploys of all times that an experiment bound then reads, in order."""
        return list(map(RawDeploy._make, self._rows(_DEPLOYS, bound_at=bound_at)))
