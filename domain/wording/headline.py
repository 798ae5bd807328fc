"""The headline of a verdict: the first words that a person reads, the same in every face."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from domain.contract import Contract
from domain.figures import first_names
from domain.registration import Situation
from domain.wording.surplus import SUSPICION
from domain.words import AbstainReason, Action, State, Verdict

Tone = Literal["keep", "rollback", "iterate", "waiting", "fault", "none"]

VERDICTS: Mapping[Verdict, str] = {
    Verdict.KEEP: "Keep",
    Verdict.ROLLBACK: "Roll back",
    Verdict.ITERATE: "Iterate",
}
NO_ANSWER = "No answer"
_BREACHED: Mapping[Action, Tone] = {Action.ROLL_BACK: "rollback", Action.REVISE: "iterate"}
_STATES: Mapping[State, tuple[Tone, str]] = {
    State.ALMOST: ("waiting", "Almost: keep"),
    State.SUSPECTED: ("rollback", SUSPICION),
    State.WITHDRAWN: ("none", "Withdrawn"),
    State.PROMOTED: ("none", "Promoted"),
    State.BASE_GONE: ("fault", "Can't say: users have another build"),
    State.ENDED: ("none", "Closed"),
    State.NOTHING_TO_COMPARE: ("fault", "Can't say: no build to compare with"),
}
_WAITING: Mapping[AbstainReason | None, tuple[Tone, str]] = {
    AbstainReason.POWER: ("waiting", "Can't say yet"),
    AbstainReason.NON_IDENTIFIABLE: ("fault", "Can't say: no build to compare with"),
    AbstainReason.INTERACTING: ("fault", "Can't say: the split is not fair"),
}
# For readers of the contract alone, without the evidence's own reason.
ABSTENTIONS: Mapping[AbstainReason, str] = {
    AbstainReason.POWER: "more traffic is needed",
    AbstainReason.NON_IDENTIFIABLE: "treatment and control were not served side by side",
    AbstainReason.INTERACTING: "the arms differ in more than the change",
}


@dataclass(frozen=True, kw_only=True)
class Headline:
    """A headline's text, and a tone that faces mark by colour or shape."""

    tone: Tone
    text: str


def headline_of(contract: Contract, situation: Situation | None = None) -> Headline:
    """Returns the headline of a verdict contract.

    Args:
        situation: Its state or its breach comes first; None where it is not known.
    """
    if contract.verdict is not Verdict.ABSTAIN:
        return Headline(tone=contract.verdict.value, text=VERDICTS[contract.verdict])
    if situation is not None and situation.action in _BREACHED:
        first = first_names(contract.guardrail_breaches, 1)
        text = f"{first} got worse" if first else SUSPICION
        return Headline(tone=_BREACHED[situation.action], text=text)
    if contract.decided:
        return Headline(tone="none", text=NO_ANSWER)
    tone, text = _WAITING[contract.abstain_reason]
    if situation is not None:
        tone, text = _STATES.get(situation.state, (tone, text))
    return Headline(tone=tone, text=text)
