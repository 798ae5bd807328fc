"""Problems: every way in which a request can fail, as RFC 9457 tells it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

# Each code with its status and title: the words that programs may rely on.
CODES: Mapping[str, tuple[int, str]] = {
    "invalid_json": (400, "The body is not JSON"),
    "duplicate_member": (400, "The body names a member twice"),
    "invalid_otlp": (400, "The body is no export of OTLP"),
    "invalid_evaluation": (400, "The body is not an evaluation's"),
    "invalid_encoding": (400, "The body is not what Content-Encoding says"),
    "missing_key": (401, "No project key"),
    "malformed_key": (401, "Not a project key"),
    "unknown_key": (401, "Unknown project key"),
    "differing_keys": (401, "Two project keys that differ"),
    "wrong_key_kind": (403, "A key of the wrong kind"),
    "remote_evaluation_off": (403, "No arm is handed out to this key"),
    "origin_not_allowed": (403, "Origin not allowed"),
    "locked": (403, "Locked by the project's settings"),
    "read_only": (403, "Signed in to read"),
    "not_found": (404, "No such path"),
    "no_deploy": (404, "No deploy yet"),
    "unknown_deploy": (404, "No such deploy"),
    "unknown_experiment": (404, "No such experiment"),
    "no_evidence_yet": (404, "No evidence yet"),
    "flag_not_found": (404, "No such flag"),
    "unknown_place": (404, "No such place"),
    "unknown_graph": (404, "No such graph"),
    "unknown_commit": (404, "No such commit"),
    "method_not_allowed": (405, "Method not allowed"),
    "not_acceptable": (406, "Nothing acceptable to send"),
    "request_timeout": (408, "The request did not arrive in time"),
    "idempotency_conflict": (409, "Idempotency key reused"),
    "ambiguous_commit": (409, "The id begins several commits"),
    "deploy_conflict": (409, "Deploy recorded differently"),
    "deploy_in_use": (409, "An experiment rests on the deploy"),
    "no_threshold": (409, "Target without a threshold"),
    "experiment_open": (409, "Experiment open with other members"),
    "place_open": (409, "Place open with other members"),
    "queue_full": (409, "Too many changes wait"),
    "history_closed": (409, "History is closed"),
    "history_too_wide": (409, "History of too many days"),
    "body_too_large": (413, "Body too large"),
    "unsupported_media_type": (415, "Unsupported media type"),
    "host_not_allowed": (421, "Not a host of this service"),
    "invalid_request": (422, "The request breaks a rule"),
    "rate_limited": (429, "Too many requests"),
    "internal_error": (500, "A fault of the service"),
    "store_unavailable": (503, "The store cannot be reached or written"),
    "not_migrated": (503, "The store is not migrated"),
    "overloaded": (503, "More at once than the service takes"),
    "stopping": (503, "The service is stopping"),
}

# An answer stays readable, and small, whatever was sent.
_MOST_FAULTS = 100


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A rule that a member breaks; it never quotes the member's value."""

    at: str
    code: str
    detail: str
    # Kind of `at`: a JSON pointer into the body, or the name of a parameter or header.
    place: Literal["pointer", "parameter", "header"] = "pointer"

    def document(self) -> dict[str, str]:
        """Returns the fault as an answer shows it."""
        return {self.place: self.at, "code": self.code, "detail": self.detail}


class Problem(Exception):  # noqa: N818 - RFC 9457's word
    """Ends a request with a problem document."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.faults = faults
        self.headers = dict(headers or {})
        # Members that another protocol reads beside ours.
        self.members = dict(members or {})

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return CODES[self.code][0]


def invalid(faults: Sequence[Fault]) -> Problem:
    """Returns the problem of a body or query that breaks rules; nothing of it is stored."""
    more = len(faults) - 1
    first = faults[0]
    where = first.at or "the body"
    detail = f"{where}: {first.detail}" + (f" (and {more} more)" if more else "")
    return Problem("invalid_request", detail, faults=faults)


# The paths of protocols whose failures have a form of their own; the application fills it.
PROTOCOL_FORMS: dict[str, Callable[[Request, Problem], Response]] = {}


def problem_document(problem: Problem, request_id: str) -> bytes:
    """Returns the body that tells of a problem."""
    status, title = CODES[problem.code]
    document: dict[str, object] = {
        "type": f"urn:deploy-reward:problem:{problem.code}",
        "title": title,
        "status": status,
        "detail": problem.detail,
        "code": problem.code,
        "request_id": request_id,
        **problem.members,
    }
    if problem.faults:
        document["errors"] = [fault.document() for fault in problem.faults[:_MOST_FAULTS]]
    # ASCII, so that whatever a member's name holds can be sent.
    return json.dumps(document).encode("ascii")
