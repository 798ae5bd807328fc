"""The service's secret, and the pseudonyms that each project derives from it."""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


def service_secret(data_dir: Path | None = None) -> bytes:
    """Returns the secret of `SERVICE_SECRET`, else the one kept in the data directory.

    The database never holds it: a stolen dump names no person. It is made at first use in the
    data directory, readable by its owner alone.

    Raises:
        ValueError: There is neither the variable nor a data directory.
    """
    if value := os.environ.get("SERVICE_SECRET"):
        return value.encode()
    if data_dir is None:
        raise ValueError(
            "SERVICE_SECRET is not set and there is no data directory: user references"
            " cannot be turned into pseudonyms"
        )
    path = data_dir / "secret"
    if not path.exists():
        data_dir.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".secret.{secrets.token_hex(4)}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(48))
        try:
            # A link fails where another process was first; its secret stands.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_bytes()


class Pseudonyms:
    """The pseudonyms of one service: HMAC-SHA-256 under each project's own derived secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._project_secrets: dict[int, bytes] = {}

    def of(self, project_id: int, user_ref: str) -> bytes:
        """Returns the 32 bytes that stand for `user_ref` in `project_id`, and in no other."""
        project_secret = self._project_secrets.get(project_id)
        if project_secret is None:
            # RFC 5869; the label keeps this use apart from any later one of the same secret.
            project_secret = HKDF(
                algorithm=SHA256(),
                length=32,
                salt=None,
                info=f"deploy-reward/user_ref/{project_id}".encode(),
            ).derive(self._secret)
            self._project_secrets[project_id] = project_secret
        return hmac.digest(project_secret, user_ref.encode(), hashlib.sha256)
