"""The settings of an API process, read from the environment at its start."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from storage.tenants.secret import service_secret

_HOST = re.compile(r"[a-z0-9_.-]+")


@dataclass(frozen=True, kw_only=True)
class ApiSettings:
    """The settings of an API process: its store, and the rest of its configuration."""

    database_url: str = field(repr=False)
    secret: bytes = field(repr=False)
    # The address that users see, for links; by default that of each request.
    public_url: str | None = None
    # The hosts under which `/mcp` is reached, beside that address, loopback names and IP addresses.
    agent_hosts: frozenset[str] = frozenset()
    # The issuer of tokens for agents; None where the operator has no such server.
    oauth_issuer: str | None = None
    # Rate limits shared by all workers; by default each worker counts for itself.
    redis_url: str | None = field(default=None, repr=False)

    @classmethod
    def from_environment(cls) -> Self:
        """Returns the settings of the `SERVICE_*` variables.

        Raises:
            ValueError: A variable that must be set is not, or is wrong; the message names it.
        """
        database_url = os.environ.get("SERVICE_DATABASE_URL")
        if not database_url:
            raise ValueError("SERVICE_DATABASE_URL is not set: name a PostgreSQL database")
        data_dir = os.environ.get("SERVICE_DATA_DIR")
        return cls(
            database_url=database_url,
            secret=service_secret(Path(data_dir).expanduser() if data_dir else None),
            public_url=os.environ.get("SERVICE_PUBLIC_URL") or None,
            agent_hosts=_hosts(os.environ.get("SERVICE_MCP_HOSTS", "")),
            oauth_issuer=_issuer(os.environ.get("SERVICE_OAUTH_ISSUER") or None),
            redis_url=os.environ.get("SERVICE_REDIS_URL") or None,
        )


def _hosts(text: str) -> frozenset[str]:
    names = frozenset(name.strip().lower() for name in text.split(",") if name.strip())
    if any(not _HOST.fullmatch(name) for name in names):
        raise ValueError(
            "SERVICE_MCP_HOSTS must name hosts, without scheme and port, separated by commas"
        )
    return names


def _issuer(url: str | None) -> str | None:
    parts = urlsplit(url or "")
    if url is not None and (
        parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment
    ):
        raise ValueError(
            "SERVICE_OAUTH_ISSUER must be an address such as https://login.example.com"
        )
    return url


# Each limit's variable in the environment; docs/operations/running.md explains them.
_LIMITS: Mapping[str, str] = {
    "SERVICE_HEAD_SECONDS": "head_seconds",
    "SERVICE_HEAD_BYTES": "head_bytes",
    "SERVICE_TARGET_BYTES": "target_bytes",
    "SERVICE_BODY_SECONDS": "body_seconds",
    "SERVICE_BODY_RATE": "body_rate",
    "SERVICE_IDLE_SECONDS": "idle_seconds",
    "SERVICE_MOST_CONNECTIONS": "most_connections",
    "SERVICE_MOST_REQUESTS": "most_requests",
}


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """Limits on the resources that clients of one process may hold, and for how long.

    The average rate of a body, not a time limit for the whole, tells slow from stalled: 30 seconds
    would be too few for 16 MiB over a slow line, and far too many for a thousand attackers. With
    8 KiB/s after 10 seconds, the largest beacon of a browser (64 KiB) passes over a line of
    4 KiB/s, and no client holds a place for longer than 138 seconds with 1 MiB.

    Attributes:
        head_seconds: From the connection's opening, or a later request's first byte, to the end
            of the request's head.
        head_bytes: The most bytes of a request's header fields.
        target_bytes: The most bytes of a request's target: path and query.
        body_seconds: How long a body may stall, and from when on its rate counts.
        body_rate: The fewest bytes a second of a body, on average.
        idle_seconds: How long a connection may wait between two requests.
        most_connections: The most connections open at once.
        most_requests: The most requests being answered at once.
    """

    head_seconds: int = 10
    head_bytes: int = 32 * 1024
    target_bytes: int = 8 * 1024
    body_seconds: int = 10
    body_rate: int = 8 * 1024
    idle_seconds: int = 5
    most_connections: int = 2000
    most_requests: int = 1000

    @classmethod
    def from_environment(cls) -> Self:
        """Returns the limits, with those that `SERVICE_*` variables change.

        Raises:
            ValueError: A variable is no positive number; the message names it.
        """
        return cls(
            **{
                limit: _positive(variable, text)
                for variable, limit in _LIMITS.items()
                if (text := os.environ.get(variable))
            }
        )


def _positive(variable: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) == int(text)):
        raise ValueError(f"{variable} must be a whole number above 0")
    return int(text)
