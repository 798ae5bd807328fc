"""The checklist: what tells how each project is wired, and the lines that were made of it."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, text

from domain.lineage.control_state import ControlState
from storage.experiments.control_states import control_states
from storage.experiments.deploys import ELSEWHERE
from storage.experiments.serving import read_serving
from storage.log.admissions import Admissions, counted_lately, read_admissions
from storage.log.status import sealing_error
from storage.postgres.rows import value_of
from storage.schema.policy_columns import GRACE_SECONDS, IS_MEAN, TARGET, TARGET_SOURCES
from storage.tenants.settings import Settings, parse_settings
from storage.verdicts.set_aside import read_set_aside
from storage.views.recent_traffic import (
    Traffic,
    count_new_events,
    match_routes,
    read_names,
    read_traffic,
)
from storage.views.registrations import first_look_of

PRODUCTION = "production"
# What is checked, in the order of a set-up: the words that every face shows.
CHECKS = (
    "events",
    "commit on events",
    "commit known",
    "routes matched",
    "both arms in one block",
    "target seen",
    "revenue joinable",
    "clock skew",
    "crossover",
    "rejected, late, limited",
)
# Arms that shared a block within so long are served side by side.
_APART = timedelta(hours=1)
# A line beside these for each experiment that is set aside, and none while none is.
COMPUTED = "experiment computed"
# A line while the log cannot be sealed into files, whoever's events they are.
SEALED = "log sealed"
# A line for each experiment that leaves outcomes out, and none while none does.
COUNTED = "outcomes counted"
# The first line of a project that no event came to while something looked.
NO_EVENT = "No event has come yet."
# So long without an event, and the first line turns red though no tick rewrites it.
SILENCE = timedelta(minutes=15)
# Several ticks of a minute.
_UNKEPT = timedelta(minutes=5)
_LOCK = 7_246_006

# --- Which projects are to be looked at -----------------------------------------------------------

_CLAIM = text("SELECT pg_try_advisory_xact_lock(:key)")
_MARKS = text("SELECT kept_at, read_to, pages, revenue_to FROM checklist_marks")

_MARK = text("""
INSERT INTO checklist_marks (kept_at, read_to, pages, revenue_to)
VALUES (statement_timestamp(), :read_to, CAST(:pages AS json), :revenue_to)
ON CONFLICT (place) DO UPDATE
SET kept_at = excluded.kept_at, read_to = excluded.read_to, pages = excluded.pages,
    revenue_to = excluded.revenue_to
""")

_REVENUE_NAMES = text("""
INSERT INTO seen_names AS s (project_id, event, newest_at)
SELECT project_id, event, max(received_at) FROM revenue_events
WHERE received_at > coalesce(
    CAST(:kept_at AS timestamptz) - interval '10 seconds', '-infinity'
)
GROUP BY project_id, event
ON CONFLICT (project_id, event) DO UPDATE SET newest_at = excluded.newest_at
WHERE s.newest_at < excluded.newest_at - interval '1 hour'
RETURNING project_id
""")

_REVENUE_SPAN = text(f"""
-- A user is looked for among the exposures, which come when a block of 5 minutes has closed.
SELECT statement_timestamp() - interval '1 day' AS begins,
    statement_timestamp() - interval '10 minutes' - make_interval(secs => coalesce((
        SELECT max({GRACE_SECONDS})
        FROM verdicts AS v JOIN experiments AS x USING (experiment_id)
        WHERE NOT v.decided
    ), 0)) AS ends
""")

_REVENUE = text("""
WITH fresh AS (
    SELECT r.project_id, r.idempotency_key, r.received_at, r.pseudonym, r.session_id
    FROM revenue_events AS r
    WHERE r.received_at > :begins AND r.received_at <= :ends
), tested AS (
    SELECT f.project_id, count(x.experiment_id) > 0 AS tested,
        coalesce(bool_or(EXISTS (
            SELECT FROM exposures AS p
            WHERE p.experiment_id = x.experiment_id AND p.pseudonym = f.pseudonym
        ) OR EXISTS (
            SELECT FROM exposures AS p
            WHERE p.experiment_id = x.experiment_id
              AND p.unit IN (f.session_id, encode(f.pseudonym, 'hex'))
        )), false) AS joined
    FROM fresh AS f
    LEFT JOIN (
        SELECT x.* FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
        WHERE NOT v.decided AND x.bound_at IS NOT NULL
          -- Of one that was over when it was first read no new revenue counts.
          AND NOT EXISTS (SELECT FROM whole_lives AS w WHERE w.experiment_id = x.experiment_id)
    ) AS x ON x.project_id = f.project_id AND x.starts_at <= f.received_at
    GROUP BY f.project_id, f.idempotency_key
)
INSERT INTO checklists AS c (
    project_id, lines, setup, revenue_events, revenue_tested, revenue_joined
)
SELECT project_id, '[]', '', count(*), count(*) FILTER (WHERE tested),
    count(*) FILTER (WHERE tested AND joined)
