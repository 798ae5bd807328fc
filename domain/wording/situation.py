"""The situation of an experiment: its state, and the next steps, the same in every face."""

import math
from collections.abc import Sequence
from datetime import UTC, timedelta

from msgspec import structs

from domain.cause import GateCheck
from domain.comparison import is_fair
from domain.contract import Contract
from domain.evidence.arrival import is_steady_shortfall
from domain.evidence.document import AnyEvidence, Evidence
from domain.figures import counted, listed
from domain.lineage.control_state import ControlState
from domain.lineage.serving import ReleaseStep
from domain.measure import too_small
from domain.registration import PRODUCTION, Arrivals, MissingDeploy, Situation
from domain.wording.base_move import base_move_advice, base_move_sentence
from domain.wording.count_twin import awaited_count, router_sentence
from domain.wording.metrics import metric_rows, never_received
from domain.wording.registration import (
    awaited_sentence,
    nothing_to_compare_advice,
    nothing_to_compare_sentence,
)
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
    EndedBecause.PLACE_ENDED: "Its place ended: the loss that it was to exclude is excluded, or its"
    " time was over. The place says which, and whether to promote the change.",
}
_AGAIN = {
    State.WITHDRAWN: "To go on measuring it, deploy it as a canary again.",
    State.PROMOTED: "To measure the next change, keep a share of units on the old build until its"
    " verdict.",
}
_DEPLOY = (
    "Deploy the change as a canary: give it a share of traffic, and post the deploy to /v1/deploys."
)
_HOLD = "{} got worse: raise the share no further, or roll back if you need no further answer."
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
    awaited: MissingDeploy | None = None,
    environment: str = PRODUCTION,
    contrast_seconds: int | None = None,
    arrivals: Arrivals | None = None,
    acted: ReleaseStep | None = None,
) -> Situation:
    """Returns the situation of an experiment.

    Args:
        contract: The verdict contract.
        evidence: The evidence document; None before the first look.
        builds: The builds beside its treatment; of a decided experiment without a meaning.
        awaited: The deploy that it waits for; None once that has come.
        environment: Where it measures.
        contrast_seconds: After so long without a comparison it ends; None where that is unknown.
        arrivals: The traffic so far; None once a unit is complete.
        acted: The step that was taken since its decision; None where none was.
    """
    known = evidence if isinstance(evidence, Evidence) else None
    if contract.verdict is not Verdict.ABSTAIN:
        return _answered(contract, known) if acted is None else _acted_on(contract, known, acted)
    if contract.decided:
        ended = None if evidence is None else evidence.ended_because
        steps = tuple(_when_ended(contract, known, ended))
        return Situation(state=State.ENDED, action=Action.NONE, advice=steps)
    if awaited is not None:
        sentence = awaited_sentence(awaited, environment)
        state = State.WAITS_FOR_DEPLOY
        return Situation(state=state, action=Action.WAIT, advice=(_DEPLOY,), sentence=sentence)
    if builds.missing is None and builds.ending is not None:
        return _over(builds.ending, contrast_seconds)
    return _open(contract, known, builds, arrivals)


def with_situation(said: str | None, situation: str | None) -> str:
    """Returns the evidence's sentence and the situation's, which the evidence may end with."""
    if said is not None and situation is not None and said.lower().endswith(situation.lower()):
        situation = None
    return " ".join(filter(None, [said, situation])) or "No look yet: nothing was measured."


def _open(
    contract: Contract,
    evidence: Evidence | None,
    builds: ControlState,
    arrivals: Arrivals | None,
) -> Situation:
    """Returns the situation of an open experiment whose canary is served."""
    hold = _holds(contract, evidence)
    state, action, steps, sentence = State.HELD, Action.FIX, list[str](), None
    if (alone := builds.missing) is not None:
        state = State.NOTHING_TO_COMPARE
        action = Action.NONE if alone.unknown_commit is None else Action.FIX
        steps = [*hold, *nothing_to_compare_advice(alone)]
        sentence = nothing_to_compare_sentence(alone)
    elif not is_fair(contract):
        anew = [_ANEW.format(contract.experiment_id)] if lasts(evidence) else []
        steps = [*hold, *_repairs(contract, evidence), *anew]
    elif (moved := builds.moved) is not None:
        state, action = State.BASE_GONE, Action.REBASE
        steps = base_move_advice(moved.rebase_on, moved.changes, continues=moved.continues)
        sentence = base_move_sentence(moved.rebase_on)
    else:
        state, steps, sentence = _progress(evidence, arrivals)
        action, steps = Action.FIX if hold else Action.WAIT, [*hold, *steps[: 1 if hold else None]]
    return Situation(state=state, action=action, advice=tuple(steps), sentence=sentence)


