"""The verdict's vocabulary: verdicts, abstain reasons, endings, states and cadences."""

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
    PLACE_ENDED = "place_ended"
    DOES_NOT_STAND = "does_not_stand"
    CANNOT_START = "cannot_start"


class Cadence(StrEnum):
    """The size of lift that the looks are timed for: small (day) or large (fast)."""

    DAY = "day"
    FAST = "fast"


class State(StrEnum):
    """The state of an experiment, by the builds served, its evidence and its verdict."""

    WAITS_FOR_DEPLOY = "waits_for_deploy"
    NOTHING_TO_COMPARE = "nothing_to_compare"
    WITHDRAWN = "withdrawn"
    PROMOTED = "promoted"
    STARTING = "starting"
    HELD = "held"
    BASE_GONE = "base_gone"
    ARRIVING = "arriving"
    COMPARING = "comparing"
    ALMOST = "almost"
    SUSPECTED = "suspected"
    DECIDED = "decided"
    ENDED = "ended"


class Action(StrEnum):
    """The next step of the change's owner, as a word for programs."""

    WAIT = "wait"
    PAUSE = "pause"
    FIX = "fix"
    REBASE = "rebase"
    SHIP = "ship"
    ROLL_BACK = "roll_back"
    REVISE = "revise"
    NONE = "none"
