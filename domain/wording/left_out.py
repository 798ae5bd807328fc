"""Outcomes and values of a flag that are left out, in words: how many, why, and the cure."""

from collections.abc import Sequence

from domain.cause import Cause
from domain.evidence.counts import LeftOut
from domain.evidence.document import Evidence
from domain.evidence.results import FlagUnits
from domain.figures import counted, first_names
from domain.metric import FrozenMetric

# Public keys can invent values.
_NAMED, _SHOWN = 10, 40
UNKNOWN_USER = "unknown_user"
CURES = {
    Cause.OTHER_CURRENCY: "Payments in another currency do not count: name its rate in the metric's"
    ' `rates`, or measure whether there was a payment (`kind = "conversion"`), and register the'
    " change again.",
    Cause.NO_VALUE: "Events without a value do not count: send `value` with each of them, or"
    ' measure whether there was an event (`kind = "conversion"`), and register the change again.',
    Cause.NOT_VOUCHED: "Outcomes with the public key do not count under `signed_assignments`: send"
    " them with the write key, or with the router's token, and register the change again.",
    UNKNOWN_USER: "A session that names no unit counts for nobody: send user_ref, or the property"
    " that the project counts by, with each event, also with the first page view.",
    Cause.EMPTY: "Empty outcomes count as none: fill these cells of the file, or leave the rows of"
    " both arms out with `where`, and import it anew.",
}

UNIT_OF_SESSIONS = (
    "Or count sessions, where the router keeps a session in its build and no visitor: set the"
    " project's `unit` to `session`, and register the change again."
)


def left_out_sentence(outcomes: Sequence[LeftOut], target: FrozenMetric, unit: str) -> str | None:
    """Returns how many outcomes of the target's units, and sessions of nobody, do not count.

    Returns:
        None where each of them has a value that counts.
    """
    currency = target.currency
    other = (
        f"in another currency than {currency}" if currency else "since the metric names no currency"
    )
    nouns = {
        Cause.OTHER_CURRENCY: ("payment", other),
        Cause.NO_VALUE: ("event", "without a value"),
        Cause.NOT_VOUCHED: ("outcome", "that nobody vouches for"),
        Cause.EMPTY: ("outcome", "empty in the history"),
        UNKNOWN_USER: ("session", f"that name a build and no {unit}"),
    }
    parts = [
        f"{_amount(row.treatment, noun)} of treatment and"
        f" {_amount(row.control, noun)} of control, {why}"
        for row in outcomes
        if row.reason in nouns
        for noun, why in [nouns[row.reason]]
    ]
    return f"Left out: {'; '.join(parts)}." if parts else None


def _amount(count: int, noun: str) -> str:
    return counted(count, noun) if count else f"no {noun}s"


def unclear_sentence(values: Sequence[FlagUnits], unit: str) -> str | None:
    """Returns the units by value where several may be control's; None elsewhere."""
    if not any(each.taken_for == "unclear" for each in values):
        return None
    by_value = f"{unit.capitalize()}s by value: {_listed(values)}."
    return f"{by_value} Name control's: register the change again with `control`."


def left_out_values(evidence: Evidence) -> str:
    """Returns the values that are left out, each with its units."""
    return _listed([each for each in evidence.flag_values if each.taken_for == "left_out"])


def _listed(values: Sequence[FlagUnits]) -> str:
    return first_names([f"`{each.value[:_SHOWN]}` {each.units:,}" for each in values], _NAMED)
