"""Arrival: whether treatment's shortfall of units looks like a mis-set weight, and its advice."""

from collections.abc import Mapping
from typing import Any

ARRIVAL = "arrival"
# Every face shows this beside the evidence's sentence, which names both causes.
STEADY_SHORTFALL = "arrival alone is breached, at a steady ratio"


def is_steady_shortfall(contract: Mapping[str, Any], evidence: Mapping[str, Any]) -> bool:
    """Tells whether nothing but `arrival` is breached, at a ratio that was steady all along.

    A router whose weight is mis-set looks like that, and so does a build that dies in some
    sessions: a fault of the set-up to look into, no reason to go back by itself.

    Args:
        contract: The verdict contract.
        evidence: The evidence document behind it; empty before any look.
    """
    shortfall = evidence.get("gates", {}).get("shortfall") or {}
    return list(contract["guardrail_breaches"]) == [ARRIVAL] and shortfall.get("steady", False)
