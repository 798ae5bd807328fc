"""A comparison: whether what differs between the arms is the change's doing."""

from collections.abc import Mapping
from typing import Any

_UNFAIR = ("non_identifiable", "interacting")
_CONTRAST_ENDED = ("promoted", "withdrawn", "superseded")


def is_fair(contract: Mapping[str, Any], document: Mapping[str, Any] | None) -> bool:
    """Tells whether what differs between the arms is the change's doing.

    What was compared before the contrast ended stays a fair comparison, unless a gate held.

    Args:
        contract: The verdict contract.
        document: The evidence document; None before the first look.
    """
    if contract["abstain_reason"] not in _UNFAIR:
        return True
    looks = (document or {}).get("looks", ())
    return contrast_ended(document) and not any(look["gated"] for look in looks[-1:])


def contrast_ended(document: Mapping[str, Any] | None) -> bool:
    """Tells whether an experiment ended because one of its arms was left alone."""
    return document is not None and document.get("ended_because") in _CONTRAST_ENDED
