"""The arm and the stratum of a context under a change (docs/statistics.md, 'Counts')."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ContextAssignment:
    """The assignment of a context under a change: its arm, and the stratum to compare it in."""

    arm: str
    stratum: frozenset[str]


def assign(change: frozenset[str], context: frozenset[str]) -> ContextAssignment:
    """Returns the arm and stratum of a context under a change."""
    if change <= context:
        arm = "treatment"
    elif change & context:
        arm = "partial"
    else:
        arm = "control"
    return ContextAssignment(arm=arm, stratum=context - change)
