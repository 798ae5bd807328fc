"""A comparison: whether the change alone can explain a difference between the arms."""

from domain.contract import Contract
from domain.words import AbstainReason

# So many units that were served both arms, and more than such a share of all: no router is sticky.
MIN_CROSSINGS = 10
MOST_CROSSED = 0.05
# How many visitors of an arm must have come back before a router is judged by them: 30 at a share
# of a half, and 30·π/(1−π) at a share π, where half of the way from a lottery to a router that
# keeps all is as far beyond chance; 10 at least. Looks are many: a lottery reaches it at some look
# in less than 0.01 of runs at any share; with 20 at a share of a half it did in 0.025.
FEWEST_RETURNING = 10
MANY_RETURNING = 30
KEPT_HALF_WAY = 0.5
_UNFAIR = (AbstainReason.NON_IDENTIFIABLE, AbstainReason.INTERACTING)


def is_fair(contract: Contract) -> bool:
    """Tells whether the change alone can explain a difference between the arms."""
    return contract.abstain_reason not in _UNFAIR
