"""The headline of a verdict: the first words that a person reads, the same in every face."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Tone = Literal["keep", "rollback", "iterate", "waiting", "fault", "none"]

VERDICTS: Mapping[str, str] = {"keep": "Keep", "rollback": "Roll back", "iterate": "Iterate"}
NO_ANSWER = "No answer"
CANDIDATE = "Almost: keep"
_WAITING: Mapping[str, tuple[Tone, str]] = {
    "power": ("waiting", "Can't say yet"),
    "non_identifiable": ("fault", "Can't say: nothing to compare"),
    "interacting": ("fault", "Can't say: the split is not fair"),
}
# For readers of the contract alone, without the evidence's own reason.
ABSTENTIONS: Mapping[str, str] = {
    "power": "more traffic is needed",
    "non_identifiable": "treatment and control were not served side by side",
    "interacting": "the arms differ by more than the change",
}


@dataclass(frozen=True, kw_only=True)
class Headline:
    """A headline's text, and a tone that faces mark by colour or shape.

    Attributes:
        tone: The kind of headline; the text alone says as much.
    """

    tone: Tone
    text: str


def headline_of(contract: Mapping[str, Any], *, candidate: bool = False) -> Headline:
    """Returns the headline of a verdict contract.

    Args:
        candidate: Whether a `keep` waits for its guardrails.
    """
    verdict = contract["verdict"]
    if verdict in VERDICTS:
        return Headline(tone=verdict, text=VERDICTS[verdict])
    if contract["power_state"]["decided"]:
        return Headline(tone="none", text=NO_ANSWER)
    if candidate and contract["abstain_reason"] == "power":
        return Headline(tone="waiting", text=CANDIDATE)
    tone, text = _WAITING[contract["abstain_reason"]]
    return Headline(tone=tone, text=text)
