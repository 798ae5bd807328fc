"""Recent traffic: a project's runtime events of the last minutes that had any."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from domain.checklist.setup import CrowdedUnit, Seen, Traffic, UnmatchedFilter
from domain.metric import Metric
from domain.registration import ReceivedEvents
from domain.route import RouteTable
from storage.experiments.graphs import graph_patterns
from storage.log.received_events import TODAY
from storage.postgres.rows import value_of
from storage.schema.encoding import on_our_clock
from storage.tenants.settings import Settings
from storage.upkeep.event_commits import event_commits, newest_partitions

WINDOW = "5 minutes"
# How much of the end of each of the newest two days is read: some 300,000 events of all projects.
# So whoever asks costs a tenth of a second or two, however large the log is.
_MOST_PAGES = 4096
# Anybody who has a public key can invent environments and names, commits and routes.
_MOST_VALUES = 20
_MOST_NAMES = 100
# Among fewer events of a metric none may match its filter by chance.
_SOME = 20
# A hundredth of fewer is no event.
_MANY = 100

_TAIL = f"""
SELECT environment, event, session_id, {on_our_clock("e")} AS occurred_at, received_at, commit_sha,
    route, pseudonym, properties
FROM {{name}} AS e
WHERE ctid >= '({{page}},0)'::tid AND project_id = :project_id
  -- History is received when it occurred, and shows nothing of the senders of now.
  AND received_at <> occurred_at
"""

_NEWEST = """
SELECT environment, event, max(received_at) AS newest_at FROM ({tail}) AS t
GROUP BY environment, event ORDER BY newest_at DESC LIMIT :most_names
"""

_COUNTS = f"""
WITH counted AS (
    SELECT t.environment, event = 'page_view' AS page_view, commit_sha, route,
        CASE grouping(commit_sha, route)
            WHEN 3 THEN 'all' WHEN 1 THEN 'commit' ELSE 'route'
        END AS kind,
        count(*) AS events, count(commit_sha) AS committed, count(route) AS routed,
        count(pseudonym) AS named, count(*) FILTER (WHERE skewed) AS skewed,
        coalesce(sum(lag) FILTER (WHERE skewed), 0)::float AS skew_seconds,
        max(received_at) AS newest_at
    FROM ({{tail}}) AS t
    JOIN unnest(CAST(:environments AS text[]), CAST(:newest AS timestamptz[]))
        AS n (environment, newest_at)
        ON n.environment = t.environment AND t.received_at > n.newest_at - interval '{WINDOW}'
    CROSS JOIN LATERAL (
        SELECT extract(epoch FROM t.received_at - t.occurred_at)::float AS lag
    ) AS l
    CROSS JOIN LATERAL (
        SELECT lag NOT BETWEEN -5 AND coalesce(CAST(:graces AS jsonb) ->> event, :grace)::float
            AS skewed
    ) AS s
    GROUP BY t.environment, page_view,
        GROUPING SETS ((), (commit_sha), (route))
), ranked AS (
    SELECT *, row_number() OVER (
        PARTITION BY environment, page_view, kind ORDER BY events DESC, commit_sha, route
    ) AS place
    FROM counted
    WHERE (kind <> 'commit' OR commit_sha IS NOT NULL) AND (kind <> 'route' OR route IS NOT NULL)
)
SELECT environment, page_view, kind, coalesce(commit_sha, route, '') AS value, events, committed,
    routed, named, skewed, skew_seconds, newest_at
