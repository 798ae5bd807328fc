"""Recent traffic: the runtime events of the last minutes that had any, counted as they come."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from domain.route import RouteTable
from storage.experiments.commit_ids import event_commits
from storage.experiments.graphs import USED_ROUTES
from storage.postgres.rows import value_of
from storage.schema.partitions import newest_partitions

WINDOW = "5 minutes"
# What is read of the log's end at most: some 300,000 events. What came before it is passed over.
_MOST_PAGES = 4096
# Writers fill pages side by side: so many before the last one may still have been open.
_OPEN_PAGES = 256
# Of the commits and routes of a minute those seen most; of environments and names likewise:
# anybody who has a public key can invent them.
_MOST_VALUES = 20
_MOST_NAMES = 100

_END_OF_DAY = """
SELECT project_id, environment, event, occurred_at, received_at, commit_sha, route, pseudonym
FROM {name}
WHERE ctid >= '({page},0)'::tid
  AND received_at > coalesce(CAST(:read_to AS timestamptz), '-infinity')
"""

_COUNT = """
WITH judged AS (
    SELECT f.project_id, f.environment, date_trunc('minute', f.received_at) AS minute,
        f.event = 'page_view' AS page_view, f.event, f.commit_sha, f.route, f.received_at,
        f.pseudonym IS NOT NULL AS named, lag,
        lag NOT BETWEEN -5 AND coalesce((p.settings ->> 'grace_seconds')::float, 120) AS skewed
    FROM ({fresh}) AS f
    JOIN projects AS p USING (project_id)
    CROSS JOIN LATERAL (
        SELECT extract(epoch FROM f.received_at - f.occurred_at)::float AS lag
    ) AS l
), counted AS (
    -- One reading counts them by all that is asked of them.
    SELECT project_id, environment, minute, page_view, event, commit_sha, route,
        CASE grouping(event, commit_sha, route)
            WHEN 7 THEN 'all' WHEN 5 THEN 'commit' WHEN 6 THEN 'route' ELSE 'name'
        END AS kind,
        count(*) AS events, count(commit_sha) AS committed, count(route) AS routed,
        count(*) FILTER (WHERE named) AS named, count(*) FILTER (WHERE skewed) AS skewed,
        coalesce(sum(lag) FILTER (WHERE skewed), 0) AS skew_seconds,
        max(received_at) AS newest_at
    FROM judged
    GROUP BY GROUPING SETS (
        (project_id, environment, minute, page_view),
        (project_id, environment, minute, page_view, commit_sha),
        (project_id, environment, minute, page_view, route),
        (project_id, event)
    )
), ranked AS (
    SELECT *, row_number() OVER (
        PARTITION BY project_id, kind, minute, page_view,
            CASE WHEN kind <> 'all' THEN environment END
        ORDER BY events DESC
    ) AS place
    FROM counted
    WHERE (kind <> 'commit' OR commit_sha IS NOT NULL) AND (kind <> 'route' OR route IS NOT NULL)
), kept AS (
    INSERT INTO recent_counts AS r (
        project_id, environment, minute, kind, value, page_view,
        events, committed, routed, named, skewed, skew_seconds, newest_at
    )
    SELECT project_id, environment, minute, kind, coalesce(commit_sha, route, ''), page_view,
        events, committed, routed, named, skewed, skew_seconds, newest_at
    FROM ranked
    WHERE kind <> 'name' AND place <= :most_values
    ON CONFLICT (project_id, environment, minute, kind, value, page_view) DO UPDATE
    SET events = r.events + excluded.events, committed = r.committed + excluded.committed,
        routed = r.routed + excluded.routed, named = r.named + excluded.named,
        skewed = r.skewed + excluded.skewed,
        skew_seconds = r.skew_seconds + excluded.skew_seconds,
        newest_at = greatest(r.newest_at, excluded.newest_at)
), noted AS (
    INSERT INTO seen_names AS s (project_id, event, newest_at)
    SELECT project_id, event, newest_at FROM ranked WHERE kind = 'name' AND place <= :most_names
    ON CONFLICT (project_id, event) DO UPDATE SET newest_at = excluded.newest_at
    WHERE s.newest_at < excluded.newest_at - interval '1 hour'
)
SELECT project_id, max(newest_at) AS newest_at FROM counted WHERE kind = 'all' GROUP BY project_id
"""

_PRUNE = text("""
DELETE FROM recent_counts AS r
USING (
    SELECT project_id, max(minute) AS minute FROM recent_counts
    WHERE project_id = ANY(:ids) GROUP BY project_id
) AS newest
WHERE r.project_id = newest.project_id AND r.minute < newest.minute - interval '1 hour'
""")


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The result of counting new events.

    Attributes:
        projects: Whose events there were.
        read_to: The newest receipt that was ever counted; None before any.
        pages: How many pages the newest days have, by their partitions.
    """

    projects: frozenset[int]
    read_to: datetime | None
    pages: Mapping[str, int]