FROM tested
GROUP BY project_id
ON CONFLICT (project_id) DO UPDATE
SET setup = '',
    revenue_events = c.revenue_events + excluded.revenue_events,
    -- What is long ago fades: about the last hundred count.
    revenue_tested = excluded.revenue_tested
        + c.revenue_tested * 100 / greatest(100, c.revenue_tested),
    revenue_joined = excluded.revenue_joined
        + c.revenue_joined * 100 / greatest(100, c.revenue_tested)
""")

# What the lines depend on beside the traffic, by project.
_CHANGED = text("""
SELECT p.project_id, s.setup
FROM projects AS p
LEFT JOIN checklists AS c USING (project_id)
CROSS JOIN LATERAL (
    SELECT md5(concat_ws(' ', p.settings, p.current_graph_id, (
        SELECT max(greatest(d.recorded_at, d.withdrawn_at)) FROM deploys AS d
        WHERE d.project_id = p.project_id
    ), (
        -- Units may differ once the pipeline has read further.
        SELECT string_agg(
            concat(x.experiment_id, x.bound_at, w.published_to), ' '
            ORDER BY x.experiment_id COLLATE "C"
        )
        FROM verdicts AS v
        JOIN experiments AS x USING (experiment_id)
        LEFT JOIN publication_progress AS w ON w.experiment_id = x.experiment_id
        WHERE v.project_id = p.project_id AND NOT v.decided
    ))) AS setup
) AS s
WHERE c.setup IS DISTINCT FROM s.setup OR p.project_id = ANY(:ids)
""")


def projects_to_check(connection: Connection) -> dict[int, str] | None:
    """Counts the events since the last time, and returns the projects that they concern.

    The cost grows with new events: a tick without any reads the ends of two days of the log and a
    row of each project.

    Returns:
        Digests of the projects' set-ups, for `keep_lines`; None while another computes them.
    """
    if not connection.execute(_CLAIM, {"key": _LOCK}).scalar_one():
        return None
    marks = connection.execute(_MARKS).one_or_none()
    counted = count_new_events(
        connection,
        read_to=None if marks is None else marks.read_to,
        pages={} if marks is None else marks.pages,
    )
    kept_at = None if marks is None else marks.kept_at
    named = connection.execute(_REVENUE_NAMES, {"kept_at": kept_at}).scalars()
    ids = counted.projects | counted_lately(connection) | frozenset(named)
    revenue_to = _count_revenue(connection, None if marks is None else marks.revenue_to)
    mark = {
        "read_to": counted.read_to,
        "pages": json.dumps(dict(counted.pages)),
        "revenue_to": revenue_to,
    }
    connection.execute(_MARK, mark)
    changed = connection.execute(_CHANGED, {"ids": sorted(ids)})
    return {row.project_id: row.setup for row in changed}


def _count_revenue(connection: Connection, revenue_to: datetime | None) -> datetime:
    span = connection.execute(_REVENUE_SPAN).one()
    begins = span.begins if revenue_to is None else max(revenue_to, span.begins)
    if begins < span.ends:
        connection.execute(_REVENUE, {"begins": begins, "ends": span.ends})
    return max(begins, span.ends)


# --- How they are wired ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class OpenExperiment:
    """An open experiment, as far as it tells how its project is wired.

    Attributes:
        experiment_id: Its name.
        environment: Where it measures.
        treatment: The commit under test; None before the binding, if it was not named.
        bound: Whether its deploy has come.
        elsewhere: Before that: where else its commit is deployed.
        metric: The target.
        sources: The events that the target counts.
        first_look_at: When the target can be looked at first; None once that time came.
        converted: Whether any outcome of the target was ever counted.
        closed_blocks: How many blocks have closed since it began.
        newest_block: The newest one with units of either arm.
        newest_shared_block: The newest one with units of both.
        treated: Units of treatment in the day up to the newest block.
        controlled: Likewise of control.
        crossed: Units that were found in both arms.
        units: Of both arms, in all; None where hardly any crossed.
        mean: Of a mean alone: the target as its policy froze it.
        left_out: Of a mean alone: the member of its evidence.
        control_state: The builds beside the treatment; asked where the arms lately shared no block.
    """

    experiment_id: str
    environment: str
    treatment: str | None
    bound: bool
    elsewhere: Sequence[str]
    metric: str
    sources: Sequence[str]
    first_look_at: datetime | None
    converted: bool
    closed_blocks: int
    newest_block: datetime | None
    newest_shared_block: datetime | None
    treated: int
    controlled: int
    crossed: int
    units: int | None
    mean: Mapping[str, Any] | None
    left_out: Sequence[Mapping[str, Any]] | None
    control_state: ControlState


@dataclass(frozen=True, kw_only=True)
class ProjectSetup:
    """What tells whether a project is wired right.

    Attributes:
        settings: The project's.
        graph: Whether it has a static graph.
        deployed: Whether a deploy is recorded where it measures.
        environments: Where it measures.
        traffic: The recent events, by environment.
        names: Of events that ever came, the newest first.
        experiments: The open ones, in order.
        rivals: Pairs of builds that are served though neither was built on the other.
        admissions: Recent refused requests; None where nothing was sent.
        newest_event_at: When the last event came where it measures, if ever.
        revenue_events: How many revenue events were counted.
        revenue_tested: Of the last hundred or so, of how many a user could be looked for.
        revenue_joined: Of how many of these one was found.
    """

    settings: Settings
    graph: bool
    deployed: bool
    environments: Sequence[str]
    traffic: Mapping[str, Traffic]
    names: Sequence[str]
    experiments: Sequence[OpenExperiment]
    rivals: Sequence[tuple[str, str]]
    admissions: Admissions | None
    newest_event_at: datetime | None
    revenue_events: int
    revenue_tested: int
    revenue_joined: int


_PROJECTS = text("""
SELECT p.project_id, p.settings, p.current_graph_id, latest.environment AS latest,
    EXISTS (
        SELECT FROM deploys AS d
        WHERE d.project_id = p.project_id AND d.environment = :production
          AND d.withdrawn_at IS NULL
    ) AS production,
    c.newest_event_at, coalesce(c.revenue_events, 0) AS revenue_events,
    coalesce(c.revenue_tested, 0) AS revenue_tested,
    coalesce(c.revenue_joined, 0) AS revenue_joined
