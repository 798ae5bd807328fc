"""An answer: the word that a person reads first, and what marks it in pictures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestration.pictures.svg import DEEP_GREEN, DEEP_ORANGE, DEEP_VERMILION, INK, QUIET

_DECIDED = {"keep": ("Keep", DEEP_GREEN), "rollback": ("Roll back", DEEP_VERMILION)}
_ABSTAINING = {
    "power": "Can't say yet",
    "non_identifiable": "Can't say: no contrast",
    "interacting": "Can't say: not causal",
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A word and the colour that goes with it; the colour never tells more than the word."""

    word: str
    colour: str


def answer_of(contract: Mapping[str, Any], *, candidate: bool = False) -> Answer:
    """Returns the answer of a verdict contract.

    Args:
        contract: The contract.
        candidate: Whether a `keep` waits for its guardrails.
    """
    verdict = contract["verdict"]
    if verdict in _DECIDED:
        word, colour = _DECIDED[verdict]
        return Answer(word=word, colour=colour)
    if verdict == "iterate":
        return Answer(word="Iterate", colour=DEEP_ORANGE)
    if contract["power_state"]["decided"]:
        return Answer(word="No answer", colour=QUIET)
    if candidate and contract["abstain_reason"] == "power":
        return Answer(word="Almost", colour=INK)
    return Answer(word=_ABSTAINING[contract["abstain_reason"]], colour=INK)
