"""Counts of history: units and outcomes of two commits in the log, as an import reports them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from domain.metric import DAY
from domain.route import RouteTable
from storage.postgres.rows import value_of

# Where events of a file stand that is only rehearsed.
REHEARSAL = "rehearsed_events"


@dataclass(frozen=True, kw_only=True)
class ArmCount:
    """The log's counts of an arm.

    Attributes:
        units: Units whose first event on the routes named the arm's commit, before the horizon.
        after_horizon: Units whose first event came at the horizon or later; they do not count.
        converting: Those of them with an outcome within the window of their exposure.
        total: The sum of these outcomes' values.
    """

    units: int = 0
    after_horizon: int = 0
    converting: int = 0
    total: float = 0.0


@dataclass(frozen=True, kw_only=True)
class HistoryCount:
    """The log's counts of a comparison of two commits.

    Attributes:
        outcomes: How many events of the metric units of either arm sent.
        before: How many of these came before the exposure.
        after: How many came after its window.
        longest: How long after the exposure the last outcome came.
    """

    control: ArmCount
    treatment: ArmCount
    outcomes: int
    before: int
    after: int
    longest: timedelta


_ROUTES = """
SELECT DISTINCT route FROM {table}
WHERE project_id = :project_id AND environment = :environment
  AND received_at >= :since AND occurred_at >= :since AND route IS NOT NULL
"""

_COUNT = """
WITH exposed AS MATERIALIZED (
    -- The arm stands in the last digit, so that the first event is a minimum of integers.
    SELECT {unit} AS unit, min(
        (extract(epoch FROM occurred_at) * 1000000)::bigint * 2
        + (commit_sha = ANY(:treatment))::int
    ) AS first
    FROM {table}
    WHERE project_id = :project_id AND environment = :environment
      AND received_at >= :since AND occurred_at >= :since
      AND (commit_sha = ANY(:control) OR commit_sha = ANY(:treatment))
      AND (CAST(:routes AS text[]) IS NULL OR route = ANY(:routes))
    GROUP BY 1
), outcome AS (
    SELECT {unit} AS unit, (extract(epoch FROM occurred_at) * 1000000)::bigint AS micros, value
    FROM {table}
    WHERE project_id = :project_id AND environment = :environment
      AND received_at >= :since AND event = ANY(:sources)
), told AS (
    SELECT x.unit, x.first % 2 AS arm, o.micros - x.first / 2 AS delay, o.value
    FROM outcome AS o JOIN exposed AS x USING (unit)
    WHERE x.first / 2 < :horizon
), converted AS (
    SELECT arm, count(DISTINCT unit) AS converting, sum(value) / 1e6 AS total
    FROM told WHERE delay BETWEEN 0 AND :window
    GROUP BY arm
), arms AS (
    SELECT first % 2 AS arm, count(*) FILTER (WHERE first / 2 < :horizon) AS units,
        count(*) FILTER (WHERE first / 2 >= :horizon) AS after_horizon
    FROM exposed WHERE unit IS NOT NULL GROUP BY 1
), span AS (
    SELECT count(*) AS outcomes, count(*) FILTER (WHERE delay < 0) AS before,
        count(*) FILTER (WHERE delay > :window) AS after, max(delay) AS longest
    FROM told
)
SELECT a.arm, a.units, a.after_horizon, coalesce(c.converting, 0) AS converting,
    coalesce(c.total, 0) AS total, span.*
FROM span LEFT JOIN arms AS a ON true LEFT JOIN converted AS c USING (arm)
"""

_UNITS = {"session": "session_id", "user": "encode(pseudonym, 'hex')"}


def count_history(
    connection: Connection,
    project_id: int,
    environment: str,
    *,
    control: Sequence[str],
    treatment: Sequence[str],
    metric: Mapping[str, Any],
    routes: Sequence[str] | None,
    since: datetime,
    horizon_days: int,
    unit: str,
    table: str = "runtime_events",
) -> HistoryCount:
    """Counts the log's units and outcomes of two commits since a time.

    It reads the log alone, without lineages, blocks and graces: of a file with a deploy each it
    equals the counts of the verdict.

    Args:
        control: How events write control's commit.
        treatment: How they write treatment's.
        metric: The target's whole definition.
        routes: Patterns of the routes that expose a unit; None for all.
        since: The start of the experiment.
        horizon_days: For how many days from then on units are exposed.
        unit: The randomized unit: `session` or `user`.
        table: The log, or a table like it.
    """
    where = {"project_id": project_id, "environment": environment, "since": since}
    exposing: list[str] | None = None
    if routes is not None:
        patterns = RouteTable(routes)
        served = connection.execute(text(_ROUTES.format(table=table)), where).scalars()
        exposing = [route for route in served if patterns.match(route) is not None]
    # Of rows that were copied a moment ago the planner knows nothing, and would loop over all units
    # for each outcome; and millions of units in 4 MB go by way of the disk.
    connection.execute(text("SET LOCAL enable_nestloop = off"))
    connection.execute(text("SET LOCAL work_mem = '64MB'"))
    rows = connection.execute(
        text(_COUNT.format(table=table, unit=_UNITS[unit])),
        {
            **where,
            "control": list(control),
            "treatment": list(treatment),
            "routes": exposing,
            "sources": list(metric["sources"]),
            "window": metric["window_seconds"] * 1_000_000,
            "horizon": round((since.timestamp() + horizon_days * DAY) * 1_000_000),
        },
    ).all()
    arms = {
        row.arm: value_of(ArmCount, row, total=float(row.total))
        for row in rows
        if row.arm is not None
    }
    return HistoryCount(
        control=arms.get(0, ArmCount()),
        treatment=arms.get(1, ArmCount()),
        outcomes=rows[0].outcomes,
        before=rows[0].before,
        after=rows[0].after,
        longest=timedelta(microseconds=rows[0].longest or 0),
    )


def make_rehearsal(connection: Connection) -> None:
    """Makes a table like the log that is gone at the transaction's end."""
    connection.execute(text(f"CREATE TEMP TABLE {REHEARSAL} (LIKE runtime_events) ON COMMIT DROP"))


_NAMED = text("""
SELECT
    ARRAY(
        SELECT name FROM unnest(CAST(:events AS text[])) AS name
        WHERE EXISTS (
            SELECT FROM runtime_events AS e
            WHERE e.project_id = :project_id AND e.environment = :environment AND e.event = name
        ) OR EXISTS (
            SELECT FROM revenue_events AS r WHERE r.project_id = :project_id AND r.event = name
        )
    ) AS events,
    ARRAY(
        SELECT name FROM unnest(CAST(:commits AS text[])) AS name
        WHERE EXISTS (
            SELECT FROM runtime_events AS e
            WHERE e.project_id = :project_id AND e.environment = :environment
              AND e.commit_sha = name
        )
    ) AS commits
""")


def names_in_log(
    connection: Connection,
    project_id: int,
    environment: str,
    *,
    events: Sequence[str] = (),
    commits: Sequence[str] = (),
) -> set[str]:
    """Returns those of some names that an event of the log has: of events, or of commits.

    It may read the whole log of a project for a name that nothing has.
    """
    row = connection.execute(
        _NAMED,
        {
            "project_id": project_id,
            "environment": environment,
            "events": list(events),
            "commits": list(commits),
        },
    ).one()
    return {*row.events, *row.commits}
