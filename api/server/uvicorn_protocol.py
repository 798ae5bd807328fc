"""uvicorn's HTTP/1.1 protocol, and a check that it still has the private names we build on.

`pyproject.toml` pins the releases whose names were read; this check turns a release outside them
into one clear error at import, instead of a request that is answered wrongly.
"""

from collections.abc import Collection, Mapping
from types import FunctionType

from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import Server, ServerState

__all__ = [
    "STARTUP_FAILURE",
    "STATUS_LINE",
    "ASGI3Application",
    "ASGIReceiveCallable",
    "ASGISendCallable",
    "Config",
    "HttpToolsProtocol",
    "RequestResponseCycle",
    "Scope",
    "Server",
    "ServerState",
]

# The exit code of uvicorn itself for a server that could not start; its releases keep the name in
# different modules.
STARTUP_FAILURE = 3

# What we call or override.
_METHODS: Mapping[type, Collection[str]] = {
    HttpToolsProtocol: (
        *("connection_made", "connection_lost", "data_received", "shutdown"),
        *("on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body"),
        *("on_message_complete", "on_response_complete"),
        *("_start_asgi_task", "send_400_response"),
    ),
    RequestResponseCycle: ("run_asgi", "send", "receive"),
    FlowControl: ("pause_reading", "resume_reading"),
    Server: ("run", "startup", "shutdown"),
}
# What we read or write on an instance.
_ATTRIBUTES: Mapping[type, Collection[str]] = {
    HttpToolsProtocol: (
        *("app", "loop", "parser", "server_state", "connections", "tasks"),
        *("transport", "flow", "pipeline"),
        *("headers", "expect_100_continue", "cycle"),
    ),
    RequestResponseCycle: (
        *("disconnected", "keep_alive", "message_event"),
        *("response_started", "response_complete"),
    ),
    FlowControl: ("read_paused",),
    Server: ("started", "should_exit", "server_state"),
    ServerState: ("connections", "tasks", "default_headers", "total_requests"),
}


def _missing_names() -> list[str]:
    """Returns the names that this release of uvicorn lacks, as `Class.name`."""
    missing: list[str] = []
    for owner, names in _METHODS.items():
        missing += [f"{owner.__name__}.{name}" for name in names if not hasattr(owner, name)]
    for owner, names in _ATTRIBUTES.items():
        initializer = vars(owner).get("__init__")
        assigned = initializer.__code__.co_names if isinstance(initializer, FunctionType) else ()
        missing += [f"{owner.__name__}.{name}" for name in names if name not in assigned]
    return missing


if _missing := _missing_names():
    raise ImportError(
        f"this release of uvicorn lacks {', '.join(_missing)}: install uvicorn>=0.53,<0.55"
    )
