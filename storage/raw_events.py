"""The raw log of one experiment, and what is served of it: two sides that an audit compares."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, TextClause, text

from storage.gone_events import days_dropped
from storage.log.reader import keep_log
from storage.partitions import existing_days, partition_name
from storage.refusal import Missing

# A client's clock may run ahead by 2 minutes; and a minute for the servers' own.
_AHEAD = timedelta(minutes=3)
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, kw_only=True)
class FrozenExperiment:
    """A bound experiment as it was frozen at its binding."""

    experiment_id: str
    project_id: int
    environment: str
    starts_at: datetime
    bound_at: datetime
    closed_at: datetime | None
    change: Sequence[str]
    treatment_commit: str
    deploy_id: str
    policy: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ServedVerdict:
    """A verdict as it is served, to the byte; `bound` unless it still waits for a deploy."""

    contract: str
    evidence: str | None
    decided: bool
    as_of: datetime | None
    bound: bool


_SERVED = text("""
SELECT v.contract::text AS contract, v.evidence::text AS evidence, v.decided, v.as_of,
    x.bound_at IS NOT NULL AS bound
FROM verdicts AS v JOIN experiments AS x USING (experiment_id)
WHERE v.experiment_id = :id
""")

_FROZEN = text("""
SELECT experiment_id, project_id, environment, starts_at, bound_at, closed_at, change,
    treatment_commit, deploy_id, policy
FROM experiments WHERE experiment_id = :id AND bound_at IS NOT NULL
""")


def freeze_reads(connection: Connection) -> None:
    """Makes all reads of this connection's transaction see one state of the store.

    Args:
        connection: Before its first statement.
    """
    connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
    keep_log(connection)


def read_served(connection: Connection, experiment_id: str) -> ServedVerdict:
    """Returns the verdict of an experiment of any project, as it is served.

    Raises:
        Missing: There is no such experiment.
    """
    row = connection.execute(_SERVED, {"id": experiment_id}).mappings().one_or_none()
    if row is None:
        raise Missing("unknown_experiment", f"there is no experiment {experiment_id}")
    return ServedVerdict(**row)


def read_frozen(connection: Connection, experiment_id: str) -> FrozenExperiment:
    """Returns a bound experiment.

    Raises:
        Missing: There is no such experiment, or it still waits for its deploy.
    """
    row = connection.execute(_FROZEN, {"id": experiment_id}).mappings().one_or_none()
    if row is None:
        raise Missing("unknown_experiment", f"there is no bound experiment {experiment_id}")
    return FrozenExperiment(**row)


# --- The log -----------------------------------------------------------------------------------


class RawEvent(NamedTuple):
    """A runtime event as received; times in microseconds since the epoch, `value` in millionths."""

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


class RawRevenue(NamedTuple):
    """A revenue event as received; times in microseconds since the epoch."""

    event: str
    key: str
    occurred_at: int
    received_at: int
    amount: int | None
    currency: str | None
    pseudonym: bytes
    session_id: str | None


class Sighting(NamedTuple):
    """A user that an event of a session named; times in microseconds since the epoch."""

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


def _micros(column: str) -> str:
    return f"(extract(epoch FROM {column}) * 1000000)::bigint"


_EVENTS = text(f"""
SELECT event, session_id, {_micros("occurred_at")}, {_micros("received_at")}, commit_sha, route,
    pseudonym, trusted, event_id, value, flags, signed
FROM runtime_events
WHERE project_id = :project_id AND environment = :environment
  AND received_at >= :received_from AND received_at <= :until AND occurred_at >= :since
""")

_REVENUE = text(f"""
SELECT event, idempotency_key, {_micros("occurred_at")}, {_micros("received_at")},
    amount_value, amount_currency, pseudonym, session_id
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
""")

_DEPLOYS = text(f"""
SELECT deploy_id, commit_sha, base_commit, base_assumed, {_micros("deployed_at")},
    {_micros("recorded_at")}, allocation
FROM deploys
WHERE project_id = :project_id AND environment = :environment
  AND (withdrawn_at IS NULL OR withdrawn_at > :bound_at)
ORDER BY deployed_at, recorded_at, deploy_id
""")


@dataclass(frozen=True, kw_only=True)
class RawLog:
    """The log of one project's environment over a span of time.

    Attributes:
        connection: To the store.
        project_id: The project.
        environment: Of the events and deploys.
        since: The earliest time of occurrence.
        until: The latest time of receipt.
    """

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
        return map(RawEvent._make, self._rows(_EVENTS, received_from=self.since - _AHEAD))

    def revenue(self) -> Iterator[RawRevenue]:
        """Yields the revenue events, in no order."""
        return map(RawRevenue._make, self._rows(_REVENUE))

    def sightings(self, *, since: datetime, trusted_only: bool) -> Iterator[Sighting]:
        """Yields every session's users by the time of receipt, in no order."""
        rows = self._rows(_SIGHTINGS, since=since, trusted_only=trusted_only)
        return map(Sighting._make, rows)

    def deploys(self, *, bound_at: datetime) -> list[RawDeploy]:
        """Returns the deploys of all times that an experiment bound then reads, in order."""
        return list(map(RawDeploy._make, self._rows(_DEPLOYS, bound_at=bound_at)))


