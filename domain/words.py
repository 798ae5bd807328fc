"""The verdict's vocabulary: verdicts, abstain reasons, endings and cadences."""

from enum import StrEnum


class Verdict(StrEnum):
    """The recommended action for the change."""

    KEEP = "keep"
    ROLLBACK = "rollback"
    ITERATE = "iterate"
    ABSTAIN = "abstain"


class AbstainReason(StrEnum):
    """Why there is no answer."""

    POWER = "power"
    NON_IDENTIFIABLE = "non_identifiable"
    INTERACTING = "interacting"


class EndedBecause(StrEnum):
    """The event that ended an experiment without an answer."""

    HORIZON = "horizon"
    PROMOTED = "promoted"
    WITHDRAWN = "withdrawn"
    SUPERSEDED = "superseded"
    NOTHING_TO_COMPARE = "nothing_to_compare"
    FUTILITY = "futility"
    CLOSED = "closed"


class Cadence(StrEnum):
    """The size of lift that the looks are timed for: small (day) or large (fast)."""

    DAY = "day"
    FAST = "fast"
