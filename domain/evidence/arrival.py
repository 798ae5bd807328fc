"""Arrival: whether treatment's shortfall of units looks like a mis-set weight, and its advice."""

from domain.contract import Contract
from domain.evidence.document import Evidence

ARRIVAL = "arrival"
# Every face shows this beside the evidence's sentence, which names both causes.
STEADY_SHORTFALL = "arrival alone is breached, at a steady ratio"


def is_steady_shortfall(contract: Contract, evidence: Evidence | None) -> bool:
    """Tells whether nothing but `arrival` is breached, at a ratio that was steady all along.

    A router whose weight is mis-set looks like that, and so does a build that dies in some
    sessions: a fault of the set-up to look into, no reason to go back by itself.

    Args:
        contract: The verdict contract.
        evidence: The evidence document behind it; None before any look.
    """
    shortfall = None if evidence is None else evidence.gates.shortfall
    is_alone = contract.guardrail_breaches == (ARRIVAL,)
    return is_alone and shortfall is not None and shortfall.steady