def _progress(
    evidence: Evidence | None, arrivals: Arrivals | None
) -> tuple[State, Sequence[str], str | None]:
    """Returns how far a fair comparison has come that has no answer, with steps and sentence."""
    if evidence is not None and evidence.sessions.accumulated:
        return _compared(evidence)
    units = arrivals.units if arrivals else 0
    if units := units or (0 if evidence is None else evidence.counts.open):
        unit = "unit" if evidence is None else evidence.policy.unit
        has = "has" if units == 1 else "have"
        sentence = f"{counted(units, unit)} {has} come, and none is complete yet"
        if evidence is not None:
            minutes = math.ceil(evidence.policy.window_seconds / 60)
            sentence += f": each has {minutes:,} min for its outcome"
        return State.ARRIVING, _WHILE_ARRIVING, f"{sentence}."
    if arrivals is not None and arrivals.events:
        sentence = "Events are coming in. Units are counted when a block of 5 minutes has closed."
        return State.ARRIVING, _WHILE_ARRIVING, sentence
    send = "Send traffic to both builds, and events that name the commit that served them."
    return State.ARRIVING, [send, _FIRST_LOOK], "Nothing was measured yet."


def _compared(evidence: Evidence) -> tuple[State, Sequence[str], None]:
    """Returns the state and the steps once units were compared."""
    candidate = evidence.candidate
    if candidate is None:
        return State.COMPARING, _WHILE_COMPARING, None
    shown = [f"it is sure that {name} did not get worse" for name in candidate.waits_for]
    again = [] if candidate.holds else ["the difference is beyond chance again"]
    count, router = awaited_count(evidence.count_twin), router_sentence(evidence.count_twin)
    until = listed([*shown, *again, *filter(None, [count])])
    until = until or "it is sure that its guardrails did not get worse"
    silent = never_received(evidence.never_received, candidate)
    probe = [f"{silent} {_PROBE}"] if silent else []
    steps = [f"Leave the canary running until {until}.", *filter(None, [router]), *probe]
    return State.ALMOST, steps, None


def _answered(contract: Contract, evidence: Evidence | None) -> Situation:
    harmed = listed(_harms(contract, evidence)) or "a guardrail"
    helped = "" if evidence is None else f" {evidence.policy.target.name}"
    action, *steps = {
        Verdict.KEEP: (
            Action.SHIP,
            "Ship it: send all traffic to this commit, and post the deploy with allocation 1.",
            _HOLD_BACK,
        ),
        Verdict.ROLLBACK: (
            Action.ROLL_BACK,
            "Roll it back: send no more traffic to this commit, and post allocation 0.",
        ),
        Verdict.ITERATE: (
            Action.REVISE,
            f"Don't ship it as it is: it helps{helped}, but harms {harmed}.",
            "Fix that, deploy the fix as a canary, and register it as a new experiment.",
        ),
    }[contract.verdict]
    return Situation(state=State.DECIDED, action=Action(action), advice=tuple(steps))


def is_followed(verdict: Verdict, acted: ReleaseStep) -> bool:
    """Whether a step did as the verdict advised."""
    return (verdict, acted.word) in _FOLLOWED


def _acted_on(contract: Contract, evidence: Evidence | None, acted: ReleaseStep) -> Situation:
    """Returns the situation of a decision once something was done about it."""
    done = f"{acted.word} at {acted.deployed_at.astimezone(UTC):%d %b %H:%M} UTC."
    if is_followed(contract.verdict, acted):
        return Situation(state=State.DECIDED, action=Action.NONE, advice=(f"Done: {done}",))
    answered, sentence = _answered(contract, evidence), f"Since then: {done}"
    if contract.verdict is Verdict.KEEP:
        steps = ("To ship it after all, deploy it again, to everybody.",)
        return structs.replace(answered, action=Action.NONE, advice=steps, sentence=sentence)
    return structs.replace(answered, sentence=sentence)


def _over(ending: ReleaseStep, contrast_seconds: int | None) -> Situation:
    """Returns the situation of a canary that was withdrawn, or given to everybody."""
    until = contrast_seconds and ending.deployed_at + timedelta(seconds=contrast_seconds)
    state = State.WITHDRAWN if ending.allocation == 0 else State.PROMOTED
    at = f"{ending.deployed_at.astimezone(UTC):%d %b %H:%M} UTC"
    done = (
        f"The canary was withdrawn at {at}"
        if state is State.WITHDRAWN
        else f"Everybody has had the change since {at}"
    )
    end = f"; it ends at {until.astimezone(UTC):%d %b %H:%M} UTC at the earliest" if until else ""
    sentence = f"{done}, so what comes now is not compared{end}."
    steps = ("Nothing to do: what was measured before may still give an answer.", _AGAIN[state])
    return Situation(
        state=state, action=Action.NONE, advice=steps, sentence=sentence, until=until or None
    )


def _harms(contract: Contract, evidence: Evidence | None) -> list[str]:
    """Returns the breached guardrails, each with how far it went where that is known."""
    rows = {} if evidence is None else {row.metric: row for row in metric_rows(evidence)}
    return [
        f"{name} ({rows[name].change}, true difference {rows[name].interval})"
        if name in rows and rows[name].change and rows[name].interval
        else name
        for name in contract.guardrail_breaches
    ]


def _holds(contract: Contract, evidence: Evidence | None) -> Sequence[str]:
    """Returns the step that a breach asks for; none where nothing is breached."""
    if is_steady_shortfall(contract, evidence):
        return [_SHORTFALL]
    breaches = contract.guardrail_breaches
    return [_HOLD.format(listed(breaches))] if breaches else []


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
