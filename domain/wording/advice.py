"""The advice of a verdict: the next steps for its reader, the same in every face."""

from collections.abc import Sequence

from domain.arrival import is_steady_shortfall
from domain.cause import GateCheck
from domain.comparison import is_fair
from domain.contract import Contract
from domain.evidence.document import AnyEvidence, Evidence
from domain.measure import too_small
from domain.wording.base_move import base_move_advice
from domain.wording.metrics import metric_rows
from domain.wording.registration import nothing_to_compare_advice
from domain.words import AbstainReason, EndedBecause, Verdict

_ENDED = {
    EndedBecause.HORIZON: "The time for this experiment is over. Decide on other grounds: what the"
    " interval excludes still holds. To ask again with more traffic, register the change anew.",
    EndedBecause.PROMOTED: "Everybody has the change, so nothing is left to compare it with. To"
    " measure the next one, keep a share of units on the old build until the verdict.",
    EndedBecause.WITHDRAWN: "The change was withdrawn, so nothing is left to compare. Deploy it"
    " again as a canary to get an answer.",
    EndedBecause.SUPERSEDED: "A later deploy replaced this change. Look at that deploy's"
    " experiment.",
    EndedBecause.NOTHING_TO_COMPARE: "To measure the next change, give it a share of units beside"
    " the build that users have.",
    EndedBecause.FUTILITY: "The difference, if there is one, is {}. Whether to ship it is for the"
    " code to say, not for the metric.",
    EndedBecause.CLOSED: "It was closed by hand. Register the change again to go on measuring.",
}
_DEPLOY = (
    "Deploy the change as a canary: give it a share of traffic, and post the deploy to /v1/deploys."
)
_HOLD = "{} got worse: hold the ramp where it is, or roll back if you need not know the rest."
_HOLD_BACK = (
    "Where you want to know how much it brings: leave 10 % of units on the old build for 7 days"
    " first. Their effect is measured afresh, beside the verdict."
)
_SHORTFALL = (
    "Hold the ramp where it is: compare the router's weight with the declared share, and look for"
    " sessions in which the build dies before it reports."
)
_ANEW = (
    "Then close this experiment (POST /v1/reward/{}/close) and register the change again: what was"
    " counted so far stays in this one."
)
# An analysis block, and then the window of its outcomes.
_FIRST_LOOK = (
    "The first look comes once 50 units, or the units of a day, have had the metric's window for"
    " their outcomes (20 units or six hours where the share is not declared)."
)


def advice(
    contract: Contract, evidence: AnyEvidence | None, *, bound: bool = True
) -> tuple[str, ...]:
    """Returns the next steps, the most important first.

    Args:
        evidence: The evidence document; None before the first look.
        bound: Whether the deploy that it tests has come.
    """
    if not bound and not contract.decided:
        return (_DEPLOY,)
    known = evidence if isinstance(evidence, Evidence) else None
    match contract.verdict:
        case Verdict.KEEP:
            return (
                "Ship it: send all traffic to this commit, and post the deploy with allocation 1.",
                _HOLD_BACK,
            )
        case Verdict.ROLLBACK:
            return ("Roll it back: send no more traffic to this commit, and post allocation 0.",)
        case Verdict.ITERATE:
            harmed = _listed(_harms(contract, known)) or "a guardrail"
            helped = "" if known is None else f" {known.policy.target.name}"
            return (
                f"Don't ship it as it is: it helps{helped}, but harms {harmed}.",
                "Fix that, deploy the fix as a canary, and register it as a new experiment.",
            )
        case Verdict.ABSTAIN:
            ended = None if evidence is None else evidence.ended_because
            steps = _when_ended(contract, known, ended) if contract.decided else None
            return tuple(_while_abstaining(contract, known) if steps is None else steps)


def _harms(contract: Contract, evidence: Evidence | None) -> list[str]:
    """Returns the breached guardrails, each with how far it went where that is known."""
    rows = {} if evidence is None else {row.metric: row for row in metric_rows(evidence)}
    return [
        f"{name} ({rows[name].change}, true difference {rows[name].interval})"
        if name in rows and rows[name].change and rows[name].interval
        else name
        for name in contract.guardrail_breaches
    ]


def _while_abstaining(contract: Contract, evidence: Evidence | None) -> Sequence[str]:
    breaches = contract.guardrail_breaches
    hold = [_HOLD.format(_listed(breaches))] if breaches else []
    if is_steady_shortfall(contract, evidence):
        hold = [_SHORTFALL]
    alone = None if evidence is None else evidence.nothing_to_compare
    if alone is not None:
        return [*hold, *nothing_to_compare_advice(alone)]
    if not is_fair(contract, evidence):
        anew = [_ANEW.format(contract.experiment_id)] if lasts(evidence) else []
        return [*hold, *_repairs(contract, evidence), *anew]
    moved = None if evidence is None else evidence.base_moved
    if moved is not None:
        return base_move_advice(moved.rebase_on, moved.changes, continues=moved.continues)
    return [*hold, *_while_open(evidence)[: 1 if hold else None]]


def _when_ended(
    contract: Contract, evidence: Evidence | None, ended: EndedBecause | None
) -> Sequence[str]:
    if ended is EndedBecause.HORIZON and not is_fair(contract, evidence):
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


def units_arriving(evidence: Evidence) -> int:
    """Returns how many units have come while none of them is complete yet; 0 afterwards."""
    return 0 if evidence.sessions.accumulated else evidence.counts.open


def _contrast(evidence: Evidence | None) -> str:
    others = () if evidence is None else evidence.gates.aliased_with
    named = _listed([other[:10] for other in others if other != "time"])
    if named:
        return f"Separate this change from {named}: give each a share of traffic of its own."
    return "Serve both builds at the same time, so that there is something to compare."


def while_arriving() -> Sequence[str]:
    """Returns the next steps while units come, and none of them is complete yet."""
    return ["Leave the canary running.", _FIRST_LOOK]


def _while_open(evidence: Evidence | None) -> Sequence[str]:
    if evidence is not None and units_arriving(evidence):
        return while_arriving()
    if evidence is None or not evidence.sessions.accumulated:
        return [
            "Send traffic to both builds, and events that name the commit that served them.",
            _FIRST_LOOK,
        ]
    candidate = evidence.candidate
    if candidate is not None:
        shown = [f"{name} is shown unharmed" for name in candidate.waits_for]
        again = [] if candidate.holds else ["the difference is beyond chance again"]
        until = _listed([*shown, *again]) or "its guardrails are shown unharmed"
        return [f"Leave the canary running until {until}."]
    return [
        "Leave the canary running; looking often does no harm.",
        "A larger share of traffic decides sooner.",
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else ""
