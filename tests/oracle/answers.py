"""Answers: contract and evidence as the oracle tells them from the raw log."""

from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, text

from domain.document import document_text, moment
from domain.lineage.control_state import ControlState
from domain.lineage.history import History
from orchestration.pipeline.document import evidence_document
from orchestration.pipeline.drafts import evidence_contract
from orchestration.pipeline.members.serving import control_state_at
from orchestration.pipeline.series import series_of
from stats.decision.evidence import Evidence, evaluate
from storage.experiments.graphs import graph_patterns
from storage.experiments.histories import read_facts, read_flags
from storage.experiments.serving import seen_before
from storage.pipeline.moments import microseconds
from storage.verdicts.evidence import ExperimentReading, read_experiments
from storage.verdicts.gates import read_gates
from tests.oracle.attribution import IDENTITY, IN_FLIGHT, Attribution, Attributor
from tests.oracle.calendar import Calendar
from tests.oracle.frozen import FrozenExperiment
from tests.oracle.raw_log import RawLog
from tests.oracle.raw_reading import reading_of, stratum_contents, units_beside_cells
from tests.oracle.standings import Standings, route_test
from tests.oracle.tombstones import read_tombstones

_SECOND = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What is published of an experiment, to the byte."""

    contract: str
    evidence: str


def answers_of(connection: Connection, experiment: FrozenExperiment, *, until: datetime) -> Answers:
    """Returns an experiment's documents, worked out event by event."""
    calendar = Calendar.of(experiment, until=microseconds(until))
    answer = attribution_of(connection, experiment, calendar, until=until)
    deploys = _log(connection, experiment, until=until).deploys(bound_at=experiment.bound_at)
    # Of what others do beside it, the oracle reads what is served of them.
    beside = read_gates(connection, [experiment.experiment_id], declared=[])
    pooled = beside[experiment.experiment_id].pooled
    # Nor does it work out what deploys declare within a stratum: it reads the product's shares.
    (served,) = (
        each
        for decided in (False, True)
        for each in read_experiments(connection, only=[experiment.experiment_id], decided=decided)
    )
    reading = reading_of(
        experiment,
        answer,
        calendar=calendar,
        deploys=deploys,
        pooled=pooled,
        shares=served.stratum_shares,
    )
    (result,) = evaluate([series_of(reading)])
    look = (result.as_of or 0) * _SECOND
    contract = evidence_contract(experiment.experiment_id, result)
    document = evidence_document(
        reading,
        result,
        contract=contract,
        counts=units_beside_cells(
            answer,
            calendar,
            result,
            look=look,
            never_received=_never_received(connection, experiment, look=result.as_of or 0),
        ),
        changes=stratum_contents(experiment, answer),
        state=_control_state(connection, experiment, reading, result),
    )
    return Answers(contract=document_text(contract), evidence=document_text(document))


def _never_received(
    connection: Connection, experiment: FrozenExperiment, *, look: int
) -> list[str]:
    """Returns the metrics of which the log had no event by a look, as far as names were kept."""
    seen = text(
        "SELECT event FROM seen_names WHERE project_id = :project AND first_at <= to_timestamp(:at)"
    )
    asked = {"project": experiment.project_id, "at": look}
    names = set(connection.execute(seen, asked).scalars())
    judged = [experiment.policy["target"], *experiment.policy["guardrails"]]
    return [metric["name"] for metric in judged if not names & {*metric["sources"]}]


def _control_state(
    connection: Connection,
    experiment: FrozenExperiment,
    reading: ExperimentReading,
    evidence: Evidence,
) -> ControlState:
    """Returns the builds beside the treatment as the product judges them: of no event's count."""
    place, look = (experiment.project_id, experiment.environment), moment(evidence.as_of or 0)
    return control_state_at(
        reading,
        History(
            read_facts(connection, [place])[place],
            known_at=max(look, experiment.bound_at),
            bound_at=experiment.bound_at,
        ),
        seen_before(connection, [(place, look)])[place, look],
        look=look,
        compared=evidence.totals.W > 0,
    )


def attribution_of(
    connection: Connection, experiment: FrozenExperiment, calendar: Calendar, *, until: datetime
) -> Attribution:
    """Returns an experiment's units, read from the log event by event."""
    place = experiment.project_id, experiment.environment
    policy = experiment.policy
    log = _log(connection, experiment, until=until)
    past = replace(log, since=log.since - IDENTITY)
    flags = read_flags(connection, [place])[place]
    patterns = (
        []
        if policy["graph_id"] is None
        else graph_patterns(connection, experiment.project_id, policy["graph_id"])
    )
    deploys = log.deploys(bound_at=experiment.bound_at)
    attributor = Attributor(
        experiment,
        calendar,
        standings=Standings(
            experiment,
            read_facts(connection, [place])[place],
            _ids(connection, experiment.project_id),
            {name: microseconds(at) for name, at in flags.items()},
            deploys,
        ),
        exposes=route_test(policy["routes"], patterns),
        deploys=deploys,
    )
    return attributor.attribution(
        list(log.events()),
        log.revenue(),
        log.sightings(
            since=log.since - IDENTITY,
            trusted_only=policy["trusted_identity"],
            vouched_only=policy["target"].get("vouched_only", False),
        ),
        read_tombstones(
            connection, experiment.experiment_id, until=until, grace_seconds=policy["grace_seconds"]
        ),
        history=(list(past.events()), list(past.revenue())),
    )


def _ids(connection: Connection, project_id: int) -> list[tuple[str, str, int]]:
    rows = connection.execute(
        text("SELECT commit_sha, id, recorded_at FROM commit_ids WHERE project_id = :project_id"),
        {"project_id": project_id},
    )
    return [(row.commit_sha, row.id, microseconds(row.recorded_at)) for row in rows]


def _log(connection: Connection, experiment: FrozenExperiment, *, until: datetime) -> RawLog:
    return RawLog(
        connection=connection,
        project_id=experiment.project_id,
        environment=experiment.environment,
        since=min(experiment.declared_at or experiment.starts_at, experiment.starts_at - IN_FLIGHT),
        until=until,
    )
