"""A verdict as a person reads it: a word, a sentence, and what to do now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.dashboard.page.figures import signs
from domain.arrival import is_steady_shortfall
from domain.comparison import is_fair
from domain.measure import Measure, measure_of, too_small

Contract = Mapping[str, Any]
Document = Mapping[str, Any]

_WORDS = {"keep": "Keep", "rollback": "Roll back", "iterate": "Iterate"}
_ABSTAINING = {
    "power": ("waiting", "Can’t say yet"),
    "non_identifiable": ("fault", "Can’t say: nothing to compare"),
    "interacting": ("fault", "Can’t say: the split is not fair"),
}
_ENDED = {
    "horizon": "The time for this experiment is over. Decide on other grounds: what the interval"
    " excludes still holds. To ask again with more traffic, register the change anew.",
    "promoted": "Everybody has the change, so nothing is left to compare it with. To measure the"
    " next one, keep a share of units on the old build until the verdict.",
    "withdrawn": "The change was withdrawn, so nothing is left to compare. Deploy it again as a"
    " canary to get an answer.",
    "superseded": "Another change took its place. Look at that one’s experiment.",
    "futility": "The difference, if there is one, is {}. Ship it or not, as you like the code"
    " better.",
    "closed": "It was closed by hand. Register the change again to go on measuring.",
}
_DEPLOY = (
    "Deploy the change as a canary: give it a share of traffic, and post the deploy to /v1/deploys."
)
_HOLD = "{} got worse: hold the ramp where it is, or roll back if you need not know the rest."
_SHORTFALL = (
    "Hold the ramp where it is: compare the router’s weight with the declared share, and look for"
    " sessions in which the build dies before it reports."
)
_ANEW = (
    "Then close this experiment (POST /v1/reward/{}/close) and register the change again: what was"
    " counted so far stays in this one."
)
_CAUSES = {
    "sample_ratio": "The arms do not get the shares that you declared: check the router’s weights"
    " and the allocation in your deploys.",
    "crossover": "Units move between the arms: make the router sticky, so that a session stays"
    " with the build that it first saw.",
    "lateness": "Outcomes come late more often in one arm: check how each build sends its events.",
    "interaction": "The effect differs with what else a build carries: wait until the other change"
    " is decided.",
}
# What was counted under these stays counted: the way on is a new experiment.
_LASTING = ("sample_ratio", "crossover", "lateness")
WARNINGS = {
    "base_assumed": "No base commit was posted with the deploy, so the commit that served before"
    " was taken for it. Send the diff’s base_commit to be exact.",
    "metric_never_seen": "No outcome of the target metric was counted: none came, or none within"
    " its window after a unit’s exposure. Check its name, that events of that name arrive, and its"
    " window.",
    "unknown_commit": "Some events name a commit that no deploy recorded. Post each deploy before"
    " it gets traffic.",
    "unmatched_route": "Some events name a route that is not in the static graph. Upload the graph"
    " of this version.",
    "unsigned": "Some events carry no valid signature of the router and do not count.",
    "uncapped": "A mean has no cap, since too few values came before the start to choose one: one"
    " very large value can hide a difference. Set the metric’s cap.",
    "sticky_by_user": "Users rather than sessions keep their arm. Set unit to user, so that"
    " a user’s sessions count once.",
    "guardrails_unproven": "It is kept though not every guardrail was shown unharmed in the time"
    " that there was.",
    "set_aside": "Its data cannot be computed at the moment, so what is shown is the last verdict"
    " that could be. All other experiments go on.",
    "allocation_undeclared": "The share of traffic that gets the change is not declared, so nothing"
    " can check that the split is fair. Post allocation with the deploy.",
}
# An analysis block, and then what its outcomes take.
_FIRST_LOOK = (
    "The first look comes once 50 units came, or a day is over (20 units, or six hours, where the"
    " share is not declared), and the metric’s window after that has passed."
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A word and its tone, which pages mark by colour and shape; neither tells more than the word.

    Attributes:
        tone: `keep`, `rollback`, `iterate`, `waiting`, `fault` or `none`.
        word: What a person reads first.
    """

    tone: str
    word: str


def answer_of(contract: Contract, *, candidate: bool = False) -> Answer:
    """Returns the answer of a verdict contract.

    Args:
        contract: The contract.
        candidate: Whether a `keep` waits for its guardrails.
    """
    verdict = contract["verdict"]
    if verdict in _WORDS:
        return Answer(tone=verdict, word=_WORDS[verdict])
    if contract["power_state"]["decided"]:
        return Answer(tone="none", word="No answer")
    if candidate and contract["abstain_reason"] == "power":
        return Answer(tone="waiting", word="Almost: keep")
    tone, word = _ABSTAINING[contract["abstain_reason"]]
    return Answer(tone=tone, word=word)


def sentence_of(contract: Contract, document: Document | None, *, bound: bool = True) -> str:
    """Returns what is known, in one or two sentences, to be read after the answer's word.

    Args:
        contract: The contract.
        document: The evidence document; None before the first look.
        bound: Whether the deploy that it tests has come.
    """
    if document is None or document["as_of"] is None or not document["sessions"]["accumulated"]:
        return _before_any_look(contract, bound=bound)
    metric = document["policy"]["target"]["name"]
    return after_the_word(document["sentence"], metric=metric)


