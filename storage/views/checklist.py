"""The checklist of a project, read when somebody asks, by queries of a bounded cost."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, text

from domain.cause import MIN_CROSSINGS
from domain.checklist.admissions import Admissions
from domain.checklist.line import ChecklistLine
from domain.checklist.lines import SILENCE, lines
from domain.checklist.own_splits import OwnSplits
from domain.checklist.setup import OpenExperiment, ProjectSetup, Traffic
from domain.evidence.counts import LeftOut
from domain.lineage.control_state import ControlState
from domain.lineage.returning import ReturningVisitors
from domain.lineage.serving import LOOK_BACK, Serving
from domain.metric import FrozenMetric, metric_definition
from storage.experiments.deploys import ELSEWHERE, UNSHARED
from storage.experiments.readings import PastEvents, read_returning
from storage.experiments.serving import control_states, read_serving
from storage.log.admissions import COUNTED, NEWEST
from storage.log.status import sealing_error
from storage.postgres.rows import value_of
from storage.schema.clock import store_time
from storage.schema.encoding import BLOCK, SIGHTINGS, moment
from storage.schema.past_log import PastLog, UnansweredError
from storage.schema.policy_columns import LEAVES_OUT, TARGET, TARGET_OPEN_FOR
from storage.tenants.default_metric import default_metric
from storage.tenants.settings import Settings, parse_settings
from storage.verdicts.next_look import UNITS_FROM, first_look_of
from storage.views.published import read_set_aside
from storage.views.recent_traffic import read_name_counts, read_names, read_traffic
from storage.views.registrations import ASKED, read_awaited

PRODUCTION = "production"
# Arms that shared a block within so long are served side by side.
_APART = timedelta(hours=1)
# A part of the sessions that no mishap of a router explains.
_RIVAL = 0.05

_LIMIT = text("SELECT set_config('statement_timeout', '10s', true)")

_PROJECT = text(f"""
SELECT p.settings, p.current_graph_id, p.created_at, statement_timestamp() AS now,
    (SELECT succeeded_at FROM ticks) AS ticked_at,
    latest.environment AS latest,
    EXISTS (
        SELECT FROM deploys AS d
        WHERE d.project_id = p.project_id AND d.environment = :production
          AND d.withdrawn_at IS NULL
    ) AS production,
    EXISTS (SELECT FROM revenue_events AS r WHERE r.project_id = p.project_id) AS has_revenue,
    -- Names are noted to an hour; those of history alone carry no time.
    (
        SELECT max(newest_at) FROM seen_names AS s
        WHERE s.project_id = p.project_id AND isfinite(s.newest_at)
    ) AS named_at,
    EXISTS (
        SELECT FROM seen_names AS s
        WHERE s.project_id = p.project_id AND NOT isfinite(s.newest_at)
    ) AS has_history,
    (
        SELECT max({moment("newest.block")})
        FROM experiments AS x
        CROSS JOIN LATERAL (
            SELECT u.block FROM block_units AS u
            WHERE u.experiment_id = x.experiment_id
            ORDER BY u.block DESC LIMIT 1
        ) AS newest
        WHERE x.project_id = p.project_id
    ) AS history_to
