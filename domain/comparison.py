"""A comparison: whether the change alone can explain a difference between the arms."""

from collections.abc import Mapping
from typing import Any

# So many units that were served both arms, and more than such a share of all: no router is sticky.
MIN_CROSSINGS = 10
MOST_CROSSED = 0.05
_UNFAIR = ("non_identifiable", "interacting")
_CONTRAST_ENDED = ("promoted", "withdrawn", "superseded", "nothing_to_compare")


def is_fair(contract: Mapping[str, Any], document: Mapping[str, Any] | None) -> bool:
    """Tells whether the change alone can explain a difference between the arms.

    A comparison made before the contrast ended stays fair, unless a gate held.

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
