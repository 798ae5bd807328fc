"""A comparison: whether the change alone can explain a difference between the arms."""

from domain.contract import Contract
from domain.words import AbstainReason

# So many units that were served both arms, and more than such a share of all: no router is sticky.
MIN_CROSSINGS = 10
MOST_CROSSED = 0.05
# How many visitors must have come back before a router is judged by them: looks are many, and a
# lottery at 50/50 looks like a router that keeps visitors in 0.025 of runs with 20 of them, and in
# 0.005 with 30. And how far of the way from a lottery to a router that keeps all.
MANY_RETURNING = 30
KEPT_HALF_WAY = 0.5
_UNFAIR = (AbstainReason.NON_IDENTIFIABLE, AbstainReason.INTERACTING)


def is_fair(contract: Contract) -> bool:
    """Tells whether the change alone can explain a difference between the arms."""
    return contract.abstain_reason not in _UNFAIR
