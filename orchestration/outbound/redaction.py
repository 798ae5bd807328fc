"""Redaction: an error's line as it may leave the house."""

import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

_LONGEST = 300
_MASK = "…"
# Shorter secrets occur in any text.
_SHORTEST_SECRET = 6
_NAMES = re.compile(r"SECRET|TOKEN|PASSWORD|WEBHOOK|_KEY$")
_SHAPES = (
    # A database quotes the value that it could not take, which may be a person's.
    (re.compile(r'"[^"]*"'), f'"{_MASK}"'),
    # The login of an address and its path may be what opens it.
    (re.compile(r"(\w[\w+.-]*://)(?:\S*@)?([^\s/?#@]*)\S*"), rf"\1\2/{_MASK}"),
    (re.compile(r"(?i)(password\s*[=:]\s*)\S+"), rf"\1{_MASK}"),
    (re.compile(r"\b(wk|pk|rk|ak|whsec)_[A-Za-z0-9+/=]+"), rf"\1_{_MASK}"),
)


def redacted(line: str, environment: Mapping[str, str] = os.environ) -> str:
    """Returns a line without secrets, passwords, paths and values."""
    for secret in _secrets(environment):
        line = line.replace(secret, _MASK)
    for shape, masked in _SHAPES:
        line = shape.sub(masked, line)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}{_MASK}"


def _secrets(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        secrets = [value] if _NAMES.search(name) else _passwords(value)
        yield from (secret for secret in secrets if len(secret) >= _SHORTEST_SECRET)


def _passwords(value: str) -> list[str]:
    """Returns the password of an address, as it stands there and as it is meant."""
    try:
        password = urlsplit(value).password if "://" in value else None
    except ValueError:
        return []
    return [password, unquote(password)] if password else []