_COUNTED = text("""
SELECT DISTINCT block AS from_moment,
    block + interval '5 minutes' + make_interval(secs => :grace) AS to_moment
FROM cells WHERE experiment_id = :id AND block <= :until AND n1 + n0 > 0
UNION ALL
SELECT DISTINCT s.at - interval '5 minutes' - make_interval(secs => :grace), s.at
FROM sightings AS s
WHERE s.experiment_id = :id AND s.kind = 'in_flight' AND s.at <= :until
""")


def days_gone(
    connection: Connection, experiment: FrozenExperiment, *, until: datetime
) -> list[str]:
    """Returns the partitions that an audit would read, or units were counted from, and that went.

    Those that the retention dropped; and those that somebody else did: a day without a partition
    may be one on which nothing was received, so that of these only a day counts of which the store
    still holds what was counted from it.
    """
    present = existing_days(connection)
    grace = experiment.policy["grace_seconds"]
    dropped = days_dropped(connection, experiment_id=experiment.experiment_id)
    gone = {partition_name(day) for days in dropped.values() for day in days}
    for row in connection.execute(
        _COUNTED, {"id": experiment.experiment_id, "until": until, "grace": grace}
    ):
        days = [moment.date() for moment in (row.from_moment, row.to_moment)]
        early = (row.from_moment - _AHEAD).date()
        if not present & {partition_name(day) for day in (early, *days)}:
            gone |= {partition_name(day) for day in days}
    return sorted(gone)


# --- What is served ----------------------------------------------------------------------------

_EXPOSURES = text("""
SELECT unit, exposed_at, arm, stratum, commit_sha, pseudonym
FROM exposures
WHERE experiment_id = :id
  AND block + interval '5 minutes' + make_interval(secs => :grace) <= :until
""")

_UNEXPOSED = text("""
SELECT kind, unit, at FROM sightings
WHERE experiment_id = :id AND at <= :until
""")

# Outcomes are noted as they come: those of exposures that close later are not yet asked for.
_ASKED_FOR = """
  AND NOT EXISTS (
      SELECT FROM exposures AS p
      WHERE p.experiment_id = o.experiment_id AND p.unit = o.unit
        AND p.block + interval '5 minutes' + make_interval(secs => :grace) > :until
  )
"""

_CONVERSIONS = text(f"""
SELECT metric, unit, received_at FROM conversions AS o
WHERE experiment_id = :id AND received_at <= :until {_ASKED_FOR}
""")

_AMOUNTS = text(f"""
-- Without the keys, which are the pipeline's own.
SELECT metric, unit, array_agg(value ORDER BY value) AS values FROM amounts AS o
WHERE experiment_id = :id AND received_at <= :until {_ASKED_FOR}
GROUP BY metric, unit
""")

_CELLS = text("""
SELECT metric, block, stratum, n1, x1, n0, x0, y1, yy1, y0, yy0 FROM cells
WHERE experiment_id = :id
""")


@dataclass(frozen=True, kw_only=True)
class ServedTables:
    """What the pipeline derived for one experiment, by what each row is known by.

    Attributes:
        exposures: Of each unit (exposed_at, arm, stratum, commit, pseudonym).
        sightings: Of each (kind, unit) when it was known.
        conversions: Of each (metric, unit) the earliest receipt.
        amounts: Of each (metric, unit) the values in order.
        cells: Of each (metric, block, stratum) the counts and sums.
    """

    exposures: Mapping[Any, tuple[Any, ...]]
    sightings: Mapping[Any, tuple[Any, ...]]
    conversions: Mapping[Any, tuple[Any, ...]]
    amounts: Mapping[Any, tuple[Any, ...]]
    cells: Mapping[Any, tuple[Any, ...]]


def read_derived(
    connection: Connection, experiment: FrozenExperiment, *, until: datetime
) -> ServedTables:
    """Returns what the pipeline derived for an experiment from what had closed by a time."""
    asked = {
        "id": experiment.experiment_id,
        "until": until,
        "grace": experiment.policy["grace_seconds"],
    }

    def rows(statement: TextClause, *, keys: int) -> dict[Any, tuple[Any, ...]]:
        named = {name: asked[name] for name in statement.compile().params}
        found = (tuple(row) for row in connection.execute(statement, named))
        return {row[0] if keys == 1 else row[:keys]: row[keys:] for row in found}

    return ServedTables(
        exposures=rows(_EXPOSURES, keys=1),
        sightings=rows(_UNEXPOSED, keys=2),
        conversions=rows(_CONVERSIONS, keys=2),
        amounts=rows(_AMOUNTS, keys=2),
        cells=rows(_CELLS, keys=3),
    )
