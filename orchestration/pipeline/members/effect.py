"""The effect member of an evidence document: the number to train on, beside the verdict."""

from datetime import datetime, timedelta

from msgspec import structs

from domain.document import Interval, moment
from domain.evidence import effect as served
from domain.evidence.effect import PRECISE, AfterDecision, Basis, FollowUpState, Likelihood, Stopped
from domain.policy import Policy
from domain.words import EndedBecause, Verdict
from stats.decision.effect import Effect
from stats.decision.evidence import CHOSEN_ENDS, Evidence
from stats.decision.follow_up import FollowUp
from stats.decision.learned import chances, learned_effect
from storage.verdicts.evidence import ExperimentReading
from storage.verdicts.follow_ups import PlannedFollowUp

_ENDS: dict[EndedBecause | None, Stopped] = {
    EndedBecause.CLOSED: "closed",
    EndedBecause.PROMOTED: "promoted",
    EndedBecause.WITHDRAWN: "withdrawn",
    EndedBecause.SUPERSEDED: "superseded",
    EndedBecause.NOTHING_TO_COMPARE: "nothing_to_compare",
}


def is_retrospective(reading: ExperimentReading, as_of: int | None) -> bool:
    """Tells whether all that counts at a look, in epoch seconds, could be seen before it was asked.

    That is history, and what was registered after the last outcome that counts had closed.
    """
    seen_before = as_of is not None and as_of <= reading.registered_at.timestamp()
    return reading.policy.retrospective or seen_before


def dollars_of(policy: Policy, per_day: float | None) -> float | None:
    """Returns the dollars a day that a further conversion of each unit is worth."""
    if policy.value_per_conversion is None or per_day is None:
        return None
    return policy.value_per_conversion * (per_day / policy.sample_rate)


def effect_at_look(
    evidence: Evidence, reading: ExperimentReading, dollars: float | None, *, fair: bool
) -> served.Effect | None:
    """Returns the effect at the look (docs/api.md, 'The effect'); None before the first.

    Its numbers are None where nothing was compared, and where what differs between the arms is not
    the change alone.
    """
    if evidence.as_of is None:
        return None
    due = reading.policy.reward_at(reading.starts_at)
    at, decision = moment(evidence.as_of), evidence.decision
    effect = evidence.effect if fair else None
    answered = decision.decided and decision.verdict is not Verdict.ABSTAIN
    # After an answer units count on, as long as both arms are served.
    horizon = reading.starts_at + timedelta(seconds=reading.policy.horizon_seconds)
    final = decision.decided and not (answered and at < min(due, horizon))
    return _document(
        effect,
        reading,
        dollars,
        basis="at_decision" if decision.decided else "open",
        final=final,
        stopped=_stopped(evidence),
        due=max(due, at) if decision.decided else due,
        at=at,
        units=evidence.units_in_cells,
    )


def _stopped(evidence: Evidence) -> Stopped | None:
    """Returns the event that took the comparison away before the effect was due, if any did."""
    ended = evidence.decision.ended_because
    if ended in CHOSEN_ENDS and evidence.effect is not None and evidence.effect.moved:
        return None
    return _ENDS.get(ended)


def effect_after(
    follow_up: FollowUp, reading: ExperimentReading, *, plan: PlannedFollowUp, state: FollowUpState
) -> served.Effect:
    """Returns the effect of a decided experiment by all its units, those after it included."""
    dollars = dollars_of(reading.policy, follow_up.per_day)
    due = reading.policy.reward_at(reading.starts_at)
    effect = _document(
        follow_up.effect,
        reading,
        dollars,
        basis="at_reward" if follow_up.final else "open",
        final=follow_up.final,
        due=max(due, plan.begins_at),
        at=None,
        units=0,
    )
    after = _after_decision(follow_up, dollars, plan=plan, state=state)
    return structs.replace(effect, after_decision=after)


def _after_decision(
    follow_up: FollowUp, dollars: float | None, *, plan: PlannedFollowUp, state: FollowUpState
) -> AfterDecision:
    """Returns the units after the decision alone.

    Of a follow-up that was stopped before its planned end the interval alone holds: an estimate
    that is ended on good news would show a lucky lift.
    """
    estimate = None if state == "stopped" else follow_up.lift
    return AfterDecision(
        state=state,
        begins_at=plan.begins_at,
        ends_at=plan.ends_at,
        estimate=estimate,
        standard_error=None if estimate is None else follow_up.standard_error,
        interval=follow_up.interval,
        relative=None if estimate is None else follow_up.relative,
        value_per_day=None if estimate is None or dollars is None else estimate * dollars,
        value_interval=value_between(follow_up.interval, dollars),
        units=follow_up.units,
        as_of=None if follow_up.as_of is None else moment(follow_up.as_of),
    )


def _document(
    effect: Effect | None,
    reading: ExperimentReading,
    dollars: float | None,
    *,
    basis: Basis,
    final: bool,
    due: datetime,
    at: datetime | None,
    units: int,
    stopped: Stopped | None = None,
) -> served.Effect:
    """Returns the effect as it is served; `at` and `units` are those of a look without it."""
    posterior = None if effect is None else effect.posterior
    interval = None if effect is None else effect.interval
    estimate = None if posterior is None else posterior.estimate
    relative = None if posterior is None else posterior.relative
    likelihood, learned, credible, policy = None, None, None, reading.policy
    harm, no_effect = None, None
    if posterior is not None and not is_retrospective(reading, effect and effect.as_of):
        observed, error = posterior.observed, posterior.observed_error
        likelihood = Likelihood(estimate=observed, standard_error=error, trainable=final)
        below, no_effect = posterior.chances
        if relative is not None and policy.learned_prior:
            learned, credible = learned_effect(observed, error, policy.learned_prior)
            below, no_effect = chances(observed, error, policy.learned_prior)
        harm = below if policy.better == "higher" else max(0.0, 1 - below - no_effect)
    is_precise = likelihood is not None and likelihood.standard_error <= PRECISE
    return served.Effect(
        estimate=estimate,
        standard_error=None if posterior is None else posterior.standard_deviation,
        interval=interval,
        relative=relative,
        likelihood=likelihood,
        value_per_day=None if estimate is None or dollars is None else estimate * dollars,
        value_interval=value_between(interval, dollars),
        basis=basis,
        units=units if effect is None else effect.units,
        final=final,
        trainable=final and is_precise and relative is not None,
        stopped=stopped,
        reward_at=due,
        as_of=at if effect is None else moment(effect.as_of),
        harm=harm,
        no_effect=no_effect,
        learned=learned,
        credible=credible,
        prior_of=None if learned is None else policy.learned_on,
    )


def value_between(interval: Interval | None, dollars: float | None) -> Interval | None:
    """Returns the ends of a lift in dollars a day, the lower first; None if unknown."""
    if interval is None or dollars is None:
        return None
    low, high = sorted(end * dollars for end in interval)
    return low, high