FROM ranked WHERE place <= :most_values
ORDER BY events DESC, value
"""

# Units of each of several builds: of no sticky router a visitor is in two.
_CROWDED = """
WITH sent AS MATERIALIZED (
    SELECT environment, commit_sha, kind, unit, count(*) AS events
    FROM ({tail}) AS t
    CROSS JOIN LATERAL (
        VALUES ('session', session_id), ('user', encode(pseudonym, 'hex'))
    ) AS u (kind, unit)
    WHERE commit_sha IS NOT NULL
    GROUP BY environment, commit_sha, kind, unit
), builds AS (
    SELECT environment, commit_sha, sum(events) AS events,
        count(*) OVER (PARTITION BY environment) AS builds
    FROM sent WHERE kind = 'session'
    GROUP BY environment, commit_sha
    HAVING sum(events) >= :many
)
SELECT kind, unit, sum(s.events)::bigint AS events, sum(b.events)::bigint AS of
FROM sent AS s JOIN builds AS b USING (environment, commit_sha)
WHERE unit IS NOT NULL AND b.builds > 1 AND s.events >= :some AND s.events > b.events * 0.01
GROUP BY environment, kind, unit, b.builds
HAVING count(*) = b.builds
ORDER BY events DESC, kind, unit LIMIT 100
"""

_UNMATCHED = f"""
SELECT DISTINCT ON (m.metric) m.metric, k.property, count(*) AS events,
    count(t.properties ->> k.property) AS carrying,
    mode() WITHIN GROUP (ORDER BY left(t.properties ->> k.property, 64)) AS usual
