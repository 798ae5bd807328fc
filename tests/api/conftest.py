"""Bodies that each endpoint takes, for tests to vary."""

from typing import Any

import pytest


@pytest.fixture
def runtime_event() -> dict[str, Any]:
    return {"event": "page_view", "session_id": "s-1"}


@pytest.fixture
def revenue_event() -> dict[str, Any]:
    return {
        "event": "trial_to_paid",
        "occurred_at": "2026-01-31T12:00:00Z",
        "amount": {"value": 4900, "currency": "USD"},
        "user_ref": "workspace-17",
        "idempotency_key": "invoice-1",
    }
