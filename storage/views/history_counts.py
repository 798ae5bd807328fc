"""Counts of history: units and outcomes of two commits in a file and the log, as they stand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, select, text

from domain.route import RouteTable
from storage.experiments.commit_ids import commit_named
from storage.pipeline.engines.day_engine import DayEngine
from storage.pipeline.experiments import PipelineExperiment
from storage.pipeline.moments import block_of
from storage.pipeline.steps import PROPERTIES, has_asked_values
from storage.schema.tables import experiments


@dataclass(frozen=True, kw_only=True)
class ArmHistory:
    """The units of an arm, whether they count or not."""

    units: int = 0
    after_horizon: int = 0
    begun_by_outcome: int = 0


@dataclass(frozen=True, kw_only=True)
class HistoryCount:
    """The units and outcomes of a comparison, whether they count or not.

    Attributes:
        outcomes: How many events of the target units of either arm sent that came before the
            horizon.
    """

    control: ArmHistory
    treatment: ArmHistory
    outcomes: int
    before: int
    after: int
    longest: timedelta


_ROUTES = """
SELECT DISTINCT e.route FROM events AS e
JOIN counted_commits AS c ON c.commit_sha = e.commit_sha
WHERE e.route IS NOT NULL
"""

# Twice a time and the arm in one number: so the first event is a minimum of integers.
_COUNT = """
WITH first AS (
    SELECT {unit} AS unit, min(2 * e.occurred + c.arm) AS seen,
        min(CASE WHEN m.event IS NULL THEN 2 * e.occurred + c.arm END) AS seen_before
    FROM events AS e JOIN counted_commits AS c
      ON c.commit_sha = e.commit_sha AND c.environment = e.environment
    LEFT JOIN counted_sources AS m ON m.event = e.event AND {asked}
    WHERE e.occurred >= {since} AND {unit} IS NOT NULL AND {exposes}
    GROUP BY 1
), exposed AS (
    SELECT unit, seen, seen % 2 AS arm, CASE WHEN seen < {horizon} THEN 0 ELSE 1 END AS is_after,
        CASE WHEN seen_before <= seen THEN 0 ELSE 1 END AS is_outcome
    FROM first
), delayed AS (
    SELECT 2 * e.occurred - x.seen + x.arm AS delay
    FROM events AS e JOIN counted_sources AS m
      ON m.event = e.event AND m.environment = e.environment AND {asked}
    JOIN exposed AS x ON x.unit = {unit}
    WHERE e.occurred >= {since} AND x.is_after = 0
), outcomes AS (
    SELECT count(*) AS outcomes, sum(CASE WHEN delay < 0 THEN 1 ELSE 0 END) AS before,
        sum(CASE WHEN delay > {window} THEN 1 ELSE 0 END) AS after, max(delay) AS longest
    FROM delayed
), arms AS (
    SELECT arm, count(*) AS units, sum(is_after) AS after_horizon,
        sum(is_outcome) AS begun_by_outcome
    FROM exposed GROUP BY arm
)
SELECT a.arm, a.units, a.after_horizon, a.begun_by_outcome, o.outcomes, o.before, o.after, o.longest
FROM outcomes AS o LEFT JOIN arms AS a ON 1 = 1
"""


def count_history(
    engine: DayEngine,
    experiment: PipelineExperiment,
    *,
    control: Iterable[str],
    treatment: Iterable[str],
) -> HistoryCount:
    """Counts the units and outcomes of two commits in the events of an engine.

    It reads neither lineages nor blocks, so that a verdict leaves out the difference.

    Args:
        engine: With the relation `events`, of the experiment's project since its start.
    """
    environment, target = experiment.environment, experiment.metrics[0]
    commits = [
        (environment, sha, arm) for arm, shas in enumerate((control, treatment)) for sha in shas
    ]
    engine.register(
        "counted_commits", {"environment": "text", "commit_sha": "text", "arm": "int"}, commits
    )
    engine.register(
        "counted_sources",
        dict.fromkeys(("environment", "event", *PROPERTIES, "asked"), "text"),
        [
            (environment, name, *(getattr(target, each) for each in PROPERTIES), target.asked)
            for name in target.sources
        ],
    )
    asked = has_asked_values("e") if target.property_1 else "1 = 1"
    exposes = "1 = 1"
    if experiment.routes is not None:
        patterns, served = RouteTable(experiment.routes), engine.rows(_ROUTES)
        exposing = [(route,) for (route,) in served if patterns.match(route) is not None]
        engine.register("counted_routes", {"route": "text"}, exposing)
        exposes = "e.route IN (SELECT route FROM counted_routes)"
    rows = list(
        engine.rows(
            _COUNT.format(
                unit="e.pseudonym" if experiment.by_user else "e.session_id",
                since=experiment.starts_at,
                # A block that ends after the horizon is not counted.
                horizon=2 * block_of(experiment.horizon),
                window=2 * target.attribution_window,
                exposes=exposes,
                asked=engine.dialect.written(asked),
            )
        )
    )
    arms = {
        arm: ArmHistory(units=units, after_horizon=int(late), begun_by_outcome=int(begun))
        for arm, units, late, begun, *_ in rows
        if arm is not None
    }
    *_, outcomes, before, after, longest = rows[0]
    return HistoryCount(
        control=arms.get(0, ArmHistory()),
        treatment=arms.get(1, ArmHistory()),
        outcomes=outcomes,
        before=int(before or 0),
        after=int(after or 0),
        longest=timedelta(microseconds=(longest or 0) // 2),
    )


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


def bound_experiment(
    connection: Connection, project_id: int, environment: str, *, treatment: str, metric: str
) -> str | None:
    """Returns the last experiment of a commit and metric that has begun, None where none has.

    Raises:
        Conflict: The commit's id begins several.
    """
    c = experiments.c
    return connection.execute(
        select(c.experiment_id)
        .where(
            c.project_id == project_id,
            c.environment == environment,
            c.target_metric == metric,
            c.treatment_commit == commit_named(connection, project_id, treatment),
            c.bound_at.is_not(None),
        )
        .order_by(c.bound_at.desc())
        .limit(1)
    ).scalar_one_or_none()
