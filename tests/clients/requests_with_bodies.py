"""The requests with bodies that every client in use must be able to send."""

import gzip
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.tenants.keys import KeyKind
from storage.tenants.projects import CreatedProject


@dataclass(frozen=True, kw_only=True)
class RequestWithBody:
    """A POST of JSON, and the key that it needs."""

    path: str
    key: str
    document: Any
    encoding: str | None = None

    @property
    def body(self) -> bytes:
        plain = json.dumps(self.document).encode()
        return plain if self.encoding is None else gzip.compress(plain)

    @property
    def headers(self) -> dict[str, str]:
        answer = {"Content-Type": "application/json", "X-Service-Project-Key": self.key}
        return answer if self.encoding is None else answer | {"Content-Encoding": self.encoding}

    def write(self, folder: Path) -> Path:
        file = folder / secrets.token_hex(6)
        file.write_bytes(self.body)
        return file


def requests_with_bodies(project: CreatedProject) -> Sequence[RequestWithBody]:
    """Returns an event, a batch in gzip, a deploy and revenue events, new ones at each call."""
    public, write = project.keys[KeyKind.PUBLIC], project.keys[KeyKind.WRITE]
    event = {"event": "page_view", "session_id": secrets.token_hex(6), "route": "/checkout/[id]"}
    deploy = {
        "commit": {"sha": secrets.token_hex(20), "message": "Ünïcödé"},
        "deployed_at": "2026-01-31T12:00:00Z",
        "graph": {"schema_version": 1, "routes": [{"path": "/checkout/[id]", "files": ["a.tsx"]}]},
        "diff": {"base_commit": "a1b2c3d", "files": [{"filename": "a.tsx", "status": "modified"}]},
    }
    revenue = {
        "event": "trial_to_paid",
        "occurred_at": "2026-01-31T12:00:00Z",
        "amount": {"value": 4900, "currency": "USD"},
        "user_ref": "workspace-17",
        "idempotency_key": secrets.token_hex(6),
    }
    batch = {"events": [event] * 100}
    return (
        RequestWithBody(path="/v1/events", key=public, document=event),
        RequestWithBody(path="/v1/events", key=public, document=batch, encoding="gzip"),
        RequestWithBody(path="/v1/deploys", key=write, document=deploy),
        RequestWithBody(path="/v1/revenue/events", key=write, document=revenue),
    )
