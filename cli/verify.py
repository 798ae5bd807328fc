"""`verify`: checks the attestation of a verdict, without the service that signed it."""

import base64
import hashlib
import os
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from cli.changes.outcome import Exit
from domain.contract import Contract
from domain.document import time_text
from domain.evidence.attestation import PAYLOAD_TYPE, Envelope, Statement, signed_message
from domain.words import AbstainReason, Verdict

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_public_key,
    )
except ModuleNotFoundError:
    # The client holds it with an extra of its own.
    raise click.ClickException("verify needs deploy-reward-client[verify]") from None

KEY_PATH = "/.well-known/deploy-reward-key"
_LEAST_ID = 7
_SECONDS = 10.0


class AttestationError(click.ClickException):
    """A file that holds no attestation of a verdict."""


class Refused(IntEnum):
    """Exit codes for an attestation that is not to be used."""

    FORGED = 20
    OTHER_SERVICE = 21
    EXPIRED = 22
    OTHER_VERDICT = 23


class RefusedError(click.ClickException):
    """The attestation is not to be used; the exit code says why."""

    def __init__(self, reason: Refused, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """The exit code of the process."""
        return self.reason


@click.command("verify")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"The service's public key, PEM; by default SERVICE_API_URL is asked for {KEY_PATH}.",
)
@click.option("--commit", help="Also require that the verdict is on this commit.")
@click.option("--project", help="Also require that it is of this project, by name.")
@click.option("--environment", help="Also require that it is of this environment.")
@click.option("--metric", help="Also require that it is on this target metric.")
@click.option("--json", "as_json", is_flag=True, help="Print the statement.")
def verify(
    file: BinaryIO, key: Path | None, commit: str | None, as_json: bool, **required: str | None
) -> None:
    """Check the attestation of a verdict, and exit with the verdict.

    \b
     0  keep
    10  rollback
    11  iterate
    12  closed without a verdict
    13  a guardrail is breached while the verdict abstains
    14  not decided yet
    15  non_identifiable or interacting
    20  forged or altered
    21  signed by another service
    22  expired
    23  on another commit, project, environment or metric

    1 says that FILE holds no attestation or that there is no key, 2 that the command was called
    wrongly.
    """  # noqa: D301 - click reads the character, by which it keeps the table's lines
    statement = _statement(_envelope(file.read()), _public_key(key))
    _require_fresh(statement)
    if commit is not None:
        _require_commit(statement, commit)
    for name, value in required.items():
        stated = getattr(statement.predicate, name)
        if value not in (None, stated):
            raise RefusedError(Refused.OTHER_VERDICT, f"its {name} is {stated}, not {value}")
    click.echo(statement.encoded() if as_json else _sentence(statement))
    raise SystemExit(_exit(statement.predicate.contract))


def _envelope(text: bytes) -> Envelope:
    try:
        return msgspec.json.decode(text, type=Envelope)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise AttestationError(f"no DSSE envelope: {error}") from None


def _bytes_of(text: str) -> bytes:
    """Returns base64, of either alphabet as DSSE demands it, as bytes."""
    try:
        return base64.b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)
    except ValueError:
        raise AttestationError("the envelope's base64 is broken") from None


def _statement(signed: Envelope, key: Ed25519PublicKey) -> Statement:
    """Returns the statement that a key signed."""
    payload, own, hints = _bytes_of(signed.payload), _keyid(key), list[str]()
    for each in signed.signatures:
        try:
            # The hint is not signed, so that each signature is tried.
            key.verify(_bytes_of(each.sig), signed_message(payload, kind=signed.kind))
        except InvalidSignature:
            hints.append(each.keyid)
        else:
            return _stated(payload, signed.kind)
    if hints and own not in hints:
        raise RefusedError(
            Refused.OTHER_SERVICE,
            f"signed by another service: by key {hints[0][:12]}, and not by {own[:12]}",
        )
    raise RefusedError(Refused.FORGED, "forged or altered: the signature is not the service's")


def _stated(payload: bytes, kind: str) -> Statement:
    try:
        if kind != PAYLOAD_TYPE:
            raise AttestationError(f"its payload is no {PAYLOAD_TYPE}")
        return msgspec.json.decode(payload, type=Statement)
    except msgspec.MsgspecError as error:
        raise AttestationError(f"no statement on a verdict: {error}") from None


def _keyid(key: Ed25519PublicKey) -> str:
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _public_key(path: Path | None) -> Ed25519PublicKey:
    """Returns the key of a file, or of the service that the environment names."""
    source = path or f"{os.environ.get('SERVICE_API_URL', '').strip().rstrip('/')}{KEY_PATH}"
    pem = path.read_bytes() if path else _served_key(str(source))
    try:
        key = load_pem_public_key(pem)
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise click.ClickException(f"{source} holds no public key of Ed25519 in PEM")
    return key


def _served_key(address: str) -> bytes:
    if address == KEY_PATH:
        raise click.UsageError("name the service's key: --key FILE, or set SERVICE_API_URL")
    import httpx2  # noqa: PLC0415 - where a file holds the key, nothing is asked

    try:
        return httpx2.get(address, timeout=_SECONDS).raise_for_status().content
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise click.ClickException(f"the service's key cannot be had: {error}") from None


def _require_fresh(statement: Statement) -> None:
    expires = statement.predicate.expires
    if datetime.now(UTC) >= expires:
        raise RefusedError(
            Refused.EXPIRED, f"expired {time_text(expires)}: fetch the attestation again"
        )


def _require_commit(statement: Statement, commit: str) -> None:
    if len(commit) < _LEAST_ID:
        raise click.UsageError(f"--commit {commit}: name {_LEAST_ID} digits at least")
    # No shorter id than the given: another commit may begin with it.
    if statement.commit is None or not statement.commit.startswith(commit.lower()):
        subject = ", ".join(each.name for each in statement.subject)
        raise RefusedError(Refused.OTHER_VERDICT, f"the verdict is on {subject}, not on {commit}")


def _exit(contract: Contract) -> Exit:
    """Returns the exit code of `wait` for the same contract."""
    ends = {Verdict.KEEP: Exit.KEEP, Verdict.ROLLBACK: Exit.ROLLBACK, Verdict.ITERATE: Exit.ITERATE}
    if contract.verdict in ends:
        return ends[contract.verdict]
    if contract.guardrail_breaches:
        return Exit.BREACHED
    if contract.abstain_reason is not AbstainReason.POWER:
        return Exit.FAULT
    return Exit.CLOSED if contract.decided else Exit.TIMEOUT


def _sentence(statement: Statement) -> str:
    verdict = statement.predicate
    contract = verdict.contract
    reason = f" ({contract.abstain_reason})" if contract.abstain_reason else ""
    final = "final" if contract.decided else "not decided yet"
    of = f"{statement.subject[0].name} on {verdict.metric} in {verdict.environment}"
    of += f" of project {verdict.project}"
    of += "; on history, a hint alone" if verdict.retrospective else ""
    until = f"{contract.experiment_id}; valid until {time_text(verdict.expires)}"
    return f"{contract.verdict}{reason}, {final}: {of}, {until}"
