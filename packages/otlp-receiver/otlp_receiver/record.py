"""Log records and spans: the members of OTLP's that tell of a runtime event."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from api.wire.problem import Problem

# Attributes with the address of a request: the conventions before 1.21 had other names.
ADDRESSES = ("url.path", "http.target", "http.url", "url.full")
HTTP_CODES = ("http.response.status_code", "http.status_code")
RPC_CODES = ("rpc.grpc.status_code", "rpc.response.status_code")
# Codes of gRPC that OpenTelemetry's conventions take for no error of a server.
_OF_CALLERS = frozenset(map(str, [1, 3, *range(5, 12), 16])) | {
    *("CANCELLED", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED"),
    *("RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNAUTHENTICATED"),
}
Scalar = str | bool | int | float

# An SDK sends 512 at once, a collector 8192, unless they are configured otherwise.
MOST_RECORDS = 10_000


@dataclass(frozen=True, kw_only=True)
class LogRecord:
    """A log record.

    Attributes:
        event: Its event name; empty if it has none.
        nanoseconds: When it occurred, since 1970; 0 if it does not say so.
    """

    event: str
    nanoseconds: int
    attributes: Mapping[str, Scalar]


@dataclass(frozen=True, kw_only=True)
class Span:
    """A span.

    Attributes:
        identity: The ids of its trace and of itself, in hexadecimal; empty if it has none.
        process: A number that spans of the same resource share.
        library: The instrumentation that recorded it; empty if it does not say so.
        started: When it started, in nanoseconds since 1970; 0 if it does not say so.
    """

    identity: str
    parent: str
    process: int
    library: str
    is_server: bool
    is_nested: bool
    failed: bool
    started: int
    ended: int
    attributes: Mapping[str, Scalar]

    @property
    def is_failed_request(self) -> bool:
        """Whether the server failed: by the code of its answer, else by the span's status.

        OpenTelemetry's conventions leave a server's span unset where the caller was wrong. Django
        marks the 4xx that a view raises; such a code of gRPC is none either, whoever marks it.
        """
        rpc, http = (
            {str(self.attributes[name]).upper() for name in names if name in self.attributes}
            for names in (RPC_CODES, HTTP_CODES)
        )
        if rpc & _OF_CALLERS or any(code.startswith("4") for code in http):
            return False
        return self.failed or any(code.startswith("5") for code in http)


def path_of(attributes: Mapping[str, Scalar]) -> str:
    """Returns the path that a request asked for; empty where it is missing."""
    address = next((text for name in ADDRESSES if (text := str(attributes.get(name, "")))), "")
    try:
        return urlsplit(address).path
    except ValueError:
        return ""


def unreadable() -> Problem:
    """Returns the problem of a body that is no export."""
    return Problem("invalid_otlp", "the body is not the export that OTLP has for this address")


def require_few(number: int) -> None:
    """Refuses an export of too many parts."""
    if number > MOST_RECORDS:
        raise Problem("body_too_large", f"an export holds at most {MOST_RECORDS} records")
