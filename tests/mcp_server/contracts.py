"""Answers of a service: a decided contract, a waiting contract, a listed row."""

from typing import Any

from domain.listing import ListedVerdict
from domain.planning.place import Place

KEEP = {
    "experiment_id": "exp_1",
    "lift": 0.0142,
    "confidence": 0.9987,
    "ci": [0.008, 0.0205],
    "verdict": "keep",
    "abstain_reason": None,
    "value_at_risk": 1234.5,
    "cadence": "day",
    "power_state": {"clock": "decided", "decided": True},
    "guardrail_breaches": [],
}
WAITING = KEEP | {
    "lift": None,
    "confidence": None,
    "ci": None,
    "verdict": "abstain",
    "abstain_reason": "power",
    "value_at_risk": None,
    "cadence": None,
    "power_state": {"clock": "open", "decided": False},
}

# The first message of a client of MCP.
HANDSHAKE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}
TOOLS = [
    "register_experiment",
    "place",
    "get_verdict",
    "subscribe",
    "list_experiments",
    "explain",
    "set_up",
    "plan",
]


def listed_row(**members: Any) -> dict[str, Any]:
    """An experiment as `GET /v1/reward` lists it."""
    return {
        **dict.fromkeys(ListedVerdict.__struct_fields__),
        "experiment_id": "exp_1",
        "registered_at": "2026-05-02T10:00:00Z",
        "environment": "production",
        "metric": "activation",
        "joint_with": [],
        "headline": "Can't say yet",
        "action": "wait",
        "by_itself": True,
        "contract": WAITING,
        **members,
    }


# `POST /v1/places` of a change that waits.
QUEUED = {
    **dict.fromkeys(Place.__struct_fields__),
    "place_id": "pl_1",
    "change": "cart",
    "environment": "production",
    "flag": "cart",
    "state": "queued",
    "position": 1,
    "accept_harm": 0.2,
    "patience_hours": 24.0,
    "asked_at": "2026-05-02T10:00:00Z",
    "action": "wait",
    "sentence": "cart waits.",
}
