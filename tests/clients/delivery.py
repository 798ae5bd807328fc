"""Deliveries: what a client sends until it is acknowledged, each part with a name of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from storage.tenants.keys import KeyKind

CONTROL, TREATMENT = "c0ffee0", "decade1"
_BEGAN = "2026-01-31T12:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Kind:
    path: str
    key: KeyKind
    size: int
    body: Callable[[Sequence[str]], dict[str, Any]]


@dataclass(kw_only=True)
class Delivery:
    """A body that a client sends until it is acknowledged."""

    kind: Kind
    names: Sequence[str]
    attempts: int = 0
    acknowledged: bool = False

    @property
    def body(self) -> dict[str, Any]:
        return self.kind.body(self.names)

    @property
    def parts(self) -> Sequence[dict[str, Any]]:
        """The body's events, or the body itself."""
        return self.body.get("events", [self.body])


def amount_of(name: str) -> int:
    """A number that belongs to this name alone: a row that mixes two deliveries shows."""
    return int(name, 16)


def converts(name: str) -> bool:
    return amount_of(name) % 3 == 0


def session(name: str) -> list[dict[str, Any]]:
    """What a browser tells: an exposure, and of each third session an order."""
    arm = TREATMENT if amount_of(name) % 2 else CONTROL
    answer = {"session_id": name, "commit": arm, "user_ref": name}
    page_view = {**answer, "event": "page_view", "event_id": f"view-{name}"}
    order = {**answer, "event": "order", "event_id": f"order-{name}", "value": amount_of(name)}
    return [page_view, order] if converts(name) else [page_view]


def _view(names: Sequence[str]) -> dict[str, Any]:
    return session(names[0])[0]


def _sessions(names: Sequence[str]) -> dict[str, Any]:
    return {"events": [event for name in names for event in session(name)]}


def _invoices(names: Sequence[str]) -> dict[str, Any]:
    return {
        "events": [
            {
                "event": "trial_to_paid",
                "occurred_at": _BEGAN,
                "user_ref": name,
                "idempotency_key": name,
                "amount": {"value": amount_of(name), "currency": "USD"},
            }
            for name in names
        ]
    }


def _deploy(names: Sequence[str]) -> dict[str, Any]:
    [name] = names
    return {"commit": {"sha": name}, "environment": name, "deployed_at": _BEGAN}


VIEWS = Kind(path="/v1/events", key=KeyKind.PUBLIC, size=1, body=_view)
SESSIONS = Kind(path="/v1/events", key=KeyKind.PUBLIC, size=20, body=_sessions)
INVOICES = Kind(path="/v1/revenue/events", key=KeyKind.WRITE, size=10, body=_invoices)
DEPLOYS = Kind(path="/v1/deploys", key=KeyKind.WRITE, size=1, body=_deploy)
