"""The service's secret, and each project's keys derived from it: pseudonyms and signatures."""

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import Connection, text

from storage.postgres.data_dir import ACCEPT, loss_word, sync_folder

LEAST_BYTES = 32

_CHECK = text("SELECT secret_check FROM installation")
_BIND = text("UPDATE installation SET secret_check = :own WHERE secret_check IS NULL")
_ACCEPT = text("UPDATE installation SET secret_check = :own")


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


def store_secret(connection: Connection, data_dir: Path | None, *, make: bool = True) -> bytes:
    """Returns the secret of a store, whose pseudonyms and signatures derive from it.

    The database never holds it: a stolen dump names no person. For a new store it is made in the
    data directory, readable by its owner alone.

    Args:
        connection: To the store, in a transaction that is committed.

    Raises:
        SecretError: There is none, or it is not this store's.
    """
    secret = written_secret(data_dir)
    if secret is None:
        where = "SERVICE_SECRET is not set" + (
            "" if data_dir is None else f", and {data_dir} holds no secret"
        )
        if connection.execute(_CHECK).scalar_one_or_none() is not None:
            raise SecretError(f"{where}, but the store was made with one: {_CURE}")
        if data_dir is None or not make:
            raise SecretError(f"{where}: no user reference can be turned into a pseudonym")
        secret = _made_secret(data_dir)
    bind_secret(connection, secret, make=make)
    return secret


_CURE = "restore it from its backup (what a loss means: docs/operations/keeping.md)"


def bind_secret(connection: Connection, secret: bytes, *, make: bool = True) -> None:
    """Binds a secret to a store that has none yet.

    Raises:
        SecretError: The store was made with another.
    """
    # It tells nothing of the secret, nor of what is derived from it for other uses.
    own = hmac.digest(_derived(secret, "deploy-reward/installation"), b"secret", hashlib.sha256)
    if make:
        connection.execute(_BIND, {"own": own})
    bound = connection.execute(_CHECK).scalar_one_or_none()
    if bound is None or hmac.compare_digest(bound, own):
        return
    if word := loss_word(own.hex()):
        raise SecretError(
            f"this is not the secret that the store was made with: {_CURE}; if that is lost for"
            f" good, {ACCEPT}={word} takes this secret in its place"
        )
    connection.execute(_ACCEPT, {"own": own})


def _made_secret(data_dir: Path) -> bytes:
    """Returns a new secret, kept in the data directory; another process's, if it was first."""
    data_dir.mkdir(parents=True, exist_ok=True)
    path = data_dir / "secret"
    draft = path.with_name(f".secret.{secrets.token_hex(4)}")
    draft.touch(mode=0o600, exist_ok=False)
    with draft.open("w") as file:
        file.write(secrets.token_urlsafe(48))
        file.flush()
        os.fsync(file.fileno())
    try:
        # A link fails where another process was first; its secret stands.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    sync_folder(data_dir)
    return written_secret(data_dir) or b""


def _derived(secret: bytes, label: str) -> bytes:
    """Returns 32 bytes that tell nothing of the secret, nor of what another label gives."""
    # RFC 5869; the label keeps each use apart from every other use of the same secret.
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=label.encode()).derive(secret)


class Pseudonyms:
    """The pseudonyms of a service: HMAC-SHA-256 under each project's own derived secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._project_secrets: dict[int, bytes] = {}

    def of(self, project_id: int, user_ref: str) -> bytes:
        """Returns the 32 bytes that stand for `user_ref` in `project_id`, and in no other."""
        project_secret = self._project_secrets.get(project_id)
        if project_secret is None:
            project_secret = _derived(self._secret, f"deploy-reward/user_ref/{project_id}")
            self._project_secrets[project_id] = project_secret
        return hmac.digest(project_secret, user_ref.encode(), hashlib.sha256)


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
    """Returns the token of an assignment: HMAC-SHA-256 in hexadecimal.

    Args:
        key: The assignment key as it is shown; its characters are the key.
    """
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
            key = self._keys[project_id, epoch] = f"ak_{_derived(self._secret, label).hex()}"
        return key

    def is_signed(
        self, project_id: int, token: str, message: bytes, *, epochs: Iterable[int]
    ) -> bool:
        """Returns whether a project's key in force made this token of this assignment.

        Args:
            token: As it came, of any characters.
        """
        token_bytes = token.encode(errors="replace")
        return any(
            hmac.compare_digest(token_bytes, assignment_token(key, message).encode())
            for key in (self.key(project_id, epoch) for epoch in epochs)
        )


# --- Signed webhooks -----------------------------------------------------------------------------


class WebhookSecrets:
    """The keys with which each project's receivers verify webhooks (Standard Webhooks 1.0.0)."""

    _PREFIX = "whsec_"

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, project_id: int) -> str:
        """Returns a project's secret as it is shown, and as verifiers of the standard take it."""
        derived = _derived(self._secret, f"deploy-reward/webhook/{project_id}")
        return self._PREFIX + base64.b64encode(derived).decode()

    def signature(self, project_id: int, *, webhook_id: str, timestamp: int, body: bytes) -> str:
        """Returns the value of `webhook-signature`.

        Args:
            webhook_id: The value of `webhook-id`; holds no full stop.
            timestamp: The value of `webhook-timestamp`: the attempt's time in epoch seconds.
            body: The exact bytes that are sent.
        """
        key = base64.b64decode(self.of(project_id).removeprefix(self._PREFIX))
        content = b".".join((webhook_id.encode(), str(timestamp).encode(), body))
        return "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
