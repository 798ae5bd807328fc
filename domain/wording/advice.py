"""The advice of a verdict: the next steps for its reader, the same in every face."""

from collections.abc import Mapping, Sequence
from typing import Any

from domain.arrival import is_steady_shortfall
from domain.cause import PERMANENT, Cause
from domain.comparison import is_fair
from domain.measure import too_small
from domain.wording.base_move import base_move_advice
from domain.wording.left_out import CURES
from domain.wording.metrics import metric_rows
from domain.wording.registration import nothing_to_compare_advice

Contract = Mapping[str, Any]
Document = Mapping[str, Any]

_ENDED = {
    "horizon": "The time for this experiment is over. Decide on other grounds: what the interval"
    " excludes still holds. To ask again with more traffic, register the change anew.",
    "promoted": "Everybody has the change, so nothing is left to compare it with. To measure the"
    " next one, keep a share of units on the old build until the verdict.",
    "withdrawn": "The change was withdrawn, so nothing is left to compare. Deploy it again as a"
    " canary to get an answer.",
    "superseded": "A later deploy replaced this change. Look at that deploy's experiment.",
    "nothing_to_compare": "To measure the next change, give it a share of units beside the build"
    " that users have.",
    "futility": "The difference, if there is one, is {}. Whether to ship it is for the code to"
    " say, not for the metric.",
    "closed": "It was closed by hand. Register the change again to go on measuring.",
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
_CAUSES = {
    Cause.SAMPLE_RATIO: "The arms do not get the shares that you declared: check the router's"
    " weights and the allocation in your deploys.",
    Cause.CROSSOVER: "Units move between the arms: make the router sticky, so that a session stays"
    " with the build that it first saw.",
    Cause.LATENESS: "Outcomes come late more often in one arm: check how each build sends its"
    " events.",
    Cause.AFTER_WINDOW: "The arm with the lower rate converts later, after the window: give the"
    " metric a longer one.",
    **CURES,
    Cause.INTERACTION: "The effect differs with what else a build carries: wait until the other"
    " change is decided.",
}
# An analysis block, and then the window of its outcomes.
_FIRST_LOOK = (
    "The first look comes once 50 units, or the units of a day, have had the metric's window for"
    " their outcomes (20 units or six hours where the share is not declared)."
)


def advice(contract: Contract, document: Document | None, *, bound: bool = True) -> list[str]:
    """Returns the next steps, the most important first.

    Args:
        document: The evidence document; None before the first look.
        bound: Whether the deploy that it tests has come.
    """
    if not bound and not contract["power_state"]["decided"]:
        return [_DEPLOY]
    verdict = contract["verdict"]
    if verdict == "keep":
        return [
            "Ship it: send all traffic to this commit, and post the deploy with allocation 1.",
            _HOLD_BACK,
        ]
    if verdict == "rollback":
        return ["Roll it back: send no more traffic to this commit, and post allocation 0."]
    if verdict == "iterate":
        harmed = _listed(_harms(contract, document)) or "a guardrail"
        helped = "" if document is None else f" {document['policy']['target']['name']}"
        return [
            f"Don't ship it as it is: it helps{helped}, but harms {harmed}.",
            "Fix that, deploy the fix as a canary, and register it as a new experiment.",
        ]
    return list(_while_abstaining(contract, document))


def _harms(contract: Contract, document: Document | None) -> list[str]:
    """Returns the breached guardrails, each with how far it went where that is known."""
    rows = {} if document is None else {row.metric: row for row in metric_rows(document)}
    return [
        f"{name} ({rows[name].change}, true difference {rows[name].interval})"
        if name in rows and rows[name].change and rows[name].interval
        else name
        for name in contract["guardrail_breaches"]
    ]


def _while_abstaining(contract: Contract, document: Document | None) -> Sequence[str]:
    if contract["power_state"]["decided"]:
        return _when_ended(contract, document)
    breaches = contract["guardrail_breaches"]
    hold = [_HOLD.format(_listed(breaches))] if breaches else []
    if is_steady_shortfall(contract, document or {}):
        hold = [_SHORTFALL]
    if document is not None and document.get("nothing_to_compare") is not None:
        return [*hold, *nothing_to_compare_advice(document["nothing_to_compare"])]
    if not is_fair(contract, document):
        anew = [_ANEW.format(contract["experiment_id"])] if lasts(document) else []
        return [*hold, *_repairs(contract, document), *anew]
    moved = None if document is None else document.get("base_moved")
    if moved is not None:
        return base_move_advice(moved["rebase_on"], moved["changes"], continues=moved["continues"])
    return [*hold, *_while_open(document)[: 1 if hold else None]]


def _when_ended(contract: Contract, document: Document | None) -> Sequence[str]:
    ended = None if document is None else document.get("ended_because")
    if ended == "horizon" and not is_fair(contract, document):
        return [*_repairs(contract, document), "Then register the change again."]
    moved = None if document is None else document.get("base_moved")
    if moved is not None and ended == "superseded":
        # The experiment is over: what goes on is the change, in a new one.
        return base_move_advice(moved["rebase_on"], moved["changes"], continues=False)
    if document is not None and ended == "futility":
        return [_ENDED[ended].format(too_small(document["policy"]["futility_margin"]))]
    again = "To measure the change after all, post its deploy and register it again."
    return [_ENDED.get(ended or "", again)]


def _repairs(contract: Contract, document: Document | None) -> Sequence[str]:
    """Returns the steps that make an unfair comparison fair."""
    if contract["abstain_reason"] == "non_identifiable":
        return [_contrast(document)]
    causes = [] if document is None else document["gates"]["interacting_because"]
    return [_CAUSES[cause] for cause in causes if cause in _CAUSES]


def lasts(document: Document | None) -> bool:
    """Tells whether the cause of an unfair comparison is permanent."""
    return document is not None and any(
        cause in PERMANENT for cause in document["gates"]["interacting_because"]
    )


def units_arriving(document: Document) -> int:
    """Returns how many units have come while none of them is complete yet; 0 afterwards."""
    if document["sessions"]["accumulated"]:
        return 0
    return document.get("counts", {}).get("open", 0)


def _contrast(document: Document | None) -> str:
    others = [] if document is None else document["gates"]["aliased_with"]
    named = _listed([other[:10] for other in others if other != "time"])
    if named:
        return f"Separate this change from {named}: give each a share of traffic of its own."
    return "Serve both builds at the same time, so that there is something to compare."


def while_arriving() -> Sequence[str]:
    """Returns the next steps while units come, and none of them is complete yet."""
    return ["Leave the canary running.", _FIRST_LOOK]


def _while_open(document: Document | None) -> Sequence[str]:
    if document is not None and units_arriving(document):
        return while_arriving()
    if document is None or not document["sessions"]["accumulated"]:
        return [
            "Send traffic to both builds, and events that name the commit that served them.",
            _FIRST_LOOK,
        ]
    candidate = document.get("candidate")
    if candidate is not None:
        shown = [f"{name} is shown unharmed" for name in candidate["waits_for"]]
        again = [] if candidate["holds"] else ["the difference is beyond chance again"]
        until = _listed([*shown, *again]) or "its guardrails are shown unharmed"
        return [f"Leave the canary running until {until}."]
    return [
        "Leave the canary running; looking often does no harm.",
        "A larger share of traffic decides sooner.",
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else ""
