"""Admissions: how many requests and events of a project were admitted, and why others were not."""

from dataclasses import dataclass

# Why an event is refused that names no unit.
NO_UNIT = "missing (session_id)"


@dataclass(frozen=True, kw_only=True)
class Admissions:
    """Counts of requests and events by their outcome.

    Attributes:
        requests: To `/v1/events`, with a live key of the project.
        sampled_out: Valid events outside the project's sample, which are not stored.
        nothing: Values, sent to any address, that were words for nothing or git's null id.
        split_spans: Spans whose outer span of the same request came in another export.
        untranslated_spans: Spans whose `http.route` no graph can have.
        reason: Why the last event was rejected; None where none was.
        lacking: The member that the last of `nothing` stood in; None where there was none.
    """

    requests: int = 0
    limited: int = 0
    accepted: int = 0
    late: int = 0
    rejected: int = 0
    without_unit: int = 0
    sampled_out: int = 0
    nothing: int = 0
    split_spans: int = 0
    untranslated_spans: int = 0
    reason: str | None = None
    lacking: str | None = None
