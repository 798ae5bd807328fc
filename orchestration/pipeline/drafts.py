"""Drafts: each open experiment's evidence and contract, computed from its closed cells."""

import gc
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from domain.contract import Contract, contract, waiting_contract
from domain.document import document_text, moment
from domain.evidence.document import ClosedExperiment
from domain.policy import BLOCK_SECONDS
from domain.registration import GUARDRAIL_PACE_SECONDS
from domain.wording.headline import NO_ANSWER, headline_of
from domain.words import EndedBecause
from orchestration.pipeline.document import evidence_document
from orchestration.pipeline.members.serving import control_state_at
from orchestration.pipeline.sentence import of_the_experiment
from orchestration.pipeline.series import series_of
from stats.decision.evidence import Evidence, evaluate
from stats.looks.block import AnalysisBlocks
from stats.looks.series import Series
from stats.looks.stratification import Stratification, stratified
from storage.experiments.serving import seen_before
from storage.verdicts.evidence import (
    CountsAt,
    ExperimentReading,
    count_units,
    experiments_waited_out,
    histories_at,
    read_experiments,
    stratum_changes,
)
from storage.verdicts.next_look import NextLook
from storage.verdicts.publication import Draft


@dataclass(frozen=True, kw_only=True)
class Drafted:
    """A draft with the numbers that it was written from; None of an experiment without looks."""

    draft: Draft
    contract: Contract
    evidence: Evidence | None


def draft_bound(connection: Connection, *, only: Sequence[str] | None = None) -> list[Drafted]:
    """Computes evidence and contract of the bound experiments that are not decided yet."""
    with _no_collection():
        readings = read_experiments(connection, only=only)
        series = [series_of(reading) for reading in readings]
        strata = [stratified(experiment) for experiment in series]
        next_looks = [_next_look_of(each) for each in strata]
        return _drafts(connection, readings, next_looks, evaluate(series, strata=strata))


@contextmanager
def _no_collection() -> Generator[None]:
    """Holds back the collector of cycles.

    Readings and evidence of thousands of experiments hold none, and live until they are drafts: to
    walk them again and again would take a tenth of the CPU.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def draft_waited_out(connection: Connection, *, as_of: datetime) -> list[Drafted]:
    """Returns the drafts of the experiments that never start, as of a time."""
    waited = experiments_waited_out(connection, as_of=as_of)
    return [_waited_out(name, *ending) for name, ending in waited.items()]


def _drafts(
    connection: Connection,
    readings: Sequence[ExperimentReading],
    next_looks: Sequence[NextLook],
    evaluated: Sequence[Evidence],
) -> list[Drafted]:
    looks = [
        CountsAt(
            experiment_id=reading.experiment_id,
            look=moment(evidence.as_of or 0),
            in_cells=evidence.units_in_cells,
            excluded=evidence.units_excluded,
            compared_with_none=evidence.compared_with_none,
        )
        for reading, evidence in zip(readings, evaluated, strict=True)
    ]
    counts = count_units(connection, looks)
    histories = histories_at(connection, readings, [look.look for look in looks])
    changes = stratum_changes(connection, readings, histories)
    places = [(reading.project_id, reading.environment) for reading in readings]
    seen = seen_before(
        connection, [(place, at.look) for place, at in zip(places, looks, strict=True)]
    )
    drafted: list[Drafted] = []
    for reading, next_look, evidence in zip(readings, next_looks, evaluated, strict=True):
        place, look = (reading.project_id, reading.environment), moment(evidence.as_of or 0)
        answer = evidence_contract(reading.experiment_id, evidence)
        document = evidence_document(
            reading,
            evidence,
            contract=answer,
            counts=counts[reading.experiment_id],
            changes=changes[reading.experiment_id],
            state=control_state_at(
                reading,
                histories[reading.experiment_id],
                seen[place, look],
                look=look,
                compared=evidence.totals.W > 0,
            ),
        )
        draft = Draft(
            experiment_id=reading.experiment_id,
            document=document_text(document),
            contract=document_text(answer),
            as_of=None if evidence.as_of is None else moment(evidence.as_of),
            next_look_at=_next_look(reading, evidence),
            next_look=next_look,
        )
        drafted.append(Drafted(draft=draft, contract=answer, evidence=evidence))
    return drafted


def evidence_contract(experiment_id: str, evidence: Evidence) -> Contract:
    """Returns the verdict contract that an experiment's evidence supports."""
    decision = evidence.decision
    return contract(
        experiment_id,
        verdict=decision.verdict,
        abstain_reason=decision.abstain_reason,
        decided=decision.decided,
        lift=decision.lift,
        confidence=decision.confidence,
        ci=decision.ci,
        value_at_risk=decision.value_at_risk,
        cadence=decision.cadence,
        guardrail_breaches=decision.guardrail_breaches,
    )


