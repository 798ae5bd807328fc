"""Situations: the present states of experiments, by their verdicts, deploys and traffic."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from domain.contract import Contract
from domain.evidence.breach import is_trusted
from domain.evidence.document import AnyEvidence
from domain.lineage.control_state import ControlState
from domain.lineage.serving import ReleaseStep
from domain.registration import PRODUCTION, Arrivals, MissingDeploy, Situation
from domain.wording.situation import as_of_now, situation
from storage.experiments.deploys import ELSEWHERE, UNSHARED
from storage.experiments.serving import control_states
from storage.schema.encoding import SIGHTINGS
from storage.schema.policy_columns import CONTRAST_SECONDS, IS_PAST, JUDGED_METRICS

# The evidence without its looks, which no list shows and which are most of it.
IN_SHORT = """CASE json_typeof(v.evidence) WHEN 'object'
    THEN jsonb_set(v.evidence::jsonb, '{looks}', '[]', false)::text END"""
# Whether the test alone says worse; to parse a long document takes milliseconds, and no text of a
# document can hold such quotes.
SUSPECTED = """(v.evidence::text LIKE '%"suspected"\\:true%')"""
# Arrivals as JSON; NULL once a unit is complete, or it is decided.
ARRIVALS = f"""CASE
    WHEN NOT v.decided AND coalesce((v.evidence #>> '{{sessions,accumulated}}')::bigint, 0) = 0
    THEN (
        SELECT json_build_object('units', coalesce(sum(u.treatment + u.control), 0),
            'events', coalesce((
            -- Admissions name no environment; nearly all events are of production.
            SELECT bool_or(a.accepted > 0) FROM admissions AS a
            WHERE x.environment = '{PRODUCTION}' AND a.project_id = x.project_id
              AND a.minute >= date_trunc('minute', x.starts_at)
        ), false), 'without_user', (
            SELECT count(*) FROM sightings AS s
            WHERE s.experiment_id = x.experiment_id AND s.kind = {SIGHTINGS["unknown_user"]}
        ))
        FROM block_units AS u WHERE u.experiment_id = x.experiment_id
    )
END"""
# The newest step of the treatment since the look that decided: it says what was done about it.
ACTED = """(
    SELECT json_build_array(d.allocation, d.deployed_at) FROM deploys AS d
    WHERE v.decided AND d.project_id = x.project_id AND d.environment = x.environment
      AND d.commit_sha = x.treatment_commit AND d.deployed_at > v.as_of
      AND (d.allocation IS NULL OR d.allocation IN (0, 1)) AND d.withdrawn_at IS NULL
    ORDER BY d.deployed_at DESC, d.recorded_at DESC LIMIT 1
)"""
# When the last block with a unit of either arm ended.
LAST_UNIT_AT = """(
    SELECT to_timestamp(max(u.block) / 1e6) + interval '5 minutes' FROM block_units AS u
    WHERE NOT v.decided AND u.experiment_id = x.experiment_id AND u.treatment + u.control > 0
)"""

_READ = text(f"""
SELECT x.experiment_id, x.project_id, x.environment, x.treatment_commit, x.deploy_id,
    x.request -> 'treatment_flag' IS NOT NULL AS is_flag, {CONTRAST_SECONDS} AS contrast,
    {ELSEWHERE} AS elsewhere, {UNSHARED} AS unshared, {ARRIVALS} AS arrivals, {ACTED} AS acted,
    {LAST_UNIT_AT} AS last_unit_at, x.closed_at, {IS_PAST} AS is_past,
    x.bound_at IS NOT NULL AND x.frozen_at IS NULL AS starting,
    (SELECT succeeded_at FROM ticks) AS ran_at
FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.experiment_id = ANY(:ids)
""")


@dataclass(frozen=True, kw_only=True)
class SituationReading:
    """A published verdict as of now.

    Attributes:
        evidence: The evidence document with the words of the situation; None before the first look.
        awaited: The deploy that it waits for; None once that has come.
        acted: The step that was taken after its decision; None where none was.
        trusted: Whether a workflow may act on it, whoever may have sent its events.
        is_past: Whether treatment has no live unit: nobody can act on history.
    """

    situation: Situation
    evidence: AnyEvidence | None
    builds: ControlState = field(default_factory=ControlState)
    awaited: MissingDeploy | None = None
    acted: ReleaseStep | None = None
    trusted: bool = True
    is_past: bool = False


_CLAIMED = text(f"""
-- A name is noted again after an hour, and ten minutes of a process's memory.
SELECT x.experiment_id, json_object_agg(
        s.event, coalesce(s.claimed_at > x.starts_at - interval '2 hours', false)
    ) AS claimed, EXISTS (
        -- A unit's first event; names beyond those that are kept came with the public key.
        SELECT FROM block_names AS b LEFT JOIN seen_names AS n
            ON n.project_id = x.project_id AND n.event = b.event
        WHERE b.experiment_id = x.experiment_id
          AND (n.event IS NULL OR n.claimed_at > x.starts_at - interval '2 hours')
    ) AS claims_units
FROM experiments AS x
CROSS JOIN LATERAL jsonb_path_query({JUDGED_METRICS}, '$[*].sources[*]') AS e (event)
JOIN seen_names AS s ON s.project_id = x.project_id AND s.event = e.event #>> '{{}}'
WHERE x.experiment_id = ANY(:ids)
GROUP BY x.experiment_id
""")


def read_situations(
    connection: Connection,
    published: Mapping[str, tuple[Contract, AnyEvidence | None]],
    *,
    nearest: str | None = None,
) -> dict[str, SituationReading]:
    """Returns the published verdicts of some experiments as of now."""
    rows = connection.execute(_READ, {"ids": list(published)}).all()
    open_ids: dict[tuple[int, str], list[str]] = defaultdict(list)
    for row in rows:
        if row.deploy_id is not None and not published[row.experiment_id][0].decided:
            open_ids[row.project_id, row.environment].append(row.experiment_id)
    builds = {
        name: state
        for place, ids in open_ids.items()
        for name, state in control_states(connection, *place, only=ids).items()
    }
    breached = [name for name, (contract, _) in published.items() if contract.guardrail_breaches]
    sent = connection.execute(_CLAIMED, {"ids": breached}) if breached else ()
    now, claims = datetime.now(UTC), {row.experiment_id: row for row in sent}
    return {
        row.experiment_id: _current(
            row,
            *published[row.experiment_id],
            builds=builds.get(row.experiment_id, ControlState()),
            nearest=nearest,
            now=now,
            trusted=is_trusted(
                *published[row.experiment_id],
                claim.claimed if (claim := claims.get(row.experiment_id)) else {},
                claims_units=claim is None or claim.claims_units,
            ),
        )
        for row in rows
    }


def _current(
    row: Row[Any],
    contract: Contract,
    evidence: AnyEvidence | None,
    *,
    builds: ControlState,
    nearest: str | None,
    now: datetime,
    trusted: bool,
) -> SituationReading:
    awaited, acted = None, _acted_step(row.acted, commit=row.treatment_commit)
    if row.deploy_id is None and not contract.decided:
        awaited = MissingDeploy(
            commit=row.treatment_commit,
            elsewhere=tuple(row.elsewhere),
            nearest=None if row.unshared else nearest,
            unshared=row.unshared,
        )
    current = situation(
        contract,
        evidence,
        builds,
        now=now,
        awaited=awaited,
        is_starting=row.starting,
        ran_at=row.ran_at,
        environment=row.environment,
        contrast_seconds=row.contrast,
        arrivals=None if row.arrivals is None else Arrivals(**row.arrivals),
        last_unit_at=row.last_unit_at,
        acted=acted,
        closed_at=row.closed_at,
        is_flag=row.is_flag,
        is_past=row.is_past,
        trusted=trusted,
    )
    return SituationReading(
        situation=current,
        evidence=None if evidence is None else as_of_now(evidence, current, builds, now=now),
        builds=builds,
        awaited=awaited,
        acted=acted,
        trusted=trusted,
        is_past=row.is_past,
    )


def _acted_step(acted: tuple[float, str] | None, *, commit: str) -> ReleaseStep | None:
    if acted is None:
        return None
    allocation, at = acted
    moment = datetime.fromisoformat(at)
    return ReleaseStep(commit=commit, deployed_at=moment, allocation=allocation)
