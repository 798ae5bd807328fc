"""Contracts as a service answers them: one that is decided, one that waits, and a portfolio."""

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
