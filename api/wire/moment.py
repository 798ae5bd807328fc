"""Moments: RFC 3339 times with seconds and offset, in UTC to the microsecond."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

_FORM = re.compile(
    r"\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:[0-5]\d)",
    re.ASCII,
)
# Times that PostgreSQL reads as Python does: in UTC, with no digit more than it keeps.
_PLAIN = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?Z", re.ASCII)
_PLAIN_LINES = re.compile(rf"(?:{_PLAIN.pattern}\n)*", re.ASCII)
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
_END = datetime(2101, 1, 1, tzinfo=UTC)

RULE = (
    "must be an RFC 3339 time with seconds and offset, such as 2026-01-31T12:00:00Z,"
    " of a year from 2000 to 2100"
)


def moment(value: object) -> datetime:
    """Returns the time that a string tells, in UTC; fractions are cut to microseconds.

    Raises:
        ValueError: It is no such string, or its year is not within 2000 to 2100.
    """
    if not isinstance(value, str) or _FORM.fullmatch(value) is None:
        raise ValueError(RULE)
    try:
        # Python cuts a fraction at its sixth digit, as we promise.
        moment = datetime.fromisoformat(value.upper())
        utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(RULE) from None
    if not _FIRST <= utc < _END:
        raise ValueError(RULE)
    return utc


def plain_moment(text: str, *, latest: datetime) -> datetime | None:
    """Returns the time of a string that PostgreSQL can read for itself.

    Nearly all are such, and this is the quicker way; None of a string that `moment` must look at.

    Args:
        latest: The last time that is taken, before the year 2101.
    """
    if _PLAIN.fullmatch(text) is None:
        return None
    try:
        utc = datetime.fromisoformat(text)
    except ValueError:
        return None
    return utc if _FIRST <= utc <= latest else None


def plain_moments(texts: Sequence[str], *, latest: datetime) -> list[datetime] | None:
    """Returns what `plain_moment` returns of each string, or None if it is None of any."""
    if _PLAIN_LINES.fullmatch("\n".join([*texts, ""])) is None:
        return None
    try:
        # Each string is read alone: two plain strings must not pass for a text with a line feed.
        moments = list(map(datetime.fromisoformat, texts))
    except ValueError:
        return None
    return moments if not moments or _FIRST <= min(moments) <= max(moments) <= latest else None


def _validated(value: object) -> datetime:
    try:
        return moment(value)
    except ValueError:
        raise PydanticCustomError("invalid_time", RULE) from None


Moment = Annotated[
    datetime, PlainValidator(_validated), WithJsonSchema({"type": "string", "format": "date-time"})
]
