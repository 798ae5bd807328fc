"""The audit: a served verdict and all that it rests on, against the raw events."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import zip_longest
from typing import Any

from sqlalchemy import Connection, Engine

from domain.contract import waiting_contract
from domain.document import document_text
from domain.policy import FrozenAnswer, Policy
from orchestration.pipeline.drafts import draft_bound
from orchestration.pipeline.follow_up import draft_follow_ups
from storage.experiments.freezing import assigned
from storage.experiments.policy import proceed
from storage.experiments.readings import Reading
from storage.lake.day_engines import DayEngineSettings, day_engine_settings, past_files
from storage.lake.lake import Lake, store_lake
from storage.lake.reader import SealedLog, open_log
from storage.pipeline.comparison import ComparedLife, DifferingHour, compare
from storage.pipeline.engines.engine import EngineError
from storage.pipeline.experiments import PipelineExperiment, bound_experiment
from storage.pipeline.moments import block_of, microseconds, moment_of
from storage.pipeline.recompute import copy_aside, evidence_rows, recomputed
from storage.schema.encoding import BLOCK
from storage.schema.past_log import PastFiles
from storage.upkeep.day_check import ServedFollowUp, read_follow_ups
from storage.upkeep.raw_events import ServedVerdict, days_gone, read_served, touched_days
from storage.upkeep.reading import separate_reading
from storage.verdicts.publication import Draft


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of an audit.

    Attributes:
        as_of: The look of the served verdict; None before the first.
    """

    experiment_id: str
    as_of: datetime | None
    events: int = 0
    gone: Sequence[str] = ()
    touched: Sequence[str] = ()
    differences: Sequence[str] = ()

    @property
    def equal(self) -> bool:
        """Whether everything was compared, and no fact differs."""
        return not self.gone and not self.differences


def audit(engine: Engine, experiment_id: str, *, lake: Lake | None = None) -> Audit:
    """Computes a served verdict from the raw events and compares all that led to it.

    Raises:
        Missing: There is no such experiment.
        UnreadablePolicyError: Its policy is of another version, or broken.
        TooManyAssignmentsError: It has more assignments than can be numbered.
        EngineError: DuckDB's settings are wrong, or leave it too little memory.
        LakeError: A file of the sealed log cannot be read.
    """
    with separate_reading(engine) as separate:
        served = read_served(separate, experiment_id)
        if not served.bound:
            return _audit_unbound(experiment_id, served)
        experiment = bound_experiment(separate, experiment_id)
        followed = next(iter(read_follow_ups(separate, [experiment_id])), None)
        until = _read_until(experiment, served, followed)
        gone = days_gone(separate, experiment, until=moment_of(until))
        with open_log(separate, lake or store_lake(separate.engine)) as log:
            if gone:
                compared = Audit(experiment_id=experiment_id, as_of=served.as_of, gone=gone)
            else:
                life = _life(experiment, served, followed)
                events, hours = _recompute(log, experiment, life, until=until)
                compared = _compared(separate, served, followed, experiment_id)
                compared = replace(
                    compared,
                    events=events,
                    differences=[*compared.differences, *(hour.sentence for hour in hours)],
                )
            with past_files(separate, log=log, always=True) as files:
                return _with_policy(separate, compared, files)


def _audit_unbound(experiment_id: str, served: ServedVerdict) -> Audit:
    """An experiment that no deploy came for rests on no event."""
    answer = document_text(waiting_contract(experiment_id, decided=served.decided))
    differences = _different_texts("contract", _compact(served.contract), answer)
    return Audit(experiment_id=experiment_id, as_of=None, differences=differences)


def _read_until(
    experiment: PipelineExperiment, served: ServedVerdict, followed: ServedFollowUp | None
) -> int:
    """Returns how far the log is read: to the verdict's look, and to where it was closed by hand.

    An experiment that was followed up after its decision is read as far as it was then.

    Between looks nothing changes, so that nothing else of the pipeline's progress need be known.
    The pipeline reads the log by whole blocks: to the first that closes then or later.
    """
    until = experiment.starts_at + experiment.grace
    if served.as_of is not None:
        until = microseconds(served.as_of)
    if served.decided and served.closed_at is not None:
        until = max(until, microseconds(served.closed_at))
    if followed is not None and followed.read_to is not None:
        until = max(until, microseconds(followed.read_to) + experiment.grace)
    return block_of(until - experiment.grace + BLOCK - 1) + experiment.grace


# DuckDB is given so much memory first. Measured with a single experiment: 3 million events in 64
# MiB, 12 million in 192, at 1.3 and 1.7 times the CPU of 1,024.
_FIRST_MIB = (64, 192)


def _recompute(
    log: SealedLog, experiment: PipelineExperiment, life: ComparedLife | None, *, until: int
) -> tuple[int, Sequence[DifferingHour]]:
    """Recomputes, within little memory first; returns the number of events, and differing hours."""

    def within(settings: DayEngineSettings) -> tuple[int, Sequence[DifferingHour]]:
        with recomputed(
            log, [experiment], as_of=until, settings=settings, wanted=evidence_rows
        ) as lives:
            if not lives.read:
                return 0, ()
            copy_aside(lives, log.connection)
            hours = () if life is None else compare(lives.engine, log.connection, [life])
            ((events,),) = lives.engine.rows(_EVENTS_READ)
            return events, hours

    settings = day_engine_settings()
    for memory_mib in _FIRST_MIB if settings.spark_remote is None else ():
        if memory_mib < settings.limits.memory_mib:
            first = replace(settings, limits=replace(settings.limits, memory_mib=memory_mib))
            with suppress(EngineError), log.connection.begin_nested():
                return within(first)
    return within(settings)


