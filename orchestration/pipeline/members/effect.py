"""The effect member of an evidence document: the number to train on, beside the verdict."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from domain.comparison import is_fair
from stats.decision.evidence import Evidence
from stats.decision.follow_up import FollowUp
from stats.looks.policy import Policy

# The moment of an estimate. At the decision it is shrunk like any other, and stands from then on.
OPEN, AT_DECISION, AFTER_DECISION = "open", "at_decision", "after_decision"


def effect_member(
    evidence: Evidence,
    *,
    contract: Mapping[str, Any],
    document: Mapping[str, Any],
    units_per_day: float | None,
) -> dict[str, Any] | None:
    """Returns the effect as a member of an evidence document (docs/api.md, 'The effect').

    Args:
        evidence: The evidence at the look.
        contract: The verdict contract that it supports.
        document: The other members of the evidence document.
        units_per_day: Units of both arms a day, measured or not.

    Returns:
        None before the first look. Its numbers are None where nothing was compared, and where what
        differs between the arms is not the change alone.
    """
    if evidence.as_of is None:
        return None
    known = is_fair(contract, document)
    effect = evidence.effect if known else None
    interval = evidence.ci if effect is not None else None
    dollars = _dollars(document["policy"]["value_per_conversion"], units_per_day)
    return {
        "estimate": None if effect is None else effect.estimate,
        "standard_error": None if effect is None else effect.standard_deviation,
        "interval": None if interval is None else list(interval),
        "relative": None if effect is None else effect.relative,
        "value_per_day": None if effect is None or dollars is None else effect.estimate * dollars,
        "value_interval": _times(interval, dollars),
        "basis": AT_DECISION if evidence.decision.decided else OPEN,
        "units": evidence.units_in_cells,
        # A decided verdict is never rewritten, nor is what was estimated at its look.
        "final": evidence.decision.decided,
        "as_of": document["as_of"],
    }


def follow_up_effect(
    follow_up: FollowUp, policy: Mapping[str, Any], *, state: str
) -> dict[str, Any] | None:
    """Returns the effect of the units that were exposed after a decision.

    Of a follow-up that was stopped before its planned end the interval alone holds: one that is
    ended on good news would show a lucky lift.

    Args:
        follow_up: The follow-up, as computed.
        policy: The experiment's frozen policy.
        state: `running`, `stopped` or `final`.

    Returns:
        None before its first look.
    """
    if follow_up.as_of is None:
        return None
    estimate = None if state == "stopped" else follow_up.lift
    measured = follow_up.per_day
    units_per_day = None if measured is None else measured / Policy.from_json(policy).sample_rate
    dollars = _dollars(policy["value_per_conversion"], units_per_day)
    interval = follow_up.interval
    return {
        "estimate": estimate,
        "standard_error": None if estimate is None else follow_up.standard_error,
        "interval": None if interval is None else list(interval),
        "relative": None if estimate is None else follow_up.relative,
        "value_per_day": None if estimate is None or dollars is None else estimate * dollars,
        "value_interval": _times(interval, dollars),
        "basis": AFTER_DECISION,
        "units": follow_up.units,
        "final": state == "final",
        "as_of": datetime.fromtimestamp(follow_up.as_of, tz=UTC).isoformat().replace("+00:00", "Z"),
    }


def _dollars(value_per_conversion: float | None, units_per_day: float | None) -> float | None:
    """Returns what one conversion more of each unit is worth a day."""
    if value_per_conversion is None or units_per_day is None:
        return None
    return value_per_conversion * units_per_day


def _times(interval: Sequence[float] | None, dollars: float | None) -> list[float] | None:
    if interval is None or dollars is None:
        return None
    return sorted(end * dollars for end in interval)
