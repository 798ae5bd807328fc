"""Sources: the state of the log's tables, and how late its events come."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from storage.postgres.rows import value_of
from storage.schema.encoding import on_our_clock
from storage.schema.policy_columns import GRACE_SECONDS


@dataclass(frozen=True, kw_only=True)
class SourceReading:
    """The state of a table of the log.

    Attributes:
        rows: How many there are; of events as PostgreSQL's own statistics count them, because
            to count a log costs as much as to read it.
        last_hour: How many came in the last hour.
        lag_seconds: From occurring to receipt, the 99th percentile of these.
    """

    rows: int
    last_hour: int
    newest: datetime | None
    lag_seconds: float | None


_EVENT_ROWS = """
    SELECT coalesce(sum(n_live_tup), 0)::bigint FROM pg_stat_user_tables
    WHERE relid = to_regclass('{table}')
       OR relid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass('{table}'))
"""
_READING = """
SELECT ({rows}) AS rows, count(*) AS last_hour, max({received}) AS newest,
    percentile_cont(0.99) WITHIN GROUP (
        ORDER BY extract(epoch FROM {received} - {occurred})
    )::float AS lag_seconds
FROM {table}
-- Not by clock_timestamp(), which may be another at each row: all days would be looked into.
WHERE {received} > statement_timestamp() - interval '1 hour'
  AND {received} <= statement_timestamp()
"""
_SOURCES = {
    "runtime_events": ("received_at", on_our_clock("runtime_events")),
    "revenue_events": ("received_at", "occurred_at"),
    "deploys": ("recorded_at", "deployed_at"),
    "graphs": ("uploaded_at", "uploaded_at"),
}


def read_sources(connection: Connection) -> dict[str, SourceReading]:
    """Returns the state of each table of the log, by its name."""
    readings: dict[str, SourceReading] = {}
    for table, (received, occurred) in _SOURCES.items():
        counted = _EVENT_ROWS if table.endswith("_events") else "SELECT count(*) FROM {table}"
        query = _READING.format(
            rows=counted.format(table=table), table=table, received=received, occurred=occurred
        )
        row = connection.execute(text(query)).one()
        readings[table] = value_of(SourceReading, row)
    return readings


_LAGS = text(f"""
-- Of the projects that measure something now: their events against the shortest grace in force.
WITH grace AS (
    SELECT x.project_id, x.environment, min({GRACE_SECONDS}) AS seconds
    FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
    WHERE x.frozen_at IS NOT NULL AND NOT v.decided
    GROUP BY x.project_id, x.environment
)
SELECT p.name AS project, g.environment, g.seconds AS grace_seconds, count(*) AS events,
    percentile_cont(0.99) WITHIN GROUP (
        ORDER BY extract(epoch FROM e.received_at - {on_our_clock("e")})
    )::float AS lag_seconds
FROM grace AS g
JOIN projects AS p USING (project_id)
JOIN runtime_events AS e
  ON e.project_id = g.project_id AND e.environment = g.environment
 AND e.received_at > statement_timestamp() - interval '1 hour'
 AND e.received_at <= statement_timestamp()
GROUP BY p.name, g.environment, g.seconds
ORDER BY p.name, g.environment
""")


@dataclass(frozen=True, kw_only=True)
class SourceLateness:
    """How late the events of an environment came; `lag_seconds` is the 99th percentile."""

    project: str
    environment: str
    grace_seconds: int
    events: int
    lag_seconds: float


def lags_of_measured_projects(connection: Connection) -> list[SourceLateness]:
    """Returns how late the last hour's events came, where an experiment is open."""
    return [value_of(SourceLateness, row) for row in connection.execute(_LAGS)]
