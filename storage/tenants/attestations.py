"""The signature of a verdict that is handed on, by a key that derives from the service's secret."""

import base64
import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from domain.evidence.attestation import Envelope, Statement, envelope, signed_message
from storage.tenants.secret import derived_key


class Attestations:
    """The key by which the service signs verdicts; it is derived, so its loss is the secret's."""

    def __init__(self, secret: bytes) -> None:
        derived = derived_key(secret, "deploy-reward/attestation")
        self._key = Ed25519PrivateKey.from_private_bytes(derived)
        public = self._key.public_key()
        self.public_key = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self._keyid = hashlib.sha256(der).hexdigest()

    def signed(self, statement: Statement) -> Envelope:
        """Returns a statement in a DSSE envelope with the service's signature."""
        payload = statement.encoded()
        signature = self._key.sign(signed_message(payload))
        return envelope(payload, keyid=self._keyid, signature=signature)


class WebhookSecrets:
    """The keys with which each project's receivers verify webhooks (Standard Webhooks 1.0.0)."""

    _PREFIX = "whsec_"

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, project_id: int) -> str:
        """Returns a project's secret as it is shown, and as verifiers of the standard take it."""
        derived = derived_key(self._secret, f"deploy-reward/webhook/{project_id}")
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