def _before_any_look(contract: Contract, *, bound: bool) -> str:
    if contract["power_state"]["decided"]:
        return "It ended before anything was measured." if bound else "No deploy came for it."
    if not bound:
        return "It begins with its deploy, which has not come yet."
    return "Nothing was measured yet."


def after_the_word(sentence: str, *, metric: str) -> str:
    """Returns an evidence's sentence without the answer that it begins with."""
    for word in ("Keep", "Roll back", "Iterate", "Almost"):
        if sentence.startswith(f"{word}: "):
            return signs(f"With this change, {sentence.removeprefix(f'{word}: ')}")
    for word in ("Can't say yet", "Can't say", "No answer"):
        if sentence.startswith(f"{word} on {metric}: "):
            return signs(f"On {sentence.removeprefix(f'{word} on ')}")
    if sentence.startswith("No answer: "):
        told = sentence.removeprefix("No answer: ")
        return f"{told[:1].upper()}{told[1:]}"
    return signs(sentence)


def advice(contract: Contract, document: Document | None, *, bound: bool = True) -> list[str]:
    """Returns what to do now, the most important first.

    Args:
        contract: The contract.
        document: The evidence document; None before the first look.
        bound: Whether the deploy that it tests has come.
    """
    if not bound and not contract["power_state"]["decided"]:
        return [_DEPLOY]
    verdict = contract["verdict"]
    if verdict == "keep":
        return ["Ship it: send all traffic to this commit, and post the deploy with allocation 1."]
    if verdict == "rollback":
        return ["Roll it back: send no more traffic to this commit, and post allocation 0."]
    if verdict == "iterate":
        harmed = _listed(contract["guardrail_breaches"]) or "a guardrail"
        helped = "" if document is None else f" {document['policy']['target']['name']}"
        return [
            f"Don’t ship it as it is: it helps{helped}, but harms {harmed}.",
            "Fix that, deploy the fix as a canary, and register it as a new experiment.",
        ]
    return list(_while_abstaining(contract, document))


def _while_abstaining(contract: Contract, document: Document | None) -> Sequence[str]:
    if contract["power_state"]["decided"]:
        return _when_ended(contract, document)
    breaches = contract["guardrail_breaches"]
    hold = [_HOLD.format(_listed(breaches))] if breaches else []
    if is_steady_shortfall(contract, document or {}):
        hold = [_SHORTFALL]
    if not is_fair(contract, document):
        anew = [_ANEW.format(contract["experiment_id"])] if lasts(document) else []
        return [*hold, *_mending(contract, document), *anew]
    return [*hold, *_on_the_way(document)[: 1 if hold else None]]


def _when_ended(contract: Contract, document: Document | None) -> Sequence[str]:
    ended = None if document is None else document.get("ended_because")
    if ended == "horizon" and not is_fair(contract, document):
        return [*_mending(contract, document), "Then register the change again."]
    if document is not None and ended == "futility":
        return [_ENDED[ended].format(too_small(document["policy"]["futility_margin"]))]
    told = "To measure the change after all, post its deploy and register it again."
    return [_ENDED.get(ended or "", told)]


def _mending(contract: Contract, document: Document | None) -> Sequence[str]:
    """Returns what makes a comparison fair that is not."""
    if contract["abstain_reason"] == "non_identifiable":
        return [_contrast(document)]
    causes = [] if document is None else document["gates"]["interacting_because"]
    return [_CAUSES[cause] for cause in causes if cause in _CAUSES]


def lasts(document: Document | None) -> bool:
    """Tells whether what makes the comparison unfair stays in it, whatever comes."""
    return document is not None and any(
        cause in _LASTING for cause in document["gates"]["interacting_because"]
    )


def _contrast(document: Document | None) -> str:
    others = [] if document is None else document["gates"]["aliased_with"]
    named = _listed([other[:10] for other in others if other != "time"])
    if named:
        return f"Separate this change from {named}: give each a share of traffic of its own."
    return "Serve both builds at the same time, so that there is something to compare."


def _on_the_way(document: Document | None) -> Sequence[str]:
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


def worth(contract: Contract, document: Document | None) -> tuple[float, float] | None:
    """Returns dollars a day between which the change lies once everybody has it.

    The ends are equal where a verdict names one number. None where no value is known,
    or what is compared is not the change.
    """
    at_risk = contract["value_at_risk"]
    if at_risk is not None:
        return at_risk, at_risk
    if document is None or document["as_of"] is None:
        return None
    if not is_fair(contract, document):
        return None
    value = document["policy"]["value_per_conversion"]
    interval, per_day = document["totals"]["ci"], document["sessions"]["per_day"]
    if value is None or interval is None or per_day is None:
        return None
    low, high = sorted(end * per_day * value for end in interval)
    return low, high


def measured(
    contract: Contract, document: Document
) -> tuple[Measure, float, Sequence[float]] | None:
    """Returns the measure, the lift and its interval: the verdict's, else the last look's."""
    totals = document["totals"]
    lift = totals["lift"] if contract["lift"] is None else contract["lift"]
    interval = totals["ci"] if contract["ci"] is None else contract["ci"]
    if lift is None or interval is None:
        return None
    return measure_of(document), lift, interval