def _next_look(reading: ExperimentReading, evidence: Evidence) -> datetime | None:
    """Returns when to look next at the earliest; None once decided.

    Before the target can be looked at, that is an hour, for a guardrail's sake.
    """
    if evidence.decision.decided:
        return None
    policy = reading.policy
    # Every metric's closing is a look; the shortest window closes first.
    grace = policy.grace_seconds
    closes_after = min(metric.seconds_open(grace=grace) for metric in policy.judged) + grace
    read_to = int(reading.as_of.timestamp())
    soonest = moment(
        max(evidence.closed_until + BLOCK_SECONDS + closes_after, read_to + BLOCK_SECONDS)
    )
    first = policy.first_look_at(reading.starts_at)
    if soonest >= first:
        return soonest
    return min(first, max(soonest, moment(read_to + GUARDRAIL_PACE_SECONDS)))


def _next_look_of(strata: Stratification) -> NextLook:
    """Returns the conditions of the next look, over all partitions into blocks."""
    series = strata.stages[-1].population.series
    looks = [_conditions(series, blocks) for blocks in strata.open_blocks]
    crowds = [look.crowd_since for look in looks if look.crowd_since is not None]
    return NextLook(
        units_since=min(look.units_since for look in looks),
        crowd_since=min(crowds, default=None),
        forced_at=min(look.forced_at for look in looks),
    )


def _conditions(series: Series, blocks: AnalysisBlocks) -> NextLook:
    """Returns the conditions of the next look: known closings, ends, and units."""
    policy = series.policy
    windows = {policy.window_seconds, *(metric.window_seconds for metric in series.guardrails)}
    read_to = series.as_of - policy.grace_seconds
    to_come = [
        end + window
        for end in blocks.ends[blocks.ends > read_to - max(windows)].tolist()
        for window in windows
        if end + window > read_to
    ]
    to_come.append(blocks.ends_by + series.shortest_window)
    return NextLook(
        units_since=moment(blocks.units_since),
        crowd_since=None if blocks.crowd_since is None else moment(blocks.crowd_since),
        forced_at=moment(min(to_come)),
    )


def _waited_out(experiment_id: str, ended: EndedBecause | None, cause: str | None) -> Drafted:
    answer = waiting_contract(experiment_id, decided=True)
    words = {
        None: "no deploy came for this experiment.",
        EndedBecause.CLOSED: "it was closed before its deploy came.",
    }.get(ended, f"it cannot start: {cause}")
    said = of_the_experiment(NO_ANSWER, words)
    document = ClosedExperiment(
        sentence=said.sentence,
        headline=headline_of(answer).text,
        reason=said.reason,
        advice=(),
        experiment_id=experiment_id,
        as_of=None,
        ended_because=ended,
    )
    draft = Draft(
        experiment_id=experiment_id,
        document=document_text(document),
        contract=document_text(answer),
        as_of=None,
        next_look_at=None,
    )
    return Drafted(draft=draft, contract=answer, evidence=None)