FROM projects AS p
LEFT JOIN checklists AS c USING (project_id)
LEFT JOIN LATERAL (
    SELECT d.environment FROM deploys AS d
    WHERE d.project_id = p.project_id AND d.withdrawn_at IS NULL
    ORDER BY d.recorded_at DESC LIMIT 1
) AS latest ON true
WHERE p.project_id = ANY(:ids)
""")

_EXPERIMENTS = text(f"""
SELECT x.project_id, x.experiment_id, x.environment, x.treatment_commit,
    x.bound_at IS NOT NULL AS bound, {ELSEWHERE} AS elsewhere, x.target_metric, x.starts_at,
    -- Of those that began lately: they alone may wait for their first look.
    CASE WHEN x.starts_at > statement_timestamp() - interval '1 day' THEN x.policy END AS policy,
    {TARGET_SOURCES} AS sources,
    EXISTS (
        SELECT FROM conversions AS o
        WHERE o.experiment_id = x.experiment_id AND o.metric = x.target_metric
    ) OR EXISTS (
        SELECT FROM amounts AS o
        WHERE o.experiment_id = x.experiment_id AND o.metric = x.target_metric
    ) AS converted,
    coalesce(greatest(0, extract(epoch FROM c.at - x.starts_at)::int / 300), 0) AS closed_blocks,
    newest.block AS newest_block, shared.block AS newest_shared_block, crossings.crossed,
    coalesce(recent.treated, 0) AS treated, coalesce(recent.controlled, 0) AS controlled,
    -- Only where the share could matter: it is a sum over the whole life.
    CASE WHEN crossings.crossed >= :some THEN (
        SELECT sum(u.treatment + u.control)::bigint FROM block_units AS u
        WHERE u.experiment_id = x.experiment_id
    ) END AS units,
    -- A document of many looks is large: it is read where the member can matter.
    CASE WHEN {IS_MEAN} THEN {TARGET} END AS mean,
    CASE WHEN {IS_MEAN} THEN v.evidence -> 'left_out' END AS left_out
