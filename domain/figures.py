"""Figures as sentences have them: counts, lists of names and lengths of time."""

from collections.abc import Sequence

_LENGTHS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def counted(count: int, noun: str) -> str:
    """Returns a count with its noun: `1 day`, `1,200 days`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def first_names(names: Sequence[str], limit: int) -> str:
    """Returns so many names and the number of the others: `a, b and 3 more`."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more:,} more" if more > 0 else "")


def listed(names: Sequence[str]) -> str:
    """Returns all names: `a, b and c`."""
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else ""


def percent(share: float) -> str:
    """Returns a relative difference in percent, with its sign."""
    return f"{100 * share:+.1f} %"


def rough_percent(number: float) -> str:
    """Returns a number of percent with its sign, whole from ten on."""
    return f"{number:+.1f} %" if abs(number) < 10 else f"{number:+.0f} %"


def length_of_time(seconds: float, *, least: int = 2) -> str:
    """Returns a length in its largest unit of which it is whole, or has at least so many."""
    length, unit = next(
        (length, unit)
        for length, unit in _LENGTHS
        if seconds >= least * length or (seconds and not seconds % length) or length == 1
    )
    return counted(round(seconds / length), unit)