FROM jsonb_to_recordset(CAST(:filters AS jsonb)) AS m (metric text, sources jsonb, asked jsonb)
CROSS JOIN jsonb_object_keys(m.asked) AS k (property)
JOIN (
    SELECT event, properties FROM ({{tail}}) AS t
    UNION ALL
    (
        SELECT event, attributes::jsonb FROM revenue_events
        WHERE project_id = :project_id AND received_at > statement_timestamp() - interval '1 day'
        ORDER BY received_at DESC LIMIT 10000
    )
) AS t ON m.sources ? t.event
GROUP BY m.metric, k.property
HAVING count(*) >= {_SOME} AND NOT bool_or(NOT EXISTS (
    SELECT FROM jsonb_each(m.asked) AS a
    WHERE NOT coalesce(a.value ? (t.properties ->> a.key), false)
))
ORDER BY m.metric, carrying, k.property
"""


@dataclass(frozen=True, kw_only=True)
class RecentTraffic:
    """The recent events of a project.

    Attributes:
        by_environment: Those of the newest five minutes of each environment.
        names: Of the events at the log's end, the newest first.
        crowded: Units with more than 1 % of the events of each build, the largest first.
    """

    by_environment: Mapping[str, Traffic]
    names: Sequence[str]
    unmatched: Sequence[UnmatchedFilter]
    crowded: Sequence[CrowdedUnit]


def read_traffic(
    connection: Connection, project_id: int, *, graph_id: str | None, settings: Settings
) -> RecentTraffic:
    """Returns a project's recent events, as far as they stand at the log's end."""
    tail = " UNION ALL ".join(
        _TAIL.format(name=name, page=max(0, end - _MOST_PAGES))
        for name, end in newest_partitions(connection, limit=2).items()
    )
    if not tail:
        return RecentTraffic(by_environment={}, names=[], unmatched=[], crowded=[])
    bound = {"project_id": project_id, "most_names": _MOST_NAMES}
    events = connection.execute(text(_NEWEST.format(tail=tail)), bound).all()
    newest: dict[str, datetime] = {}
    for row in events:
        newest.setdefault(row.environment, row.newest_at)
    counts = {
        "project_id": project_id,
        "environments": list(newest),
        "newest": list(newest.values()),
        "grace": str(settings.grace_seconds),
        "graces": json.dumps(_graces(settings)),
        "most_values": _MOST_VALUES,
    }
    grouped: dict[str, list[Any]] = defaultdict(list)
    for row in connection.execute(text(_COUNTS.format(tail=tail)), counts) if newest else ():
        grouped[row.environment].append(row)
    named = event_commits(
        connection,
        {
            (project_id, row.environment, row.value)
            for rows in grouped.values()
            for row in rows
            if row.kind == "commit"
        },
    )
    routes = _matched(connection, project_id, graph_id, grouped)
    return RecentTraffic(
        by_environment={
            environment: _traffic(
                rows,
                deployed={commit for _, where, commit in named.known if where == environment},
                ambiguous={commit for _, where, commit in named.ambiguous if where == environment},
                routes=routes,
            )
            for environment, rows in grouped.items()
        },
        names=list(dict.fromkeys(row.event for row in events)),
        unmatched=_unmatched(connection, project_id, tail, settings.metrics),
        crowded=[
            value_of(CrowdedUnit, row)
            for row in connection.execute(
                text(_CROWDED.format(tail=tail)),
                {"project_id": project_id, "some": _SOME, "many": _MANY},
            )
        ],
    )


def _graces(settings: Settings) -> dict[str, int]:
    """Returns, by event, the longest grace of the metrics whose outcomes are waited for longer."""
    graces: dict[str, int] = {}
    for name, metric in settings.metrics.items():
        if (own := metric.grace_seconds or 0) > settings.grace_seconds:
            graces |= {each: max(own, graces.get(each, 0)) for each in metric.sources or [name]}
    return graces


def _unmatched(
    connection: Connection, project_id: int, tail: str, metrics: Mapping[str, Metric]
) -> list[UnmatchedFilter]:
    filters = [
        {"metric": name, "sources": metric.sources or [name], "asked": asked}
        for name, metric in metrics.items()
        if (asked := metric.values_of_properties)
    ]
    bound = {"project_id": project_id, "filters": json.dumps(filters)}
    rows = connection.execute(text(_UNMATCHED.format(tail=tail)), bound) if filters else ()
    return [value_of(UnmatchedFilter, row) for row in rows]


def _matched(
    connection: Connection,
    project_id: int,
    graph_id: str | None,
    grouped: Mapping[str, Sequence[Any]],
) -> Collection[str]:
    """Returns the recent routes that the graph has."""
    routes = {row.value for rows in grouped.values() for row in rows if row.kind == "route"}
    if graph_id is None or not routes:
        return ()
    table = RouteTable(graph_patterns(connection, project_id, graph_id))
    return {route for route in routes if table.match(route) is not None}


def _traffic(
    rows: Sequence[Any],
    *,
    deployed: Collection[str],
    ambiguous: Collection[str],
    routes: Collection[str],
) -> Traffic:
    every = [row for row in rows if row.kind == "all"]
    page_views = any(row.page_view for row in every)
    shown = [row for row in rows if row.page_view == page_views]
    own = next(row for row in shown if row.kind == "all")
    skewed = sum(row.skewed for row in every)
    return Traffic(
        newest_at=max(row.newest_at for row in every),
        page_views=page_views,
        events=own.events,
        committed=own.committed,
        routed=own.routed,
        named=sum(row.named for row in every),
        of_all=sum(row.events for row in every),
        skewed=skewed,
        skew_seconds=sum(row.skew_seconds for row in every) / skewed if skewed else 0.0,
        commits=[
            value_of(Seen, row, known=row.value in deployed, is_ambiguous=row.value in ambiguous)
            for row in shown
            if row.kind == "commit"
        ],
        routes=[
            value_of(Seen, row, known=row.value in routes, is_ambiguous=False)
            for row in shown
            if row.kind == "route"
        ],
    )


_NAMES = text("""
SELECT event FROM seen_names WHERE project_id = :project_id
ORDER BY vouched DESC, newest_at DESC, event
LIMIT 2000
""")


def read_names(connection: Connection, project_id: int) -> list[str]:
    """Returns names of events that came to a project: vouched ones first, the newest first."""
    return list(connection.execute(_NAMES, {"project_id": project_id}).scalars())


# --- As the API counted it ----------------------------------------------------------------------

# A rate is of this many seconds at least: the first requests of a name are no measure of an hour.
_LEAST_SECONDS = 300
_MOST_SHOWN = 20
_RECEIVED = text(f"""
SELECT event, 3600 * sum(c.events)::float / greatest(
    extract(epoch FROM statement_timestamp() - greatest(
        s.first_at, CAST({TODAY} - 1 AS timestamp) AT TIME ZONE 'UTC'
    )), {_LEAST_SECONDS}
)::float AS per_hour
FROM name_counts AS c JOIN seen_names AS s USING (project_id, event)
WHERE c.project_id = :project_id AND c.day >= {TODAY} - 1
GROUP BY event, s.first_at
ORDER BY per_hour DESC, event LIMIT {_MOST_SHOWN}
""")


def read_name_counts(connection: Connection, project_id: int) -> list[ReceivedEvents]:
    """Returns the names of events that came live since yesterday, the most frequent first."""
    rows = connection.execute(_RECEIVED, {"project_id": project_id})
    return [value_of(ReceivedEvents, row) for row in rows]
