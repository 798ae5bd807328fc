"""A comparison: whether the change alone can explain a difference between the arms."""

from domain.contract import Contract
from domain.evidence.document import AnyEvidence, Evidence
from domain.words import AbstainReason, EndedBecause

# So many units that were served both arms, and more than such a share of all: no router is sticky.
MIN_CROSSINGS = 10
MOST_CROSSED = 0.05
_UNFAIR = (AbstainReason.NON_IDENTIFIABLE, AbstainReason.INTERACTING)
_CONTRAST_ENDED = (
    EndedBecause.PROMOTED,
    EndedBecause.WITHDRAWN,
    EndedBecause.SUPERSEDED,
    EndedBecause.NOTHING_TO_COMPARE,
)


def is_fair(contract: Contract, evidence: Evidence | None) -> bool:
    """Tells whether the change alone can explain a difference between the arms.

    Args:
        contract: The verdict contract.
        evidence: The evidence document; None before the first look.
    """
    if evidence is None:
        return contract.abstain_reason not in _UNFAIR
    gated = any(look.gated for look in evidence.looks[-1:])
    return compares(contract.abstain_reason, evidence.ended_because, gated=gated)


def compares(
    abstain_reason: AbstainReason | None, ended_because: EndedBecause | None, *, gated: bool
) -> bool:
    """Tells whether an experiment compares its arms by the change alone.

    A comparison made before the contrast ended stays fair, unless a gate held.

    Args:
        gated: Whether a gate held its last look.
    """
    return abstain_reason not in _UNFAIR or (ended_because in _CONTRAST_ENDED and not gated)


def contrast_ended(evidence: AnyEvidence | None) -> bool:
    """Tells whether an experiment ended because an arm was left alone."""
    return evidence is not None and evidence.ended_because in _CONTRAST_ENDED