FROM verdicts AS v
JOIN experiments AS x USING (experiment_id)
LEFT JOIN cursors AS c ON c.stage = 'exposures' AND c.experiment_id = x.experiment_id
LEFT JOIN LATERAL (
    SELECT u.block FROM block_units AS u
    WHERE u.experiment_id = x.experiment_id AND u.treatment + u.control > 0
    ORDER BY u.block DESC LIMIT 1
) AS newest ON true
LEFT JOIN LATERAL (
    SELECT u.block FROM block_units AS u
    WHERE u.experiment_id = x.experiment_id AND u.treatment > 0 AND u.control > 0
    ORDER BY u.block DESC LIMIT 1
) AS shared ON true
LEFT JOIN LATERAL (
    SELECT sum(u.treatment)::bigint AS treated, sum(u.control)::bigint AS controlled
    FROM block_units AS u
    WHERE u.experiment_id = x.experiment_id AND u.block > newest.block - interval '1 day'
) AS recent ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS crossed FROM sightings AS s
    WHERE s.experiment_id = x.experiment_id AND s.kind = 'crossover'
) AS crossings
WHERE NOT v.decided AND v.project_id = ANY(:ids)
ORDER BY x.registered_at, x.experiment_id
""")


def read_setups(
    connection: Connection, ids: Sequence[int], *, some_crossings: int
) -> dict[int, ProjectSetup]:
    """Returns how projects are wired, as of now.

    Args:
        connection: In the transaction of `projects_to_check`.
        ids: The projects.
        some_crossings: From how many units on that crossed all units are counted.
    """
    match_routes(connection, ids)
    traffic, names = read_traffic(connection, ids), read_names(connection, ids)
    admissions = read_admissions(connection, ids)
    experiments: dict[int, list[OpenExperiment]] = {project_id: [] for project_id in ids}
    rows = connection.execute(_EXPERIMENTS, {"ids": list(ids), "some": some_crossings}).all()
    states = _control_states(connection, rows)
    for row in rows:
        experiments[row.project_id].append(_experiment(row, states.get(row.experiment_id)))
    by_project: dict[int, ProjectSetup] = {}
    for row in connection.execute(_PROJECTS, {"ids": list(ids), "production": PRODUCTION}):
        opened = experiments[row.project_id]
        latest = PRODUCTION if row.production or row.latest is None else row.latest
        environments = sorted({experiment.environment for experiment in opened}) or [latest]
        newest_by_environment = traffic[row.project_id]
        newest = [
            newest_by_environment[environment].newest_at
            for environment in environments
            if environment in newest_by_environment
        ]
        before = [] if row.newest_event_at is None else [row.newest_event_at]
        by_project[row.project_id] = value_of(
            ProjectSetup,
            row,
            settings=parse_settings(row.settings),
            graph=row.current_graph_id is not None,
            deployed=row.latest is not None,
            environments=environments,
            traffic=newest_by_environment,
            names=names[row.project_id],
            experiments=opened,
            rivals=_rivals(connection, row.project_id, newest_by_environment),
            admissions=admissions.get(row.project_id),
            newest_event_at=max([*newest, *before], default=None),
        )
    return by_project


def _control_states(connection: Connection, rows: Sequence[Row[Any]]) -> dict[str, ControlState]:
    """Returns the builds beside the treatments whose arms shared no block of the last hour."""
    apart: dict[tuple[int, str], list[str]] = defaultdict(list)
    for row in rows:
        shared = row.newest_shared_block
        if row.newest_block is not None and (shared is None or row.newest_block - shared > _APART):
            apart[row.project_id, row.environment].append(row.experiment_id)
    states: dict[str, ControlState] = {}
    for (project_id, environment), names in apart.items():
        states |= control_states(connection, project_id, environment, only=names)
    return states


def _rivals(
    connection: Connection, project_id: int, traffic: Mapping[str, Traffic]
) -> list[tuple[str, str]]:
    """Returns the pairs of builds of which neither stands on the other, by environment."""
    several = [
        environment
        for environment, seen in traffic.items()
        if sum(commit.known for commit in seen.commits) > 1
    ]
    pairs = (
        read_serving(connection, project_id, environment).rival_lines() for environment in several
    )
    return [pair for pair in pairs if pair is not None]


def _experiment(row: Row[Any], state: ControlState | None) -> OpenExperiment:
    first_look_at = first_look_of(row.starts_at, row.policy)
    return value_of(
        OpenExperiment,
        row,
        treatment=row.treatment_commit,
        metric=row.target_metric,
        control_state=state or ControlState(),
        first_look_at=None
        if first_look_at is None or first_look_at <= datetime.now(UTC)
        else first_look_at,
    )


# --- The lines ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a checklist.

    Attributes:
        check: The name of the check, in a few stable words.
        ok: Whether it is as it should be; None where that cannot be told yet.
        seen: The observation, in figures.
        fix: The very next thing to do; empty where all is well.
    """

    check: str
    ok: bool | None
    seen: str
    fix: str = ""

    def document(self) -> dict[str, object]:
        """Returns the line as it is served."""
        return {"check": self.check, "ok": self.ok, "seen": self.seen, "fix": self.fix}