# The log's rows are of all environments of a project.
_EVENTS_READ = """
SELECT count(*) FROM log_rows AS e
JOIN (SELECT DISTINCT project_id, environment FROM scope) AS s
  ON s.project_id = e.project_id AND s.environment = e.environment
"""


def _life(
    experiment: PipelineExperiment, served: ServedVerdict, followed: ServedFollowUp | None
) -> ComparedLife | None:
    """Returns how far its rows are compared: not at all where nothing was published yet."""
    if served.as_of is None:
        return None
    look = microseconds(served.as_of)
    if followed is not None and followed.read_to is not None:
        look = max(look, microseconds(followed.read_to) + experiment.grace)
    return ComparedLife(experiment=experiment, to_block=look - experiment.grace)


def _compared(
    separate: Connection, served: ServedVerdict, followed: ServedFollowUp | None, experiment_id: str
) -> Audit:
    """Compares the recomputed documents with those served."""
    (drafted,) = draft_bound(separate, only=[experiment_id])
    differences = _different_answers(served, drafted.draft)
    differences += _different_follow_ups(separate, followed)
    return Audit(experiment_id=experiment_id, as_of=served.as_of, differences=differences)


def _with_policy(connection: Connection, compared: Audit, files: PastFiles) -> Audit:
    """Adds in which members a policy differs that is frozen again, and in which readings.

    By its kept answers it is the same, always. By the log it is, unless events of the days that a
    reading read were dropped, forgotten or brought since: these are named.
    """
    experiment_id = compared.experiment_id
    stored, by_kept, by_log = frozen_again(connection, experiment_id, files=files)
    differences = list(_different_members("policy", stored, by_kept))
    touched: list[str] = []
    for kept, read in zip_longest(Policy.of(stored).frozen_from, by_log):
        answer = kept or read
        if read is not None and read.is_default:
            touched.append(f"{answer.question}: the log did not answer in time")
        elif kept != read and not (kept and kept.is_default):
            days = f"{answer.since:%Y-%m-%d} to {answer.until:%Y-%m-%d}"
            if causes := touched_days(connection, experiment_id, answer):
                named = (
                    f"events of {', '.join(str(day or days) for day in each)} were {cause} since"
                    for cause, each in causes.items()
                )
                touched.append(f"{answer.question}: {'; '.join(named)}")
            else:
                both = [None if each is None else _short(each.answer) for each in (kept, read)]
                differences.append(
                    f"{answer.question} (events of {days}): kept {both[0]}, read {both[1]}"
                )
    return replace(compared, touched=touched, differences=[*compared.differences, *differences])


# --- Comparison --------------------------------------------------------------------------------

_AROUND = 60


def _different_answers(served: ServedVerdict, draft: Draft) -> list[str]:
    if served.evidence is None:
        # Nothing was published yet but the answer that every experiment begins with.
        waiting = document_text(waiting_contract(draft.experiment_id))
        return _different_texts("contract", _compact(served.contract), waiting)
    return [
        *_different_texts("contract", served.contract, draft.contract),
        *_different_texts("evidence", served.evidence, draft.document),
    ]


def _different_follow_ups(connection: Connection, served: ServedFollowUp | None) -> list[str]:
    """Returns the members in which the effect since the decision differs."""
    if served is None or served.read_to is None:
        return []
    (draft,) = draft_follow_ups(connection, [served])
    return list(
        _different_members(
            "effect",
            {"state": served.state, "effect": json.loads(served.effect or "null")},
            {"state": draft.state, "effect": json.loads(draft.effect)},
        )
    )


def _compact(text: str) -> str:
    """Returns a contract of before the first run, in the form that the pipeline writes."""
    return document_text(json.loads(text))


def _different_texts(name: str, served: str, raw: str) -> list[str]:
    """Returns the members in which two documents differ, or the first byte where none does."""
    if served == raw:
        return []
    members = list(_different_members(name, json.loads(served), json.loads(raw)))
    if members:
        return members
    unlike = (at for at, (a, b) in enumerate(zip(served, raw, strict=False)) if a != b)
    at = next(unlike, min(len(served), len(raw)))
    return [f"{name}, byte {at}: served {served[at : at + _AROUND]}, raw {raw[at : at + _AROUND]}"]


def _different_members(path: str, served: Any, raw: Any) -> Iterable[str]:  # noqa: ANN401 - JSON
    if isinstance(served, dict) and isinstance(raw, dict):
        for name in dict.fromkeys([*served, *raw]):
            yield from _different_members(f"{path}.{name}", served.get(name), raw.get(name))
    elif isinstance(served, list) and isinstance(raw, list) and len(served) == len(raw):
        for number, (left, right) in enumerate(zip(served, raw, strict=True)):
            yield from _different_members(f"{path}[{number}]", left, right)
    elif served != raw:
        yield f"{path}: served {_short(served)}, raw {_short(raw)}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _AROUND else f"{text[:_AROUND]}..."


def frozen_again(
    connection: Connection, experiment_id: str, *, files: PastFiles | None = None
) -> tuple[Mapping[str, object], Mapping[str, object], Sequence[FrozenAnswer]]:
    """Returns a policy as stored, completed, and by its kept answers, and the log's answers now.

    Nothing is stored.
    """
    assignment, _, past = assigned(connection, experiment_id, files)
    stored = assignment.row.policy
    kept = {each.question: each for each in Policy.of(stored).frozen_from}
    answers: dict[str, FrozenAnswer] = {}
    while isinstance(reading := proceed(assignment, answers), Reading):
        answers[reading.question] = reading.answer(past) or reading.unanswered
    again = proceed(assignment, kept)
    both = (
        Policy.completed(stored),
        again.question if isinstance(again, Reading) else again.policy,
    )
    whole, by_kept = (json.loads(document_text(each)) for each in both)
    return whole, by_kept, [*answers.values()]
