"""The secret of a store: made for a new store, bound to it, and refused where it is another's."""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from sqlalchemy import Connection, text

from storage.postgres.data_dir import ACCEPT, loss_word, sync_folder
from storage.tenants.secret import SecretError, derived_key, written_secret

_CHECK = text("SELECT secret_check FROM installation")
_BIND = text("UPDATE installation SET secret_check = :own WHERE secret_check IS NULL")
_ACCEPT = text("UPDATE installation SET secret_check = :own")
_CURE = "restore it from its backup (what a loss means: docs/operations/keeping.md)"


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


def bind_secret(connection: Connection, secret: bytes, *, make: bool = True) -> None:
    """Binds a secret to a store that has none yet.

    Raises:
        SecretError: The store was made with another.
    """
    # It tells nothing of the secret, nor of what is derived from it for other uses.
    own = hmac.digest(derived_key(secret, "deploy-reward/installation"), b"secret", hashlib.sha256)
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
