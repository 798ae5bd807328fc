"""The effect member of an evidence document: the number to train on, beside the verdict."""

from domain.document import Interval, moment
from domain.evidence.effect import Effect
from domain.evidence.policy import EvidencePolicy
from orchestration.pipeline.members.policy import policy_of
from stats.decision.evidence import Evidence
from stats.decision.follow_up import FollowUp
from storage.verdicts.evidence import ExperimentReading


def dollars_of(policy: EvidencePolicy, per_day: float | None) -> float | None:
    """Returns what a conversion more of each unit is worth a day.

    Args:
        per_day: The measured units of both arms a day; all of them are worth it.
    """
    if policy.value_per_conversion is None or per_day is None:
        return None
    return policy.value_per_conversion * (per_day / (policy.sample_rate or 1))


def effect_at_look(evidence: Evidence, dollars: float | None, *, fair: bool) -> Effect | None:
    """Returns the effect at the look (docs/api.md, 'The effect'); None before the first.

    Its numbers are None where nothing was compared, and where what differs between the arms is not
    the change alone.
    """
    if evidence.as_of is None:
        return None
    effect = evidence.effect if fair else None
    interval = evidence.ci if effect is not None else None
    decided = evidence.decision.decided
    return Effect(
        estimate=None if effect is None else effect.estimate,
        standard_error=None if effect is None else effect.standard_deviation,
        interval=interval,
        relative=None if effect is None else effect.relative,
        value_per_day=None if effect is None or dollars is None else effect.estimate * dollars,
        value_interval=_times(interval, dollars),
        basis="at_decision" if decided else "open",
        units=evidence.units_in_cells,
        # A decided verdict is never rewritten, nor is what was estimated at its look.
        final=decided,
        as_of=moment(evidence.as_of),
    )


def follow_up_effect(
    follow_up: FollowUp, reading: ExperimentReading, *, state: str
) -> Effect | None:
    """Returns the effect of the units that were exposed after a decision.

    Of a follow-up that was stopped before its planned end the interval alone holds: an estimate
    that is ended on good news would show a lucky lift.

    Args:
        follow_up: The follow-up, as computed.
        reading: The experiment.
        state: `running`, `stopped` or `final`.

    Returns:
        None before its first look.
    """
    if follow_up.as_of is None:
        return None
    estimate = None if state == "stopped" else follow_up.lift
    dollars = dollars_of(policy_of(reading), follow_up.per_day)
    return Effect(
        estimate=estimate,
        standard_error=None if estimate is None else follow_up.standard_error,
        interval=follow_up.interval,
        relative=None if estimate is None else follow_up.relative,
        value_per_day=None if estimate is None or dollars is None else estimate * dollars,
        value_interval=_times(follow_up.interval, dollars),
        basis="after_decision",
        units=follow_up.units,
        final=state == "final",
        as_of=moment(follow_up.as_of),
    )


def _times(interval: Interval | None, dollars: float | None) -> Interval | None:
    if interval is None or dollars is None:
        return None
    low, high = sorted(end * dollars for end in interval)
    return low, high
