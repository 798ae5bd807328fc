"""An attestation: a published verdict as an in-toto statement in a DSSE envelope."""

import base64
import hashlib
from datetime import timedelta
from typing import Annotated, Literal, Self

from msgspec import Meta

from domain.contract import Contract
from domain.document import Document, Moment, document_text

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT, _VERDICT = "https://in-toto.io/Statement/v1", "urn:deploy-reward:verdict:v1"
VALID_FOR = timedelta(days=7)
# Lengths of the ids of commits in Git, by SHA-1 and by SHA-256.
_WHOLE_IDS = (40, 64)


class Digest(Document, frozen=True, kw_only=True, rename={"commit": "gitCommit"}):
    """A digest in hexadecimal, by its kind."""

    sha256: str | None = None
    commit: Annotated[str | None, Meta(description="A commit's whole id.")] = None


class Subject(Document, frozen=True, kw_only=True):
    """The subject: a commit, a flag's value, or an experiment without either."""

    name: str
    digest: Digest

    @classmethod
    def of(cls, *, commit: str | None, flag: str | None, experiment_id: str) -> Self:
        """Returns the subject; where the name is no digest itself, the SHA-256 of the name."""
        name = f"flag:{flag}" if flag else f"commit:{commit}" if commit else experiment_id
        if commit and not flag and len(commit) in _WHOLE_IDS:
            return cls(name=name, digest=Digest(commit=commit))
        return cls(name=name, digest=Digest(sha256=hashlib.sha256(name.encode()).hexdigest()))


class LogExtent(Document, frozen=True, kw_only=True):
    """The part of the log that the verdict rests on."""

    since: Annotated[Moment, Meta(description="When exposure began.")]
    until: Annotated[Moment, Meta(description="The look.")]


class AttestedVerdict(Document, frozen=True, kw_only=True):
    """The predicate: a verdict, its grounds, and the end of the statement's use."""

    contract: Contract
    project: Annotated[str, Meta(description="The project's name: one key signs for all.")]
    environment: str
    metric: str
    change: tuple[str, ...]
    evidence: Annotated[Digest | None, Meta(description="The evidence's `digest`.")]
    policy: Annotated[Digest | None, Meta(description="SHA-256 of the frozen policy.")]
    retrospective: Annotated[bool, Meta(description="As the evidence says it: a hint alone.")]
    log: Annotated[LogExtent | None, Meta(description="Null before the first look.")]
    issued_at: Moment
    expires: Moment


class Statement(
    Document, frozen=True, kw_only=True, rename={"kind": "_type", "predicate_type": "predicateType"}
):
    """An in-toto statement, version 1, on a verdict."""

    kind: Literal["https://in-toto.io/Statement/v1"]
    subject: tuple[Subject, ...]
    predicate_type: Literal["urn:deploy-reward:verdict:v1"]
    predicate: AttestedVerdict

    @classmethod
    def on(cls, verdict: AttestedVerdict, subject: Subject) -> Self:
        """Returns the statement that a verdict is a subject's."""
        return cls(kind=_STATEMENT, subject=(subject,), predicate_type=_VERDICT, predicate=verdict)

    def encoded(self) -> bytes:
        """Returns the payload of an envelope."""
        return document_text(self).encode()

    @property
    def commit(self) -> str | None:
        """The commit that it is about; None of a flag, or of an experiment without a deploy."""
        names = [subject.name for subject in self.subject]
        return next((name[7:] for name in names if name.startswith("commit:")), None)


class Signature(Document, frozen=True, kw_only=True):
    """A signature of an envelope: base64, with a hint at its key."""

    keyid: str = ""
    sig: str


class Envelope(Document, frozen=True, kw_only=True, rename={"kind": "payloadType"}):
    """A DSSE envelope: the statement in base64, and its signatures."""

    payload: str
    kind: str
    signatures: tuple[Signature, ...]


def signed_message(payload: bytes, *, kind: str = PAYLOAD_TYPE) -> bytes:
    """Returns the bytes that a signature of a payload is made over."""
    name = kind.encode()
    return b"DSSEv1 %d %b %d %b" % (len(name), name, len(payload), payload)


def envelope(payload: bytes, *, keyid: str, signature: bytes) -> Envelope:
    """Returns a signed payload as it is handed on."""
    signed = Signature(keyid=keyid, sig=base64.b64encode(signature).decode())
    return Envelope(
        payload=base64.b64encode(payload).decode(), kind=PAYLOAD_TYPE, signatures=(signed,)
    )