_KEEP = text("""
INSERT INTO checklists AS c (project_id, lines, newest_event_at, setup)
VALUES (:project_id, CAST(:lines AS json), :newest_event_at, :setup)
ON CONFLICT (project_id) DO UPDATE
SET lines = excluded.lines, newest_event_at = excluded.newest_event_at, setup = excluded.setup
WHERE (c.lines::text, c.newest_event_at, c.setup)
    IS DISTINCT FROM (excluded.lines::text, excluded.newest_event_at, excluded.setup)
""")


@dataclass(frozen=True, kw_only=True)
class Checklist:
    """The lines of a project, and what they were made of."""

    lines: Sequence[Line]
    newest_event_at: datetime | None
    setup: str


def keep_lines(connection: Connection, checklists: Mapping[int, Checklist]) -> None:
    """Keeps the lines that are served from now on."""
    rows = [
        {
            "project_id": project_id,
            "lines": json.dumps([line.document() for line in checklist.lines]),
            "newest_event_at": checklist.newest_event_at,
            "setup": checklist.setup,
        }
        for project_id, checklist in sorted(checklists.items())
    ]
    if rows:
        connection.execute(_KEEP, rows)


_READ = text("""
SELECT c.lines, c.newest_event_at, p.created_at, statement_timestamp() AS now,
    (SELECT kept_at FROM checklist_marks) AS kept_at,
    EXISTS (
        SELECT FROM verdicts AS v WHERE v.project_id = p.project_id AND NOT v.decided
    ) AS measuring,
    -- History is as old as its events, so that no tick sees it come: its units tell of it, by one
    -- look at an index for each experiment.
    CASE WHEN c.newest_event_at IS NULL THEN (
        SELECT max(newest.block)
        FROM experiments AS x
        CROSS JOIN LATERAL (
            SELECT u.block FROM block_units AS u
            WHERE u.experiment_id = x.experiment_id
            ORDER BY u.block DESC LIMIT 1
        ) AS newest
        WHERE x.project_id = p.project_id
    ) END AS history_to,
    EXISTS (
        SELECT FROM seen_names AS s
        WHERE s.project_id = p.project_id AND s.newest_at = '-infinity'
    ) AS is_history_noted
FROM projects AS p LEFT JOIN checklists AS c USING (project_id)
WHERE p.project_id = :project_id
""")

UNSEEN = "Not looked at yet."
_UNSEEN_FIX = "Ask again in a minute: the next tick looks."
_UNKEPT_FIX = (
    "Start Dagster: `deploy-reward up`, or `deploy-reward dagster` in production. The first tick"
    " comes within a minute of its start."
)
_SILENT_FIX = (
    "Look at the sender: does it run, and is each of its requests to POST /v1/events answered 202?"
)