FROM projects AS p
LEFT JOIN LATERAL (
    SELECT d.environment FROM deploys AS d
    WHERE d.project_id = p.project_id AND d.withdrawn_at IS NULL
    ORDER BY d.recorded_at DESC LIMIT 1
) AS latest ON true
WHERE p.project_id = :project_id
""")

_REVENUE = text("""
WITH fresh AS (
    -- A user is looked for among the exposures, which come when a block of 5 minutes has closed.
    SELECT r.idempotency_key, r.received_at, r.pseudonym, r.session_id
    FROM revenue_events AS r
    WHERE r.project_id = :project_id AND r.received_at > statement_timestamp() - interval '1 day'
      AND r.received_at
          <= statement_timestamp() - interval '10 minutes' - make_interval(secs => :grace)
    ORDER BY r.received_at DESC LIMIT 100
), tested AS (
    SELECT count(x.experiment_id) > 0 AS tested,
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
        WHERE NOT v.decided AND x.frozen_at IS NOT NULL AND x.project_id = :project_id
          -- Of one that was over when it was first read no new revenue counts.
          AND NOT EXISTS (SELECT FROM whole_lives AS w WHERE w.experiment_id = x.experiment_id)
    ) AS x ON x.starts_at <= f.received_at
    GROUP BY f.idempotency_key
)
SELECT count(*) FILTER (WHERE tested) AS tested, count(*) FILTER (WHERE tested AND joined) AS joined
FROM tested
""")

_EXPERIMENTS = text(f"""
SELECT x.experiment_id, x.environment, x.treatment_commit,
    x.bound_at IS NOT NULL AS bound, {ELSEWHERE} AS elsewhere, {UNSHARED} AS unshared,
    x.starts_at, {ASKED},
    {UNITS_FROM} AS units_from,
    -- Of those that may wait for their first look.
    CASE WHEN x.starts_at + {TARGET_OPEN_FOR} > statement_timestamp() - interval '1 day'
        THEN x.policy END AS policy,
    EXISTS (
        SELECT FROM conversions AS o
        WHERE o.experiment_id = x.experiment_id AND o.metric = x.target_metric
    ) OR EXISTS (
        SELECT FROM amounts AS o
        WHERE o.experiment_id = x.experiment_id AND o.metric = x.target_metric
    ) AS converted,
    coalesce(greatest(0, extract(epoch FROM c.at - x.starts_at)::int / 300), 0) AS closed_blocks,
    {moment("newest.block")} AS newest_block, {moment("shared.block")} AS newest_shared_block,
    crossings.crossed,
    coalesce(recent.treated, 0) AS treated, coalesce(recent.controlled, 0) AS controlled,
    -- Only where the share could matter: it is a sum over the whole life.
    CASE WHEN crossings.crossed >= :some THEN (
        SELECT sum(u.treatment + u.control)::bigint FROM block_units AS u
        WHERE u.experiment_id = x.experiment_id
    ) END AS units,
    -- A document of many looks is large: it is read where the member can matter.
    CASE WHEN {LEAVES_OUT} THEN {TARGET} END AS target,
    CASE WHEN {LEAVES_OUT} THEN v.evidence -> 'left_out' END AS left_out
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
    WHERE u.experiment_id = x.experiment_id AND u.block > newest.block - {288 * BLOCK}
) AS recent ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS crossed FROM sightings AS s
    WHERE s.experiment_id = x.experiment_id AND s.kind = {SIGHTINGS["crossover"]}
) AS crossings
WHERE NOT v.decided AND v.project_id = :project_id
ORDER BY x.registered_at, x.experiment_id
""")


def read_checklist(connection: Connection, project_id: int) -> list[ChecklistLine]:
    """Returns the checklist of a project as of now; no verdict reads anything of it."""
    connection.execute(_LIMIT)
    return lines(read_setup(connection, project_id))


def read_setup(connection: Connection, project_id: int) -> ProjectSetup:
    """Returns how a project is wired, as of now."""
    bound = {"project_id": project_id}
    row = connection.execute(_PROJECT, {**bound, "production": PRODUCTION}).one()
    settings = parse_settings(row.settings)
    recent = read_traffic(connection, project_id, graph_id=row.current_graph_id, settings=settings)
    experiments = _experiments(connection, project_id, settings)
    latest = PRODUCTION if row.production or row.latest is None else row.latest
    environments = sorted({experiment.environment for experiment in experiments}) or [latest]
    newest_at = _newest(recent.by_environment, environments, row.named_at)
    metric = default_metric(connection, project_id, settings)
    sources = metric_definition(metric, settings.metrics).sources
    revenue = connection.execute(_REVENUE, {**bound, "grace": settings.grace_seconds}).one()
    names = list(dict.fromkeys([*recent.names, *read_names(connection, project_id)]))
    past = PastLog(
        connection=connection,
        project_id=project_id,
        environment=environments[0],
        until=store_time(connection),
    )
    return value_of(
        ProjectSetup,
        row,
        grace_seconds=settings.grace_seconds,
        contrast_hours=settings.contrast_hours,
        target=(metric, list(sources)),
        graph=row.current_graph_id is not None,
        deployed=row.latest is not None,
        environments=environments,
        traffic=recent.by_environment,
        names=names,
        received=read_name_counts(connection, project_id),
        unmatched=recent.unmatched,
        crowded=recent.crowded,
        undivided=[
            (name, metric.per)
            for name, metric in settings.metrics.items()
            if metric.per and names and not {*metric.per} & {*names}
        ],
        experiments=experiments,
        rivals=_rivals(connection, project_id, recent.by_environment),
        admissions=_admissions(connection, project_id),
        newest_event_at=newest_at,
        has_history=row.has_history or row.history_to is not None,
        revenue_tested=revenue.tested,
        revenue_joined=revenue.joined,
        # A token vouches for a session.
        unit="session" if settings.signed_assignments else settings.unit,
        returning=_returning(past, settings),
        set_aside=[
            (failure.experiment_id, failure.sentence)
            for failure in read_set_aside(connection, project_id=project_id)
        ],
        unsealed=sealing_error(connection),
        splits=_last_splits(connection, project_id),
    )


_LAST_SPLITS = text("""
SELECT document::text FROM own_splits WHERE project_id = :project_id ORDER BY night DESC LIMIT 1
""")


def _last_splits(connection: Connection, project_id: int) -> OwnSplits | None:
    row = connection.execute(_LAST_SPLITS, {"project_id": project_id}).scalar_one_or_none()
    return None if row is None else msgspec.json.decode(row, type=OwnSplits)


def _returning(past: PastLog, settings: Settings) -> ReturningVisitors:
    with suppress(UnansweredError):
        return read_returning(PastEvents(past=past), settings)
    return ReturningVisitors()


def _newest(
    traffic: Mapping[str, Traffic], environments: Sequence[str], named_at: datetime | None
) -> datetime | None:
    """Returns when the last event came where a project measures, as far as the store tells."""
    here = [
        traffic[environment].newest_at for environment in environments if environment in traffic
    ]
    if here:
        return max(here)
    elsewhere = [part.newest_at for part in traffic.values()]
    # A name belongs to any environment; events at the log's end are known to be of others.
    return None if elsewhere and named_at and max(elsewhere) + SILENCE > named_at else named_at


def _experiments(
    connection: Connection, project_id: int, settings: Settings
) -> list[OpenExperiment]:
    bound = {"project_id": project_id, "some": MIN_CROSSINGS}
    rows = connection.execute(_EXPERIMENTS, bound).all()
    apart: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        shared = row.newest_shared_block
        if row.bound and (shared is None or row.newest_block - shared > _APART):
            apart[row.environment].append(row.experiment_id)
    states: dict[str, ControlState] = {}
    for environment, names in apart.items():
        states |= control_states(connection, project_id, environment, only=names)
    awaited = read_awaited(connection, project_id, settings, rows)
    return [
        _experiment(
            row, states.get(row.experiment_id), sources=sources, never_received=never_received
        )
        for row, (sources, never_received) in zip(rows, awaited, strict=True)
    ]


def _rivals(
    connection: Connection, project_id: int, traffic: Mapping[str, Traffic]
) -> list[tuple[str, str]]:
    """Returns the pairs of builds of which neither stands on the other, by environment."""
    several = [
        environment
        for environment, recent in traffic.items()
        if sum(commit.known for commit in recent.commits) > 1
    ]
    pairs = (
        _rival_lines(read_serving(connection, project_id, environment)) for environment in several
    )
    return [pair for pair in pairs if pair is not None]


def _rival_lines(builds: Serving) -> tuple[str, str] | None:
    """Returns two builds of which neither stands on the other, and no share is declared.

    Both were deployed over an hour ago, and each carries a part that no mishap explains: two
    services that post to the same environment, or a canary whose share nobody declared.
    """
    lines = [
        step.commit
        for step in sorted(builds.last.values(), key=lambda step: step.deployed_at)
        if step.allocation is None
        and builds.at - step.deployed_at >= LOOK_BACK
        and builds.parts.get(step.commit, 0.0) >= _RIVAL
    ]
    for first, second in combinations(lines, 2):
        if second not in builds.bases_of(first) and first not in builds.bases_of(second):
            return first, second
    return None


def _experiment(
    row: Row[Any], state: ControlState | None, **awaited: Sequence[str]
) -> OpenExperiment:
    first_look_at = first_look_of(row.units_from, row.policy)
    return value_of(
        OpenExperiment,
        row,
        **awaited,
        treatment=row.treatment_commit,
        metric=row.target_metric,
        target=None if row.target is None else msgspec.convert(row.target, FrozenMetric),
        left_out=msgspec.convert(row.left_out or (), tuple[LeftOut, ...]),
        control_state=state or ControlState(),
        first_look_at=None
        if first_look_at is None or first_look_at <= datetime.now(UTC)
        else first_look_at,
    )


_LAST = "(array_agg({0} ORDER BY minute DESC) FILTER (WHERE {0} IS NOT NULL))[1]"
_ADMISSIONS = text(f"""
SELECT {", ".join(f"sum({name})::bigint AS {name}" for name in COUNTED)},
    {", ".join(f"{_LAST.format(name)} AS {name}" for name in NEWEST)}
FROM admissions
WHERE project_id = :project_id AND minute > statement_timestamp() - interval '15 minutes'
HAVING count(*) > 0
""")


def _admissions(connection: Connection, project_id: int) -> Admissions | None:
    """Returns the counts of a project in the last quarter of an hour; None of a silent project."""
    row = connection.execute(_ADMISSIONS, {"project_id": project_id}).one_or_none()
    return None if row is None else value_of(Admissions, row)
