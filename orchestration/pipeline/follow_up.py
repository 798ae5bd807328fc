"""Follow-ups drafted: the effect by all units, those that came after a decision included."""

from collections.abc import Sequence

from sqlalchemy import Connection

from domain.document import document_text, moment
from domain.evidence.effect import FollowUpState
from orchestration.pipeline.batch import Patience, work_apart
from orchestration.pipeline.members.effect import effect_after
from orchestration.pipeline.series import seconds, series_of
from stats.decision.follow_up import follow_up
from storage.verdicts.evidence import ExperimentReading, read_experiments
from storage.verdicts.follow_ups import (
    FollowUpDraft,
    PlannedFollowUp,
    begin_follow_ups,
    due_follow_ups,
    publish_follow_ups,
    stop_follow_ups,
)


def follow_decisions(connection: Connection, decided: Sequence[str], *, patience: Patience) -> None:
    """Begins the follow-ups of new decisions, and publishes the effects of those that are running.

    Args:
        connection: In the transaction that published the decisions.
    """
    begin_follow_ups(connection, decided)
    due = {plan.experiment_id: plan for plan in due_follow_ups(connection)}

    def drafted(ids: Sequence[str]) -> None:
        plans = [due[experiment_id] for experiment_id in ids]
        publish_follow_ups(connection, draft_follow_ups(connection, plans, decided=True))

    _, broken = work_apart(connection, list(due), drafted, patience=patience)
    stop_follow_ups(connection, list(broken))


def draft_follow_ups(
    connection: Connection, planned: Sequence[PlannedFollowUp], *, decided: bool = False
) -> list[FollowUpDraft]:
    """Computes follow-ups from the cells that there are.

    Args:
        decided: Whether the verdicts there say that the experiments are decided; those of a
            separate reading do not.
    """
    spans = {plan.experiment_id: plan for plan in planned}
    readings = read_experiments(connection, only=list(spans), decided=decided)
    return [_draft(reading, spans[reading.experiment_id]) for reading in readings]


def _draft(reading: ExperimentReading, plan: PlannedFollowUp) -> FollowUpDraft:
    result = follow_up(
        series_of(reading),
        begin=seconds(plan.begins_at),
        end=seconds(plan.ends_at),
        stop=_stop(reading, plan),
    )
    state: FollowUpState = "running"
    if result.ended:
        state = "stopped" if result.stopped else "final"
    effect = effect_after(result, reading, plan=plan, state=state)
    return FollowUpDraft(
        experiment_id=reading.experiment_id,
        state=state,
        effect=document_text(effect),
        log_e=result.log_e,
        as_of=None if result.as_of is None else moment(result.as_of),
        read_to=moment(seconds(reading.as_of) - reading.policy.grace_seconds),
    )


def _stop(reading: ExperimentReading, plan: PlannedFollowUp) -> int | None:
    """Returns when the treatment was declared for all units, or for none, since the decision.

    Everybody has a portfolio's treatment, but for the units that are held back.
    """
    if reading.policy.portfolio:
        return None
    ends = [
        max(span.begin, plan.begins_at)
        for span in reading.allocations
        if span.share in (0, 1) and (span.end is None or span.end > plan.begins_at)
    ]
    return min((seconds(end) for end in ends if end < plan.ends_at), default=None)
