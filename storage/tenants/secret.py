"""The service's secret, and each project's keys derived from it: pseudonyms and signatures."""

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from domain.absence import unit_name
from storage.schema.encoding import PERSON

LEAST_BYTES = 32


class SecretError(ValueError):
    """The service's secret is missing, too short, or not the secret of the store."""


def written_secret(data_dir: Path | None) -> bytes | None:
    """Returns the secret of `SERVICE_SECRET`, else of the data directory; None where neither is.

    Raises:
        SecretError: It is no secret.
    """
    source, value = "SERVICE_SECRET", os.environ.get("SERVICE_SECRET", "").encode()
    if "SERVICE_SECRET" not in os.environ:
        if data_dir is None or not (path := data_dir / "secret").exists():
            return None
        source, value = str(path), path.read_bytes()
    # As a shell's `$(cat secret)` does.
    secret = value.strip()
    if len(secret) < LEAST_BYTES:
        raise SecretError(
            f"{source} holds {len(secret)} bytes, and the service's secret has {LEAST_BYTES} at"
            " least: restore it from its backup"
        )
    return secret


def derived_key(secret: bytes, label: str) -> bytes:
    """Returns 32 bytes that tell nothing of the secret, nor of what another label gives."""
    # RFC 5869; the label keeps each use apart from every other use of the same secret.
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=label.encode()).derive(secret)


class Pseudonyms:
    """The pseudonyms of a service: HMAC-SHA-256 under each project's own derived secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._project_secrets: dict[str, bytes] = {}

    def of(self, project_id: int, value: str, *, unit: str | None = None) -> bytes:
        """Returns the 32 bytes that stand for a user, or a unit by name, in no other project."""
        kind = "user_ref" if unit is None else f"unit/{unit}"
        label = f"deploy-reward/{kind}/{project_id}"
        project_secret = self._project_secrets.get(label)
        if project_secret is None:
            project_secret = derived_key(self._secret, label)
            self._project_secrets[label] = project_secret
        return hmac.digest(project_secret, value.encode(), hashlib.sha256)

    def of_unit(
        self, project_id: int, unit: str, members: Mapping[str, object], *, user: bytes | None
    ) -> tuple[bytes | None, dict[str, object]]:
        """Returns the pseudonym of an event's unit by name, and its members with that of the user.

        Raises:
            ValueError: The member `unit` can name none; the message is the rule.
        """
        name = unit_name(members.get(unit))
        kept: dict[str, object] = {key: value for key, value in members.items() if key != unit}
        kept[PERSON] = None if user is None else user.hex()
        return None if name is None else self.of(project_id, name, unit=unit), kept


# --- Signed assignments --------------------------------------------------------------------------


def assignment_message(
    *, environment: str, session_id: str, commit: str, flags: Mapping[str, str | bool] | None = None
) -> bytes:
    """Returns the message that a router signs: a session, the build that served it, and its flags.

    The parts stand in a row with a NUL between, which no text of an event may hold: no
    two assignments give the same message. The environment is among them, since where a build is
    served to everyone its tokens are there for the asking.

    Args:
        commit: As the session's events name it, in lower case.
        flags: As the session's events name them, in the order of their names' code points.
    """
    parts = ["1", environment, session_id, commit]
    for name, value in sorted((flags or {}).items()):
        parts += [name, str(value).lower() if isinstance(value, bool) else value]
    return "\0".join(parts).encode()


def assignment_token(key: str, message: bytes) -> str:
    """Returns an assignment's token: HMAC-SHA-256 in hex, keyed by the shown key's characters."""
    return hmac.digest(key.encode(), message, hashlib.sha256).hex()


class Assignments:
    """The assignment keys of a service, with which the routers of its projects sign."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._keys: dict[tuple[int, int], str] = {}

    def key(self, project_id: int, epoch: int) -> str:
        """Returns a project's key of that number, as it is shown and used."""
        key = self._keys.get((project_id, epoch))
        if key is None:
            label = f"deploy-reward/assignment/{project_id}/{epoch}"
            key = self._keys[project_id, epoch] = f"ak_{derived_key(self._secret, label).hex()}"
        return key

    def is_signed(
        self, project_id: int, token: str, message: bytes, *, epochs: Iterable[int]
    ) -> bool:
        """Tells whether a project's key in force made this token, any text, of this message."""
        token_bytes = token.encode(errors="replace")
        return any(
            hmac.compare_digest(token_bytes, assignment_token(key, message).encode())
            for key in (self.key(project_id, epoch) for epoch in epochs)
        )


# --- Signed webhooks -----------------------------------------------------------------------------
