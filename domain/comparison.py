"""A comparison: whether the change alone can explain a difference between the arms."""

from domain.contract import Contract
from domain.words import AbstainReason

# So many units that were served both arms, and more than such a share of all: no router is sticky.
MIN_CROSSINGS = 10
MOST_CROSSED = 0.05
_UNFAIR = (AbstainReason.NON_IDENTIFIABLE, AbstainReason.INTERACTING)


def is_fair(contract: Contract) -> bool:
    """Tells whether the change alone can explain a difference between the arms."""
    return contract.abstain_reason not in _UNFAIR
