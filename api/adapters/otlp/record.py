"""Log records and spans: the members of OTLP's that tell of a runtime event."""

from collections.abc import Mapping
from dataclasses import dataclass

from api.wire.problem import Problem

Scalar = str | bool | int | float

# An SDK sends 512 at once, a collector 8192, unless they are configured otherwise.
MOST_RECORDS = 10_000


@dataclass(frozen=True, kw_only=True)
class LogRecord:
    """A log record.

    Attributes:
        event: Its event name; empty if it has none.
        nanoseconds: When it occurred, since 1970; 0 if it does not say so.
        attributes: Its own, and those of its resource.
    """

    event: str
    nanoseconds: int
    attributes: Mapping[str, Scalar]


@dataclass(frozen=True, kw_only=True)
class Span:
    """A span.

    Attributes:
        identity: The ids of its trace and of itself, in hexadecimal; empty if it has none.
        is_server: Whether it is a request that a server answered.
        failed: Whether its status is an error.
        started: When it started, in nanoseconds since 1970; 0 if it does not say so.
        ended: When it ended, alike.
        attributes: Its own, and those of its resource.
    """

    identity: str
    is_server: bool
    failed: bool
    started: int
    ended: int
    attributes: Mapping[str, Scalar]


def unreadable() -> Problem:
    """Returns the problem of a body that is no export."""
    return Problem("invalid_otlp", "the body is not the export that OTLP has for this address")


def require_few(number: int) -> None:
    """Refuses an export of too many parts.

    Raises:
        Problem: There are more than a request may hold.
    """
    if number > MOST_RECORDS:
        raise Problem("body_too_large", f"an export holds at most {MOST_RECORDS} records")
