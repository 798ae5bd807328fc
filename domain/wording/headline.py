"""The headline of a verdict: the first words that a person reads, the same in every face."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from domain.contract import Contract
from domain.words import AbstainReason, Verdict

Tone = Literal["keep", "rollback", "iterate", "waiting", "fault", "none"]

VERDICTS: Mapping[Verdict, str] = {
    Verdict.KEEP: "Keep",
    Verdict.ROLLBACK: "Roll back",
    Verdict.ITERATE: "Iterate",
}
NO_ANSWER = "No answer"
CANDIDATE = "Almost: keep"
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
    """A headline's text, and a tone that faces mark by colour or shape.

    Attributes:
        tone: The kind of headline; the text alone says as much.
    """

    tone: Tone
    text: str


def headline_of(contract: Contract, *, candidate: bool = False) -> Headline:
    """Returns the headline of a verdict contract.

    Args:
        candidate: Whether a `keep` waits for its guardrails.
    """
    if contract.verdict is not Verdict.ABSTAIN:
        return Headline(tone=contract.verdict.value, text=VERDICTS[contract.verdict])
    if contract.decided:
        return Headline(tone="none", text=NO_ANSWER)
    if candidate and contract.abstain_reason is AbstainReason.POWER:
        return Headline(tone="waiting", text=CANDIDATE)
    tone, text = _WAITING[contract.abstain_reason]
    return Headline(tone=tone, text=text)
