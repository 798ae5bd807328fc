"""The portfolio of a project: the standing build against a hold-back, and the claims in between."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, text

from domain.evidence.effect import AfterDecision
from domain.ledger.account import sum_of
from domain.ledger.portfolio import (
    DAYS,
    Portfolio,
    PortfolioMeasurement,
    needed_share,
    relative_effect,
    with_counted,
)
from domain.lineage.history import History
from domain.registration import PRODUCTION
from domain.words import Verdict
from storage.experiments.commit_ids import commit_meant
from storage.experiments.deploys import TITLE
from storage.experiments.histories import read_facts
from storage.experiments.serving import standing_commit
from storage.postgres.refusal import Missing
from storage.postgres.rows import value_of
from storage.schema.policy_columns import IS_PORTFOLIO
from storage.tenants.default_metric import default_metric
from storage.tenants.settings import read_settings
from storage.views.published import read_effect

# The level of control in an evidence document.
_CONTROL = """
coalesce(v.evidence #>> '{arms,control,mean}', v.evidence #>> '{arms,control,rate}')::float
"""
_NEWEST = text(f"""
SELECT x.experiment_id, x.target_metric AS metric, x.treatment_commit, x.control_commit, x.change,
    x.starts_at, coalesce(x.attempt, 1) AS attempt, v.verdict, v.decided, {_CONTROL} AS control
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.project_id = :project_id AND x.environment = :environment AND x.bound_at IS NOT NULL
  AND {IS_PORTFOLIO}
  AND (CAST(:metric AS text) IS NULL OR x.target_metric = :metric)
  AND (CAST(:hold_back AS text) IS NULL OR x.control_commit = :hold_back)
ORDER BY x.bound_at DESC, x.experiment_id
LIMIT 1
""")
_MEASUREMENTS = text(f"""
WITH newest AS (
    SELECT DISTINCT ON (x.change) x.experiment_id, x.change, {TITLE} AS title, x.bound_at,
        v.verdict, v.decided,
        (v.contract ->> 'lift')::float / nullif(abs({_CONTROL}), 0) AS claimed,
        coalesce(f.effect, v.evidence -> 'effect') AS estimated
    FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
    LEFT JOIN follow_ups AS f USING (experiment_id)
    LEFT JOIN deploys AS d USING (deploy_id)
    WHERE x.project_id = :project_id AND x.environment = :environment
      AND x.frozen_at IS NOT NULL AND NOT {IS_PORTFOLIO}
      AND x.target_metric = :metric AND x.change <@ CAST(:change AS text[])
      AND x.change <> ARRAY[]::text[]
    ORDER BY x.change, x.bound_at DESC, x.experiment_id
)
SELECT experiment_id, change, title, verdict, decided, claimed,
    (estimated ->> 'relative')::float AS effect,
    CASE WHEN estimated ->> 'relative' IS NOT NULL THEN estimated ->> 'basis' END AS basis
FROM newest
ORDER BY bound_at DESC, experiment_id
""")
_STANDING = text("""
SELECT deploy_id FROM deploys
WHERE project_id = :project_id AND environment = :environment AND commit_sha = :commit
  AND withdrawn_at IS NULL
ORDER BY deployed_at DESC, recorded_at DESC LIMIT 1
""")
_SHARE = text("""
SELECT allocation FROM deploys
WHERE project_id = :project_id AND environment = :environment AND commit_sha = :commit
  AND withdrawn_at IS NULL
ORDER BY deployed_at DESC, recorded_at DESC LIMIT 1
""")
_TRAFFIC = text(f"""
SELECT (v.evidence #>> '{{sessions,per_day}}')::float AS per_day, {_CONTROL} AS rate,
    v.evidence #>> '{{arms,control,mean}}' IS NULL AS is_rate
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.project_id = :project_id AND x.environment = :environment AND x.target_metric = :metric
  AND v.evidence #>> '{{sessions,per_day}}' IS NOT NULL
ORDER BY v.as_of DESC, x.experiment_id
LIMIT 1
""")


def read_portfolio(
    connection: Connection,
    project_id: int,
    *,
    as_of: datetime,
    environment: str = PRODUCTION,
    metric: str | None = None,
    hold_back: str | None = None,
) -> Portfolio:
    """Returns the newest portfolio, or the portfolio that could be begun.

    Args:
        metric: By default that of the newest portfolio, else the project's.
        hold_back: The build that is held back, or how its id begins; by default that of the newest
            portfolio, else the standing build of seven days ago.

    Raises:
        Missing: The hold-back is no commit of this environment.
        Conflict: Its id begins several commits.
    """
    place = {"project_id": project_id, "environment": environment}
    facts = read_facts(connection, [(project_id, environment)])
    history = History(facts[project_id, environment], known_at=as_of)
    if hold_back is not None:
        known = commit_meant(connection, project_id, hold_back)
        if known is None or known not in history.commits:
            raise Missing("unknown_commit", "no such commit was deployed in this environment")
        hold_back = known
    newest = connection.execute(
        _NEWEST, {**place, "metric": metric, "hold_back": hold_back}
    ).one_or_none()
    standing = standing_commit(connection, project_id, environment)
    if newest is None:
        treatment = standing
        settings = read_settings(connection, project_id)
        metric = metric or default_metric(connection, project_id, settings)
        hold_back = hold_back or standing_commit(
            connection,
            project_id,
            environment,
            until=as_of - timedelta(days=DAYS),
            besides=standing,
        )
        lacking = frozenset[str]() if hold_back is None else history.lineage(hold_back)
        carried = frozenset[str]() if standing is None else history.lineage(standing)
        change = [] if hold_back is None else sorted(carried - lacking)
    else:
        treatment, hold_back = newest.treatment_commit, newest.control_commit
        metric, change = newest.metric, newest.change
    asked = {**place, "metric": metric, "change": change}
    traffic = connection.execute(_TRAFFIC, asked).one_or_none()
    measurements = with_counted(
        [
            value_of(PortfolioMeasurement, row, counted=False)
            for row in connection.execute(_MEASUREMENTS, asked)
        ]
    )
    claims = [measurement for measurement in measurements if measurement.counted]
    claimed = sum_of(claim.claimed for claim in claims)
    attempt = 1 + len(measurements) if newest is None else newest.attempt
    return Portfolio(
        as_of=as_of,
        environment=environment,
        metric=str(metric),
        standing=standing,
        standing_deploy=connection.execute(
            _STANDING, {**place, "commit": standing}
        ).scalar_one_or_none(),
        treatment=treatment,
        hold_back=hold_back,
        hold_back_share=connection.execute(
            _SHARE, {**place, "commit": hold_back}
        ).scalar_one_or_none(),
        share=needed_share(
            claimed,
            attempt=attempt,
            per_day=None if traffic is None else traffic.per_day,
            rate=None if traffic is None or not traffic.is_rate else traffic.rate,
        ),
        moved_on=newest is not None and standing != treatment,
        attempt=attempt,
        changes=len(change),
        unmeasured=tuple(
            sorted(set(change).difference(*(measurement.change for measurement in measurements)))
        ),
        measurements=measurements,
        kept=len(claims),
        claimed=claimed,
        expected=sum_of(claim.effect for claim in claims),
        **_comparison(connection, project_id, newest),
    )


def _comparison(connection: Connection, project_id: int, row: Row[Any] | None) -> dict[str, Any]:
    """Returns the members of the portfolio's own experiment, each None before it is registered."""
    if row is None:
        return dict.fromkeys(
            ("experiment_id", "starts_at", "verdict", "decided", "follow_up", "effect")
        )
    effect = read_effect(connection, project_id, row.experiment_id)
    after = None if effect is None else effect.after_decision
    return {
        "experiment_id": row.experiment_id,
        "starts_at": row.starts_at,
        "verdict": Verdict(row.verdict),
        "decided": row.decided,
        "follow_up": after.state if isinstance(after, AfterDecision) else None,
        "effect": None if effect is None else relative_effect(effect, row.control),
    }
