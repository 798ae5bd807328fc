"""The verdict: the words that it is told in."""

from enum import StrEnum


class Verdict(StrEnum):
    """What to do with the change."""

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
    """What ended an experiment without an answer."""

    HORIZON = "horizon"
    PROMOTED = "promoted"
    WITHDRAWN = "withdrawn"
    SUPERSEDED = "superseded"
    FUTILITY = "futility"
    CLOSED = "closed"


class Cadence(StrEnum):
    """Which lifts the looks are timed for."""

    DAY = "day"
    FAST = "fast"
