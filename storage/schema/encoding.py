"""The encoding of derived tables: whole numbers for times, arms and kinds of sightings.

The pipeline's text computes these numbers, and the tables keep them as they are. People read the
views, which say times and words.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
TREATMENT, CONTROL = 1, 0
_SERVED = ("control", "treatment", "partial")
# Why a unit is left out that an arm served: its number is (the place of the reason + 1) · 3 + that
# of the arm.
LEFT_OUT = ("in_flight", "excluded", "warming")
ARMS = (*_SERVED, *(f"{reason}_{arm}" for reason in LEFT_OUT for arm in _SERVED))
SIGHTING_KINDS = {
    1: "in_flight",
    2: "unmatched_route",
    3: "unsigned",
    4: "late",
    5: "unknown_commit",
    7: "crossover",
    8: "ambiguous_commit",
    9: "unknown_build",
    10: "unknown_user",
}
# By its words, the number of a kind.
SIGHTINGS = {name: number for number, name in SIGHTING_KINDS.items()}
BLOCK = 300_000_000
# A sender's clock that differs by less is taken to be right.
SKEW = 5_000_000
# The stored property that holds the pseudonym of an event's user, null of none, where a unit by
# name has the user's place.
PERSON = "deploy-reward-user_ref"


def epoch_microseconds(time: str) -> str:
    """Returns SQL for a time as whole microseconds since the epoch, or for an interval.

    `date_part` is a double: with the product it is within 0.49 of a microsecond until the year
    2106, which the cast rounds away. `extract` would be exact, and takes six times as long.
    """
    return f"(date_part('epoch', {time}) * 1000000)::bigint"


def on_our_clock(event: str) -> str:
    """Returns SQL for when an event of the log occurred, as far as its own request tells.

    Good enough for readers of single events; the pipeline compares those of a session.
    """
    span = f"{event}.received_at - {event}.sent_at"
    right = f"interval '-{SKEW} microseconds' AND interval '{SKEW} microseconds'"
    return (
        f"({event}.occurred_at + CASE WHEN {span} NOT BETWEEN {right} THEN {span}"
        " ELSE interval '0' END)"
    )


def moment(microseconds: str) -> str:
    """Returns SQL for the time of whole microseconds since the epoch."""
    return f"(timestamptz 'epoch' + {microseconds} * interval '1 microsecond')"


def arm_name(number: str) -> str:
    """Returns SQL for the name of an arm."""
    return _names(number, dict(enumerate(ARMS)))


def sighting_name(number: str) -> str:
    """Returns SQL for the name of a kind of sightings."""
    return _names(number, SIGHTING_KINDS)


def _names(number: str, names: Mapping[int, str]) -> str:
    cases = " ".join(f"WHEN {key} THEN '{name}'" for key, name in names.items())
    return f"CASE {number} {cases} END"


def sightings(*names: str) -> str:
    """Returns SQL for a list of the numbers of kinds."""
    return listed(SIGHTINGS[name] for name in names)


def arms(*names: str) -> str:
    """Returns SQL for a list of the numbers of arms, a reason being those of all its arms."""
    return listed(number for number, name in enumerate(ARMS) if name.startswith(names))


def listed(numbers: Iterable[int]) -> str:
    """Returns SQL for a list of numbers."""
    return f"({', '.join(map(str, numbers))})"


def compared_value(flag: str) -> str:
    """Returns SQL for a flag's value as values are compared, `domain.lineage.flag.flag_value`."""
    text = f"trim(BOTH concat(' ', chr(9), chr(10), chr(13)) FROM {flag})"
    return f"CASE WHEN lower({text}) IN ('true', 'false') THEN lower({text}) ELSE {text} END"