def count_new_events(
    connection: Connection, *, read_to: datetime | None, pages: Mapping[str, int]
) -> Counted:
    """Counts the events that were appended since the last time.

    Not exact, unlike the pipeline: an event that commits after a later one was counted is missed.
    Shares of thousands do not show it, and the log's lock is not taken for them each half minute.

    Args:
        connection: In a transaction, of which only one is under way at a time.
        read_to: As the last counting left it.
        pages: Likewise.
    """
    ends = newest_partitions(connection, limit=2)
    if not ends:
        return Counted(projects=frozenset(), read_to=read_to, pages=ends)
    fresh = " UNION ALL ".join(
        _END_OF_DAY.format(name=name, page=max(0, end - _MOST_PAGES, _done(pages, name)))
        for name, end in ends.items()
    )
    newest = connection.execute(
        text(_COUNT.format(fresh=fresh)),
        {"read_to": read_to, "most_values": _MOST_VALUES, "most_names": _MOST_NAMES},
    ).all()
    ids = frozenset(row.project_id for row in newest)
    if ids:
        connection.execute(_PRUNE, {"ids": sorted(ids)})
    latest = [*([] if read_to is None else [read_to]), *(row.newest_at for row in newest)]
    return Counted(projects=ids, read_to=max(latest, default=None), pages=ends)


def _done(pages: Mapping[str, int], name: str) -> int:
    return pages.get(name, 0) - _OPEN_PAGES


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A commit or a route, how many events name it, and whether it is known.

    Attributes:
        is_ambiguous: Whether it is an id that begins several commits.
    """

    value: str
    events: int
    known: bool
    is_ambiguous: bool


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The newest five minutes of events of one project in one environment.

    Attributes:
        newest_at: When the newest one was received.
        page_views: Whether the counts below are of page views, else of every event: an outcome
            need not carry the members of an exposure.
        events: How many there were.
        committed: How many name a commit.
        routed: How many name a route.
        named: How many of all events, page views or not, name a user.
        of_all: How many events there were, page views or not.
        skewed: Of all, dated more than the grace before their receipt, or 5 seconds after it.
        skew_seconds: By how much, in the mean; negative ahead of us.
        commits: Those seen most, and whether they were deployed.
        routes: Those seen most, and whether the current graph has them.
    """

    newest_at: datetime
    page_views: bool
    events: int
    committed: int
    routed: int
    named: int
    of_all: int
    skewed: int
    skew_seconds: float
    commits: Sequence[Seen]
    routes: Sequence[Seen]


_WINDOW = f"""
    SELECT r.* FROM recent_counts AS r
    JOIN (
        SELECT project_id, environment, max(minute) AS minute FROM recent_counts
        WHERE project_id = ANY(:ids) GROUP BY project_id, environment
    ) AS newest USING (project_id, environment)
    WHERE r.minute > newest.minute - interval '{WINDOW}'
"""

_UNMATCHED = text(f"""
SELECT DISTINCT r.project_id, p.current_graph_id AS graph_id, r.value AS route
FROM ({_WINDOW}) AS r JOIN projects AS p USING (project_id)
WHERE r.kind = 'route' AND p.current_graph_id IS NOT NULL
  AND r.graph_id IS DISTINCT FROM p.current_graph_id
""")

