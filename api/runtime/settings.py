"""The settings of an API process, read from the environment at its start."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from storage.tenants.secret import written_secret

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
    # uvicorn's parser of HTTP/1.1.
    http_parser: Literal["h11", "httptools"] = "h11"
    # How long a connection may wait between two requests.
    idle_seconds: int = 5
    # The most connections of a process, or requests that it answers, at once.
    most_connections: int = 2000
    # Rate limits shared by all workers; by default each worker counts for itself.
    redis_url: str | None = field(default=None, repr=False)
    # For how long a project's checklist is kept; a test wants it of now.
    checklist_seconds: float = 60.0

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
        secret = written_secret(Path(data_dir).expanduser() if data_dir else None)
        if secret is None:
            raise ValueError(
                "SERVICE_SECRET is not set and the data directory holds no secret: user references"
                " cannot be turned into pseudonyms"
            )
        named = os.environ.get("SERVICE_MCP_HOSTS", "").split(",")
        hosts = frozenset(host.strip().lower() for host in named if host.strip())
        if any(not _HOST.fullmatch(host) for host in hosts):
            raise ValueError(
                "SERVICE_MCP_HOSTS must name hosts, without scheme and port, separated by commas"
            )
        return cls(
            database_url=database_url,
            secret=secret,
            public_url=os.environ.get("SERVICE_PUBLIC_URL") or None,
            agent_hosts=hosts,
            oauth_issuer=_issuer(os.environ.get("SERVICE_OAUTH_ISSUER") or None),
            http_parser=_parser(os.environ.get("SERVICE_HTTP_PARSER") or cls.http_parser),
            idle_seconds=_positive("SERVICE_IDLE_SECONDS", default=cls.idle_seconds),
            most_connections=_positive("SERVICE_MOST_CONNECTIONS", default=cls.most_connections),
            redis_url=os.environ.get("SERVICE_REDIS_URL") or None,
        )


def _issuer(url: str | None) -> str | None:
    parts = urlsplit(url or "")
    if url is not None and (
        parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment
    ):
        raise ValueError(
            "SERVICE_OAUTH_ISSUER must be an address such as https://login.example.com"
        )
    return url


def _parser(name: str) -> Literal["h11", "httptools"]:
    if name not in ("h11", "httptools"):
        raise ValueError("SERVICE_HTTP_PARSER must be h11 or httptools")
    return name


def _positive(variable: str, *, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) == int(text)):
        raise ValueError(f"{variable} must be a whole number above 0")
    return int(text)
