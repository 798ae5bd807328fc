"""An experiment under audit: as it is served, and which of its days are gone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import Connection, select, text

from domain.policy import FrozenAnswer
from storage.pipeline.experiments import PipelineExperiment
from storage.pipeline.moments import SECOND
from storage.postgres.engine import SCHEMA
from storage.postgres.refusal import Missing
from storage.schema.partitions import existing_days, partition_name
from storage.schema.tables import experiments
from storage.upkeep.gone_events import days_dropped

# A client's clock may run ahead by 2 minutes; and a minute for the servers' own.
_AHEAD = timedelta(minutes=3)


@dataclass(frozen=True, kw_only=True)
class ServedVerdict:
    """A verdict as it is served, to the byte; `bound` unless it still waits for a deploy."""

    contract: str
    evidence: str | None
    decided: bool
    as_of: datetime | None
    bound: bool
    closed_at: datetime | None


_SERVED = text(f"""
SELECT v.contract::text AS contract, v.evidence::text AS evidence, v.decided, v.as_of,
    x.frozen_at IS NOT NULL AS bound, x.closed_at
FROM {SCHEMA}.verdicts AS v JOIN experiments AS x USING (experiment_id)
WHERE v.experiment_id = :id
""")


def read_served(connection: Connection, experiment_id: str) -> ServedVerdict:
    """Returns the verdict of an experiment of any project, as it is served.

    Raises:
        Missing: There is no such experiment.
    """
    row = connection.execute(_SERVED, {"id": experiment_id}).mappings().one_or_none()
    if row is None:
        raise unknown_to_the_store(experiment_id)
    return ServedVerdict(**row)


# --- Gone days -------------------------------------------------------------------------------

_COUNTED = text(f"""
SELECT DISTINCT block AS from_moment,
    block + interval '5 minutes' + make_interval(secs => :grace) AS to_moment
FROM {SCHEMA}.cells_in_words WHERE experiment_id = :id AND block <= :until AND n1 + n0 > 0
UNION ALL
SELECT DISTINCT s.sighted_at - interval '5 minutes' - make_interval(secs => :grace), s.sighted_at
FROM {SCHEMA}.sightings_in_words AS s
WHERE s.experiment_id = :id AND s.kind = 'in_flight' AND s.sighted_at <= :until
""")


def days_gone(
    connection: Connection, experiment: PipelineExperiment, *, until: datetime
) -> list[str]:
    """Returns the dropped partitions that an audit would read, or units were counted from.

    Dropped by the retention, or by hand: a day without a partition may be a day on which nothing
    was received, so a day counts as dropped by hand only if the store still holds counts derived
    from it.
    """
    present = existing_days(connection)
    grace = experiment.grace // SECOND
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


_TOUCHED = text("""
SELECT cause, array_agg(day ORDER BY day) AS days
FROM experiments AS x
CROSS JOIN LATERAL (
    SELECT 'dropped' AS cause, day FROM dropped_days WHERE dropped_at >= x.bound_at
    UNION ALL
    SELECT 'brought', day FROM histories AS h
    WHERE h.project_id = x.project_id AND h.environment = x.environment
      AND brought_at >= x.bound_at
    UNION ALL
    -- It is not kept when those came who were forgotten.
    SELECT DISTINCT 'forgotten', CAST(NULL AS date) FROM forgettings AS f
    WHERE f.project_id = x.project_id AND forgotten_at >= x.bound_at
      AND runtime_events + revenue_events > 0
) AS t
WHERE x.experiment_id = :experiment_id
  AND (day IS NULL OR day + 1 > CAST(:since AS timestamptz) AND day <= :until)
GROUP BY cause
""")


def touched_days(
    connection: Connection, experiment_id: str, answer: FrozenAnswer
) -> Mapping[str, Sequence[date | None]]:
    """Returns the days of a reading of which events were `dropped`, `brought` or `forgotten` since.

    Of those who were forgotten no day is known: it is None.
    """
    bound = {"experiment_id": experiment_id, "since": answer.since, "until": answer.until}
    rows = connection.execute(_TOUCHED, bound)
    return {row.cause: row.days for row in rows}


def experiments_of_project(connection: Connection, project_id: int) -> set[str]:
    """Returns the identifiers of a project's experiments."""
    query = select(experiments.c.experiment_id).where(experiments.c.project_id == project_id)
    return set(connection.execute(query).scalars())


def unknown_to_the_store(experiment_id: str) -> Missing:
    """Returns the refusal of an experiment that no project of a command's store has."""
    return Missing(
        "unknown_experiment",
        f"there is no experiment {experiment_id} in this store: the dashboard lists those of a"
        " project; --data-dir or SERVICE_DATABASE_URL names another store",
    )