_PATTERNS = text(
    "SELECT graph_id, path FROM "
    + USED_ROUTES.format(graphs="project_id = ANY(:ids) AND graph_id = ANY(:graphs)")
)

_MATCHED = text("""
UPDATE recent_counts AS r SET graph_id = m.graph_id, matched = m.matched
FROM unnest(
    CAST(:ids AS int[]), CAST(:graphs AS text[]), CAST(:routes AS text[]),
    CAST(:matched AS boolean[])
) AS m (project_id, graph_id, route, matched)
WHERE r.project_id = m.project_id AND r.kind = 'route' AND r.value = m.route
""")


def match_routes(connection: Connection, ids: Sequence[int]) -> None:
    """Notes which recent routes the projects' current graphs have; those once noted stay."""
    rows = connection.execute(_UNMATCHED, {"ids": list(ids)}).all()
    if not rows:
        return
    patterns: dict[str, list[str]] = defaultdict(list)
    bound = {
        "ids": sorted({row.project_id for row in rows}),
        "graphs": sorted({row.graph_id for row in rows}),
    }
    for row in connection.execute(_PATTERNS, bound):
        patterns[row.graph_id].append(row.path)
    tables = {graph_id: RouteTable(patterns[graph_id]) for graph_id in bound["graphs"]}
    connection.execute(
        _MATCHED,
        {
            "ids": [row.project_id for row in rows],
            "graphs": [row.graph_id for row in rows],
            "routes": [row.route for row in rows],
            "matched": [tables[row.graph_id].match(row.route) is not None for row in rows],
        },
    )


_TRAFFIC = text(f"""
SELECT project_id, environment, page_view, kind, value, sum(events)::bigint AS events,
    sum(committed)::bigint AS committed, sum(routed)::bigint AS routed,
    sum(named)::bigint AS named, sum(skewed)::bigint AS skewed,
    sum(skew_seconds)::float AS skew_seconds, max(newest_at) AS newest_at,
    coalesce(bool_and(matched), false) AS matched
FROM ({_WINDOW}) AS r
GROUP BY project_id, environment, page_view, kind, value
ORDER BY sum(events) DESC, value
""")


def read_traffic(connection: Connection, ids: Sequence[int]) -> dict[int, dict[str, Traffic]]:
    """Returns the recent traffic of projects, by project and environment."""
    grouped: dict[tuple[int, str], list[Any]] = defaultdict(list)
    for row in connection.execute(_TRAFFIC, {"ids": list(ids)}):
        grouped[row.project_id, row.environment].append(row)
    traffic: dict[int, dict[str, Traffic]] = {project_id: {} for project_id in ids}
    named = event_commits(
        connection,
        {
            (*place, row.value)
            for place, rows in grouped.items()
            for row in rows
            if row.kind == "commit"
        },
    )
    for (project_id, environment), rows in grouped.items():
        place = project_id, environment
        traffic[project_id][environment] = _traffic(
            rows,
            deployed={row.value for row in rows if (*place, row.value) in named.known},
            ambiguous={row.value for row in rows if (*place, row.value) in named.ambiguous},
        )
    return traffic


def _traffic(
    rows: Sequence[Any], *, deployed: Collection[str], ambiguous: Collection[str]
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
            value_of(Seen, row, known=row.matched, is_ambiguous=False)
            for row in shown
            if row.kind == "route"
        ],
    )


_NAMES = text("""
SELECT project_id, event FROM seen_names WHERE project_id = ANY(:ids)
ORDER BY project_id, newest_at DESC, event
""")


def read_names(connection: Connection, ids: Sequence[int]) -> dict[int, list[str]]:
    """Returns the names of events that ever came to projects, the newest first."""
    names: dict[int, list[str]] = {project_id: [] for project_id in ids}
    for row in connection.execute(_NAMES, {"ids": list(ids)}):
        names[row.project_id].append(row.event)
    return names