_LIVE_FIX = "Send live events too, to POST /v1/events, once there is traffic."

_UNSEALED_FIX = (
    "Tell whoever runs the service: the lake (SERVICE_LAKE) needs room, or a folder or bucket that"
    " can be written; Dagster's check of `sealed_log` shows the whole error. No event is lost"
    " meanwhile, and the next run goes on."
)


@dataclass(frozen=True, kw_only=True)
class ServedChecklist:
    """A project's checklist as it is shown.

    Attributes:
        lines: Its lines.
        looked_at: When the last tick looked; None before the first.
        age: How long ago that was; None before the first.
    """

    lines: Sequence[Line]
    looked_at: datetime | None
    age: timedelta | None


def read_checklist(connection: Connection, project_id: int) -> ServedChecklist:
    """Returns the checklist of a project as it was kept, the first line aged by the clock.

    No tick comes for silence, and none where nothing ticks: both show in the first line alone,
    which says since when the others stand.
    """
    row = connection.execute(_READ, {"project_id": project_id}).one()
    lines = [Line(**line) for line in row.lines or ()] or [
        Line(check=check, ok=None, seen=UNSEEN, fix=_UNSEEN_FIX) for check in CHECKS
    ]
    lines += [
        Line(
            check=COMPUTED,
            ok=False,
            seen=f"{failure.experiment_id}: {failure.sentence}",
            fix=f"`deploy-reward close {failure.experiment_id}`, or update the service.",
        )
        for failure in read_set_aside(connection, project_id=project_id)
    ]
    if (error := sealing_error(connection)) is not None:
        # Its kind alone: the message names folders and buckets, which are the operator's.
        kind = error.partition(":")[0]
        observation = f"Hours of the log could not be written to files: {kind}."
        lines.append(Line(check=SEALED, ok=False, seen=observation, fix=_UNSEALED_FIX))
    return ServedChecklist(
        lines=[_first(lines[0], row), *lines[1:]],
        looked_at=row.kept_at,
        age=None if row.kept_at is None else max(timedelta(0), row.now - row.kept_at),
    )


def _first(line: Line, row: Any) -> Line:  # noqa: ANN401 - a row of the query above
    """Returns the first line as of now."""
    if row.kept_at is None and row.now - row.created_at <= _UNKEPT:
        return line
    if row.kept_at is None or row.now - row.kept_at > _UNKEPT:
        return _unkept(row.kept_at)
    if line.seen == NO_EVENT and (row.is_history_noted or row.history_to is not None):
        return _history(row.history_to, is_measuring=row.measuring)
    return _aged(line, row)


def _history(to: datetime | None, *, is_measuring: bool) -> Line:
    units = "" if to is None else f", with units up to {to:%d %b %H:%M} UTC"
    observation = f"History alone came{units}."
    if is_measuring:
        return Line(check=CHECKS[0], ok=None, seen=observation, fix=_LIVE_FIX)
    return Line(check=CHECKS[0], ok=True, seen=observation)


def _unkept(kept_at: datetime | None) -> Line:
    observation = (
        "Nothing looks at the events: no tick ever has."
        if kept_at is None
        else f"Nothing looks at the events since {kept_at:%d %b %H:%M} UTC; the rest is of then."
    )
    return Line(check=CHECKS[0], ok=False, seen=observation, fix=_UNKEPT_FIX)


def _aged(line: Line, row: Any) -> Line:  # noqa: ANN401 - a row of the query above
    if row.newest_event_at is None or line.ok is False:
        return line
    age = max(timedelta(0), row.now - row.newest_event_at)
    if age > SILENCE and not row.measuring:
        return replace(line, seen=f"The last event came {_ago(age)}; no experiment waits for any.")
    if age > SILENCE:
        return replace(line, ok=False, seen=f"The last event came {_ago(age)}.", fix=_SILENT_FIX)
    return replace(line, seen=f"{line.seen} The last one came {_ago(age)}.")


def _ago(age: timedelta) -> str:
    seconds = int(age.total_seconds())
    for length, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= length:
            count = seconds // length
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return f"{seconds} second{'' if seconds == 1 else 's'} ago"
