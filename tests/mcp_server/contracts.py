"""Answers of a service: a contract that is decided, one that waits, a listed row, a portfolio."""

from typing import Any

from domain.listing import ListedVerdict

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

# `GET /v1/reward/portfolio` before there is a build to hold back.
NO_PORTFOLIO = {
    "metric": "order",
    "hold_back": None,
    "changes": 0,
    "measurements": [],
    "claimed": 0.0,
    "expected": 0.0,
    "experiment_id": None,
    "decided": None,
    "effect": None,
}


def listed_row(**members: Any) -> dict[str, Any]:
    """An experiment as `GET /v1/reward` lists it."""
    return {
        **dict.fromkeys(ListedVerdict.__struct_fields__),
        "experiment_id": "exp_1",
        "registered_at": "2026-05-02T10:00:00Z",
        "environment": "production",
        "metric": "activation",
        "joint_with": [],
        "contract": WAITING,
        **members,
    }
