"""The situation of an experiment: its state, and the next steps, the same in every face."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import structs

from domain.cause import GateCheck
from domain.contract import Contract, is_fair
from domain.evidence.breach import breach_action, is_steady_shortfall, suspicion
from domain.evidence.document import AnyEvidence, Evidence
from domain.evidence.results import Candidate
from domain.figures import counted, listed
from domain.lineage.control_state import ControlState
from domain.lineage.serving import ReleaseStep
from domain.lineage.takeover import Takeover
from domain.measure import too_small, typical_lift
from domain.registration import PRODUCTION, Arrivals, MissingDeploy, Situation
from domain.wording.base_move import base_move_advice, base_move_sentence, promotion_clause
from domain.wording.headline import headline_of
from domain.wording.left_out import CURES, UNIT_OF_SESSIONS, UNKNOWN_USER
from domain.wording.metrics import metric_rows, never_received
from domain.wording.registration import (
    awaited_sentence,
    nothing_to_compare_advice,
    nothing_to_compare_sentence,
)
from domain.wording.surplus import PAUSED, SUSPICION, awaited_line, awaited_stand, router_sentence
from domain.words import AbstainReason, Action, EndedBecause, State, Verdict

_ENDED = {
    EndedBecause.HORIZON: "The time for this experiment is over. Decide by other means: what the"
    " interval rules out stays ruled out. To ask again with more traffic, register it anew.",
    EndedBecause.PROMOTED: "Everybody has the change, so nothing is left to compare it with. To"
    " measure the next change, keep a share of units on the old build until the verdict.",
    EndedBecause.WITHDRAWN: "The change was withdrawn, so nothing is left to compare. Deploy it"
    " again as a canary to get an answer.",
    EndedBecause.SUPERSEDED: "A later deploy replaced this change. Look at that deploy's"
    " experiment.",
    EndedBecause.NOTHING_TO_COMPARE: "To measure the next change, give it a share of units beside"
    " the build that users have.",
    EndedBecause.FUTILITY: "The difference, if any, is {}. The metric cannot say whether"
    " to ship it: decide on the code.",
    EndedBecause.CLOSED: "It was closed by hand. Register the change again to go on measuring.",
    EndedBecause.CANNOT_START: "Its target has too short a history for its threshold. Name another"
    " metric or a number in `over`, or register again once the history is there.",
    EndedBecause.DOES_NOT_STAND: "It was better, but not beyond what chance makes of so many"
    " changes. Decide on the code, or register it again with more traffic.",
    EndedBecause.PLACE_ENDED: "Its place ended: the loss that it was to exclude is excluded, or its"
    " time was over. The place says which, and whether to promote the change.",
}
_AGAIN = {
    State.WITHDRAWN: "To go on measuring it, deploy it as a canary again.",
    State.PROMOTED: "To measure the next change, keep a share of units on the old build until its"
    " verdict.",
}
_PAST = "Nothing to do: all its units are history. To act on the change, measure it live."
_DEPLOY = (
    "Deploy the change as a canary: give it a share of traffic, and post the deploy to /v1/deploys."
)
_TAKE_BACK = "Take it back: send no more traffic to this commit, and post allocation 0."
_TURN_OFF = "Turn it off: give everybody the control's value of the flag."
_REVISE = "Fix that, deploy the fix as a canary, and register it as a new experiment."
_UNVOUCHED = "Anybody can send such events with the public key: see whether they are real."
_SILENT = (
    "See that traffic still reaches both builds, that their events come in, and that the pipeline"
    " runs: deploy-reward doctor."
)
_HOLD_BACK = (
    "Where you want to know how much it brings: leave 10 % of units on the old build for 7 days"
    " first. Their effect is measured afresh, beside the verdict."
)
_SHORTFALL = (
    "Raise the share no further: compare the router's weight with the declared share, and look for"
    " sessions in which the build crashes before it reports."
)
_ANEW = (
    "Then close this experiment (POST /v1/reward/{}/close) and register the change again: what was"
    " counted so far stays in this experiment."
)
_PROBE = (
    "Send it once to see that it is counted, or take the guardrail out of the project's settings."
)
# Nothing was counted for so long: no night of a shop.
_LONG = timedelta(hours=12)
# The pipeline runs, or finds nothing to do, each minute.
_RARELY = timedelta(minutes=10)
_STARTS = "It starts with the next run of the pipeline."
_RUN = "See that the pipeline runs: deploy-reward doctor."
# So many breached guardrails are named with their numbers.
_NAMED = 3
# A step that ended the comparison comes before the numbers until then.
_GONE = (*(State.WITHDRAWN, State.PROMOTED, State.BASE_GONE, State.NOTHING_TO_COMPARE), State.ENDED)
_COMPARED = (State.COMPARING, State.ALMOST, State.SUSPECTED)
_BEFORE_ANY_LOOK = (State.WAITS_FOR_DEPLOY, State.STARTING, State.ARRIVING)
_BREACHED = (Action.ROLL_BACK, Action.REVISE)
# Steps that change what users are served.
_ON_CANARY = (*_BREACHED, Action.SHIP, Action.PAUSE)
# Endings after which no canary is left to take back.
_CANARY_GONE = (EndedBecause.WITHDRAWN, EndedBecause.PROMOTED, EndedBecause.SUPERSEDED)
_FOLLOWED = {(Verdict.KEEP, "promoted"), (Verdict.ROLLBACK, "withdrawn")}
# An analysis block, and then the window of its outcomes.
_FIRST_LOOK = (
    "The first look comes once 50 units, or the units of a day, have had the metric's window for"
    " their outcomes (20 units or six hours where the share is not declared)."
)
_WHILE_ARRIVING = ("Leave the canary running.", _FIRST_LOOK)
_WHILE_COMPARING = (
    "Leave the canary running; looking often does no harm.",
    "A larger share of traffic decides sooner.",
)


def situation(
    contract: Contract,
    evidence: AnyEvidence | None,
    builds: ControlState,
    *,
    now: datetime,
    awaited: MissingDeploy | None = None,
    is_starting: bool = False,
    ran_at: datetime | None = None,
    environment: str = PRODUCTION,
    contrast_seconds: int | None = None,
    arrivals: Arrivals | None = None,
    last_unit_at: datetime | None = None,
    acted: ReleaseStep | None = None,
    closed_at: datetime | None = None,
    is_flag: bool = False,
    is_past: bool = False,
    trusted: bool = True,
) -> Situation:
    """Returns the situation of an experiment.

    Args:
        evidence: The evidence document; None before the first look.
        awaited: The deploy that it waits for; None once that has come.
        is_starting: Whether it waits for a run of the pipeline, which freezes its policy.
        ran_at: When the pipeline ran last; None where it never did.
        contrast_seconds: After so long without a comparison it ends; None where that is unknown.
        arrivals: The traffic so far; None once a unit is complete.
        last_unit_at: When the last block with a unit ended; None where none has.
        acted: The step that was taken since its decision; None where none was.
        closed_at: When it was closed by hand; None where it was not.
        is_past: Whether treatment has no live unit: nobody can act on history.
        trusted: Whether a workflow may act on its breach, whoever may have sent the events.
    """
    known = evidence if isinstance(evidence, Evidence) else None
    back = _TURN_OFF if is_flag else _TAKE_BACK
    if contract.verdict is not Verdict.ABSTAIN:
        answered = _answered(contract, known, back)
        current = answered if acted is None else _acted_on(contract, answered, acted)
    elif contract.decided:
        ended = None if evidence is None else evidence.ended_because
        steps = tuple(_when_ended(contract, known, ended))
        current = Situation(state=State.ENDED, action=Action.NONE, advice=steps)
        if ended not in _CANARY_GONE and acted is None:
            current = _breached(current, contract, known, back, trusted=trusted)
    elif closed_at is not None:
        current = _breached(_closed(closed_at, ran_at, now), contract, known, back, trusted=trusted)
    elif awaited is not None:
        sentence = awaited_sentence(awaited, environment)
        state = State.WAITS_FOR_DEPLOY
        current = Situation(state=state, action=Action.WAIT, advice=(_DEPLOY,), sentence=sentence)
    elif builds.missing is None and builds.ending is not None:
        current = _over(builds.ending, contrast_seconds, now)
        current = _breached(current, contract, known, back, trusted=trusted)
    else:
        progress = _starting(ran_at, now) if is_starting else _progress(known, arrivals, now)
        silence = _silence(known, last_unit_at, ran_at, now)
        current = _open(contract, known, builds, progress, silence)
        current = _breached(current, contract, known, back, trusted=trusted)
    current = structs.replace(current, headline=headline_of(contract, current).text)
    return _without_step(current, contract, known) if is_past else current


def _without_step(current: Situation, contract: Contract, evidence: Evidence | None) -> Situation:
    """Returns the situation of a history, which asks for no step that changes what users have."""
    if current.action not in _ON_CANARY:
        goes_on = current.state in _COMPARED and current.action is Action.WAIT
        return structs.replace(current, advice=(_PAST,)) if goes_on else current
    said = None if current.state in {*_COMPARED, *_GONE} else current.sentence
    if breach_action(contract, evidence) is not None:
        said = f"{_worse(contract, evidence)}."
    return structs.replace(current, action=Action.NONE, advice=(_PAST,), sentence=said)


def as_of_now(
    evidence: AnyEvidence, current: Situation, builds: ControlState, *, now: datetime
) -> AnyEvidence:
    """Returns evidence with the words of the present situation, and no date that it rules out.

    Deploys and time change the next step before the next look does.
    """
    sentence = reason = evidence.reason
    if current.sentence is None or reason.lower().endswith(current.sentence.lower()):
        sentence = evidence.sentence
    elif leads(current):
        sentence = reason = f"{current.sentence} {reason}".strip()
    else:
        sentence = f"{evidence.sentence} {current.sentence}".strip()
        before = "" if current.state in _BEFORE_ANY_LOOK else reason
        reason = f"{before} {current.sentence}".strip()
    words = {"sentence": sentence, "reason": reason, "headline": current.headline}
    evidence = structs.replace(evidence, **words, advice=current.advice)
    decided = current.state is State.DECIDED or evidence.ended_because is not None
    if not isinstance(evidence, Evidence) or decided:
        return evidence
    builds_now = {"base_moved": builds.moved, "nothing_to_compare": builds.missing}
    sessions, known = evidence.sessions, evidence.known
    if is_awaited(current):
        sessions = structs.replace(sessions, projected_decision_at=_due(evidence, now))
        return structs.replace(evidence, **builds_now, sessions=sessions)
    nothing = dict.fromkeys(("required", "required_fast", "projected_decision_at"))
    return structs.replace(
        evidence,
        **builds_now,
        sessions=structs.replace(sessions, **nothing),
        known=structs.replace(known, smallest_lift_by_horizon=None),
    )


def is_awaited(current: Situation) -> bool:
    """Tells whether units are compared and counted, so that more of them bring an answer."""
    asks = current.action in {*_BREACHED, Action.NONE} or current.silent_since is not None
    return current.state in _COMPARED and not asks


def leads(current: Situation) -> bool:
    """Tells whether the situation is more urgent than the numbers so far."""
    breached = current.state is not State.DECIDED and current.action in _BREACHED
    return current.state in _GONE or breached or current.silent_since is not None


def _due(evidence: Evidence, now: datetime) -> datetime | None:
    """Returns when an answer is expected; None where that is unknown, or has passed."""
    at = evidence.sessions.projected_decision_at
    return at if at is not None and at > now else None


def _open(
    contract: Contract,
    evidence: Evidence | None,
    builds: ControlState,
    progress: Situation,
    silence: tuple[datetime, str, str] | None,
) -> Situation:
    """Returns the situation of an open experiment whose canary is served."""
    hold = [_SHORTFALL] if is_steady_shortfall(contract, evidence) else []
    if (alone := builds.missing) is not None:
        return Situation(
            state=State.NOTHING_TO_COMPARE,
            action=Action.NONE if alone.unknown_commit is None else Action.FIX,
            advice=(*hold, *nothing_to_compare_advice(alone)),
            sentence=nothing_to_compare_sentence(alone),
        )
    if not is_fair(contract):
        anew = [_ANEW.format(contract.experiment_id)] if lasts(evidence) else []
        steps = (*hold, *_repairs(contract, evidence), *anew)
        return Situation(state=State.HELD, action=Action.FIX, advice=steps)
    if (moved := builds.moved) is not None:
        return Situation(
            state=State.BASE_GONE,
            action=Action.REBASE,
            advice=tuple(
                base_move_advice(moved.rebase_on, moved.changes, continues=moved.continues)
            ),
            sentence=base_move_sentence(moved.rebase_on),
        )
    current = progress
    if (again := builds.resumed_at) is not None:
        goes_on = (
            f"The canary has had its share again since {_time(again)}: this experiment goes on,"
            " with what was measured before."
        )
        said = " ".join(filter(None, [current.sentence, goes_on]))
        current = structs.replace(current, sentence=said)
    if silence is not None and current.state is not State.STARTING:
        since, silent, step = silence
        again = None if builds.resumed_at is None else current.sentence
        sentence = " ".join(filter(None, [silent, again]))
        return structs.replace(
            current, action=Action.FIX, advice=(*hold, step), sentence=sentence, silent_since=since
        )
    if hold:
        return structs.replace(current, action=Action.FIX, advice=(*hold, *current.advice[:1]))
    return current


def _breached(
    current: Situation, contract: Contract, evidence: Evidence | None, back: str, *, trusted: bool
) -> Situation:
    """Returns a situation with its most urgent fact: a breach, or a suspicion to act on."""
    action, worse = breach_action(contract, evidence), _worse(contract, evidence)
    if current.state is State.WITHDRAWN:
        if action not in _BREACHED:
            return current
        said = f"{worse}. {current.sentence}"
        return structs.replace(current, advice=(*current.advice[:1], _REVISE), sentence=said)
    doing, _, _ = back.partition(":")
    steps = [back, f"Then {_REVISE[:1].lower()}{_REVISE[1:]}"]
    if action is Action.REVISE:
        doing, steps = "Revise the change", [_revised(contract, evidence), _REVISE]
    elif action is None and evidence is not None and suspicion(evidence) is Action.ROLL_BACK:
        action, worse = Action.ROLL_BACK, SUSPICION
        steps = [back, *filter(None, [router_sentence(evidence.surplus)])]
    elif action is not Action.ROLL_BACK:
        return current
    said = [f"{worse}. {doing}."]
    if not trusted:
        said.append(_UNVOUCHED)
    done = [] if current.state in {*_COMPARED, State.ARRIVING} else current.advice
    if current.state in _GONE and current.sentence is not None:
        said.append(current.sentence)
    return structs.replace(
        current, action=action, advice=(*steps, *done), sentence=" ".join(said), silent_since=None
    )


def _worse(contract: Contract, evidence: Evidence | None) -> str:
    """Returns the breached guardrails, each from which level to which it went."""
    rows = {} if evidence is None else {row.metric: row.change for row in metric_rows(evidence)}
    names, more = contract.guardrail_breaches[:_NAMED], contract.guardrail_breaches[_NAMED:]
    named = [
        f"{name} got worse" + (f": {change}" if (change := rows.get(name)) else "")
        for name in names
    ]
    return "; ".join([*named, *([f"{len(more)} more"] if more else [])])


def _silence(
    evidence: Evidence | None, last_unit_at: datetime | None, ran_at: datetime | None, now: datetime
) -> tuple[datetime, str, str] | None:
    """Returns since when nothing was counted, in words too, and the step; None if not for long."""
    # No further event of an imported history is to come.
    if evidence is not None and evidence.retrospective:
        return None
    if ran_at is not None and (idle := _idle(ran_at, now)) is not None:
        return ran_at, idle, _RUN
    due = None if evidence is None else evidence.sessions.projected_decision_at
    missed = due is not None and last_unit_at is not None and last_unit_at < due <= now
    if last_unit_at is None or not (missed or now - last_unit_at >= _LONG):
        return None
    return last_unit_at, f"Nothing has been counted since {_time(last_unit_at)}.", _SILENT


def _time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%d %b %H:%M} UTC"


def _idle(ran_at: datetime | None, now: datetime) -> str | None:
    """Returns since when the pipeline has not run; None where it ran lately."""
    if ran_at is None:
        return "The pipeline has not run yet."
    return f"The pipeline has not run since {_time(ran_at)}." if now - ran_at >= _RARELY else None


def _closed(closed_at: datetime, ran_at: datetime | None, now: datetime) -> Situation:
    """Returns the situation of an experiment that ends with its next look."""
    sentence = f"It was closed at {_time(closed_at)}, and ends once the pipeline has read so far."
    said = " ".join(filter(None, [sentence, _idle(ran_at, now)]))
    steps = (_ENDED[EndedBecause.CLOSED],)
    return Situation(state=State.ENDED, action=Action.NONE, advice=steps, sentence=said)


def _starting(ran_at: datetime | None, now: datetime) -> Situation:
    """Returns how an experiment waits for a run, and since when none came where that is long."""
    idle = _idle(ran_at, now)
    return Situation(
        state=State.STARTING,
        action=Action.WAIT if idle is None else Action.FIX,
        advice=_WHILE_ARRIVING if idle is None else (_RUN,),
        sentence=" ".join(filter(None, [_STARTS, idle])),
        silent_since=None if idle is None else ran_at,
    )


def _progress(evidence: Evidence | None, arrivals: Arrivals | None, now: datetime) -> Situation:
    """Returns how far a fair comparison has come that has no answer."""
    if evidence is not None and evidence.sessions.accumulated:
        return _compared(evidence, now)
    units = arrivals.units if arrivals else 0
    action, steps = Action.WAIT, _WHILE_ARRIVING
    unit = "unit" if evidence is None else evidence.policy.unit
    if units := units or (0 if evidence is None else evidence.counts.open):
        has = "has" if units == 1 else "have"
        sentence = f"{counted(units, unit)} {has} come, and none is complete yet"
        if evidence is not None:
            minutes = math.ceil(evidence.policy.window_seconds / 60)
            sentence += f": each has {minutes:,} min for its outcome"
        sentence += "."
    elif arrivals is not None and arrivals.without_user:
        action, steps = Action.FIX, (CURES[UNKNOWN_USER], UNIT_OF_SESSIONS)
        sentence = f"{arrivals.without_user:,} sessions name a build but no {unit}: none counts."
    elif arrivals is not None and arrivals.events:
        sentence = "Events are coming in. Units are counted when a block of 5 minutes has closed."
    else:
        steps = ("Send traffic to both builds, and events that name the commit that served them.",)
        steps, sentence = (*steps, _FIRST_LOOK), "Nothing was measured yet."
    return Situation(state=State.ARRIVING, action=action, advice=tuple(steps), sentence=sentence)


def _compared(evidence: Evidence, now: datetime) -> Situation:
    """Returns the state and the steps once units were compared."""
    candidate, until = evidence.candidate, _due(evidence, now)
    line = awaited_line(evidence.surplus)
    router = [*filter(None, [router_sentence(evidence.surplus)])]
    if suspicion(evidence) is not None:
        return Situation(state=State.SUSPECTED, action=Action.PAUSE, advice=(PAUSED, *router))
    if candidate is None:
        return Situation(
            state=State.COMPARING,
            action=Action.WAIT,
            advice=_WHILE_COMPARING,
            sentence=_needed(evidence, until),
        )
    shown = [f"it is sure that {name} did not get worse" for name in candidate.waits_for]
    again = [] if candidate.holds else ["the difference is beyond chance again"]
    awaits = listed([*shown, *again, *filter(None, [line, awaited_stand(candidate)])])
    awaits = awaits or "it is sure that its guardrails did not get worse"
    silent = never_received(evidence.never_received, candidate)
    probe = [f"{silent} {_PROBE}"] if silent else []
    steps = [f"Leave the canary running until {awaits}.", *router, *probe]
    return Situation(
        state=State.ALMOST,
        action=Action.WAIT,
        advice=tuple(steps),
        sentence=_waiting(evidence, candidate, until, silent),
    )


def _needed(evidence: Evidence, until: datetime | None) -> str | None:
    """Returns how many units find a typical change, and when they will have come."""
    required, policy = evidence.sessions.required, evidence.policy
    # It is decided once its counts are repaired, whatever comes.
    if required is None or "day_unequal" in evidence.warnings:
        return None
    reached = "" if until is None else f", reached about {until.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    wanted = f"a {typical_lift(policy.rho.day)} change"
    return f"About {required:,.0f} {policy.unit}s are needed to find {wanted}{reached}."


def _waiting(
    evidence: Evidence, candidate: Candidate, until: datetime | None, silent: str | None
) -> str | None:
    """Returns the conditions that a keep waits for, and how long."""
    said: list[str | None] = []
    if candidate.waits_for:
        required, unit = evidence.sessions.required, evidence.policy.unit
        units = None if required is None else f"for {required:,.0f} {unit}s"
        if until is not None:
            units = f"until {_time(until)}" + (f", or {units} where that is later" if units else "")
        said.append(
            f"Waiting {f'{units}, ' if units else ''}to be sure that {listed(candidate.waits_for)}"
            " did not get worse."
        )
    if (line := awaited_line(evidence.surplus)) is not None:
        said.append(f"Waiting until {line}.")
    if candidate.stand is not None and (stands := awaited_stand(candidate)) is not None:
        now, ends = candidate.stand.e_value, _time(candidate.stand.until)
        said.append(f"Waiting, at most until {ends}, until {stands}. It is {now:,.3g} now.")
    return " ".join(filter(None, [*said, silent])) or None


def _answered(contract: Contract, evidence: Evidence | None, back: str) -> Situation:
    action, steps = {
        Verdict.KEEP: (
            Action.SHIP,
            (
                "Ship it: send all traffic to this commit, and post the deploy with allocation 1."
                if back == _TAKE_BACK
                else "Ship it: give everybody the treatment's value of the flag.",
                _HOLD_BACK,
            ),
        ),
        Verdict.ROLLBACK: (Action.ROLL_BACK, (back,)),
        Verdict.ITERATE: (Action.REVISE, (_revised(contract, evidence), _REVISE)),
    }[contract.verdict]
    return Situation(state=State.DECIDED, action=action, advice=steps)


def _revised(contract: Contract, evidence: Evidence | None) -> str:
    """Returns the metrics that a change helps and harms."""
    harmed = listed(_harms(contract, evidence)) or "a guardrail"
    helped = "" if evidence is None else f" {evidence.policy.target.name}"
    return f"Don't ship it as it is: it helps{helped}, but harms {harmed}."


def is_followed(verdict: Verdict, acted: ReleaseStep) -> bool:
    """Whether a step did as the verdict advised."""
    return (verdict, acted.word) in _FOLLOWED


def _acted_on(contract: Contract, answered: Situation, acted: ReleaseStep) -> Situation:
    """Returns the situation of a decision once something was done about it."""
    done = f"{acted.word} at {_time(acted.deployed_at)}."
    if is_followed(contract.verdict, acted):
        return structs.replace(answered, action=Action.NONE, advice=(f"Done: {done}",))
    sentence = f"Since then: {done}"
    if contract.verdict is Verdict.KEEP:
        steps = ("To ship it after all, deploy it again, to everybody.",)
        return structs.replace(answered, action=Action.NONE, advice=steps, sentence=sentence)
    return structs.replace(answered, sentence=sentence)


def _over(ending: Takeover, contrast_seconds: int | None, now: datetime) -> Situation:
    """Returns the situation of a canary that was withdrawn, or given to everybody."""
    until = contrast_seconds and ending.at + timedelta(seconds=contrast_seconds)
    until = until if until and until > now else None
    state = State.WITHDRAWN if ending.because is EndedBecause.WITHDRAWN else State.PROMOTED
    at = _time(ending.at)
    done = f"Everybody has had the change since {at}{promotion_clause(ending)}"
    if state is State.WITHDRAWN:
        done = f"The canary was withdrawn at {at}"
    end = f"; it ends at {_time(until)} at the earliest" if until else ""
    sentence = f"{done}, so what comes now is not compared{end}."
    steps = ("Nothing to do: what was measured before may still give an answer.", _AGAIN[state])
    return Situation(state=state, action=Action.NONE, advice=steps, sentence=sentence, until=until)


def _harms(contract: Contract, evidence: Evidence | None) -> list[str]:
    """Returns the breached guardrails, each with how far it went where that is known."""
    rows = {} if evidence is None else {row.metric: row for row in metric_rows(evidence)}
    return [
        f"{name} ({rows[name].change}, true difference {rows[name].interval})"
        if name in rows and rows[name].change and rows[name].interval
        else name
        for name in contract.guardrail_breaches
    ]


def _when_ended(
    contract: Contract, evidence: Evidence | None, ended: EndedBecause | None
) -> Sequence[str]:
    if ended is EndedBecause.HORIZON and not is_fair(contract):
        return [*_repairs(contract, evidence), "Then register the change again."]
    moved = None if evidence is None else evidence.base_moved
    if moved is not None and ended is EndedBecause.SUPERSEDED:
        # The experiment is over: the change goes on in a new experiment.
        return base_move_advice(moved.rebase_on, moved.changes, continues=False)
    margin = None if evidence is None else evidence.policy.futility_margin
    if margin is not None and ended is EndedBecause.FUTILITY:
        return [_ENDED[ended].format(too_small(margin))]
    if ended is EndedBecause.WITHDRAWN and breach_action(contract, evidence) in _BREACHED:
        return [_REVISE]
    again = "To measure the change after all, post its deploy and register it again."
    return [again if ended is None else _ENDED[ended]]


def _repairs(contract: Contract, evidence: Evidence | None) -> Sequence[str]:
    """Returns the steps that make an unfair comparison fair."""
    if contract.abstain_reason is AbstainReason.NON_IDENTIFIABLE:
        return [_contrast(evidence)]
    return [check.step for check in _failures(evidence) if check.cause is not None]


def lasts(evidence: Evidence | None) -> bool:
    """Tells whether the cause of an unfair comparison is permanent."""
    return any(check.stays for check in _failures(evidence))


def _failures(evidence: Evidence | None) -> Sequence[GateCheck]:
    """Returns the gates that hold the last look back."""
    checks = () if evidence is None else evidence.gates.checks
    return [check for check in checks if check.state == "fails"]


def _contrast(evidence: Evidence | None) -> str:
    others = () if evidence is None else evidence.gates.aliased_with
    named = listed([other[:10] for other in others if other != "time"])
    if named:
        return f"Separate this change from {named}: give each a share of traffic of its own."
    return "Serve both builds at the same time, so that there is something to compare."
