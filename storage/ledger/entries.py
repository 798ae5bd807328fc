"""The entries of a project's ledger: experiments with a look in the last days."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from domain.ledger.account import DAYS, Ledger, ledger_of
from domain.ledger.entry import Entry
from storage.experiments.deploys import TITLE
from storage.postgres.rows import value_of
from storage.schema.policy_columns import ALPHA, ATTEMPT, IS_PORTFOLIO
from storage.verdicts.keep_records import IS_RETROSPECTIVE

# Who made a change: as the registration names it, else as the commit does.
ACTOR = """
coalesce(x.request ->> 'actor', d.commit ->> 'actor', d.commit ->> 'author')"""
# The evidence is read of keeps alone: a document of thousands of looks is large.
_ENTRIES = text(f"""
SELECT x.experiment_id, x.target_metric AS metric, v.verdict, v.as_of AS at, x.treatment_commit,
    {TITLE} AS title,
    {ACTOR} AS actor,
    coalesce({ALPHA} / power({ATTEMPT}, 2), 0.05) AS level,
    {IS_RETROSPECTIVE} AS retrospective,
    coalesce(p.asked_at, x.registered_at) AS asked_at, v.decided, p.outcome,
    coalesce(cardinality(x.change), 0) AS changes,
    CASE WHEN v.verdict IN ('rollback', 'iterate')
        THEN (v.evidence #>> '{{arms,treatment,units}}')::bigint END AS units,
    f.state AS followed, kept.log_e, kept.claimed, kept.at_decision, kept.after_decision,
    kept.measured_error, kept.harm, kept.no_effect
FROM verdicts AS v
JOIN experiments AS x USING (experiment_id)
LEFT JOIN deploys AS d USING (deploy_id)
LEFT JOIN follow_ups AS f USING (experiment_id)
LEFT JOIN LATERAL (
    SELECT asked_at, outcome FROM places WHERE places.experiment_id = v.experiment_id
    ORDER BY asked_at LIMIT 1
) AS p ON true
LEFT JOIN LATERAL (
    SELECT coalesce(
            f.log_e, ln(least(nullif((e.evidence #>> '{{totals,e_value}}')::float, 0), 1e300))
        ) AS log_e,
        e.lift / nullif(abs(e.control), 0) AS claimed,
        (e.evidence #>> '{{effect,relative}}')::float AS at_decision,
        e.fresh AS after_decision, (e.effect ->> 'harm')::float AS harm,
        (e.effect ->> 'no_effect')::float AS no_effect,
        abs(e.fresh * (f.effect #>> '{{after_decision,standard_error}}')::float
            / nullif((f.effect #>> '{{after_decision,estimate}}')::float, 0)) AS measured_error
    FROM (
        SELECT v.evidence, coalesce(f.effect, v.evidence -> 'effect') AS effect,
            (v.contract ->> 'lift')::float AS lift,
            coalesce(v.evidence #>> '{{arms,control,mean}}', v.evidence #>> '{{arms,control,rate}}'
            )::float AS control,
            CASE WHEN f.state = 'final'
                THEN (f.effect #>> '{{after_decision,relative}}')::float END AS fresh
    ) AS e
) AS kept ON v.verdict = 'keep'
WHERE v.project_id = :project_id AND v.as_of > :since
  -- Its changes are in the ledger by themselves.
  AND NOT {IS_PORTFOLIO}
ORDER BY v.as_of, x.experiment_id
""")


_OPEN_PLACES = text("""
SELECT count(*) FILTER (WHERE placed_at IS NULL) AS queued, count(placed_at) AS placed
FROM places WHERE project_id = :project_id AND ended_at IS NULL
""")


def read_ledger(connection: Connection, project_id: int, *, as_of: datetime) -> Ledger:
    """Returns the ledger of a project."""
    entries = read_entries(connection, project_id, as_of=as_of)
    open_places = connection.execute(_OPEN_PLACES, {"project_id": project_id}).one()
    return ledger_of(entries, as_of=as_of, queued=open_places.queued, placed=open_places.placed)


def read_entries(connection: Connection, project_id: int, *, as_of: datetime) -> list[Entry]:
    """Returns the experiments that had a look in the ledger's days, the earliest first."""
    bound = {"project_id": project_id, "since": as_of - timedelta(days=DAYS)}
    return [value_of(Entry, row) for row in connection.execute(_ENTRIES, bound)]


@dataclass(frozen=True, kw_only=True)
class JudgedProject:
    """A project that has a ledger."""

    project_id: int
    name: str


_PROJECTS = text("""
SELECT p.project_id, p.name
FROM projects AS p JOIN verdicts AS v USING (project_id)
WHERE v.as_of > :since
GROUP BY p.project_id, p.name ORDER BY count(*) DESC, p.project_id
""")


def judged_projects(connection: Connection, *, as_of: datetime) -> list[JudgedProject]:
    """Returns the projects whose ledgers have entries, the busiest first."""
    rows = connection.execute(_PROJECTS, {"since": as_of - timedelta(days=DAYS)})
    return [value_of(JudgedProject, row) for row in rows]
