"""The verdict contract: ten members in the seed's order, the same wherever it is read."""

import json
from collections.abc import Sequence
from typing import Any

MEMBERS = (
    "experiment_id",
    "lift",
    "confidence",
    "ci",
    "verdict",
    "abstain_reason",
    "value_at_risk",
    "cadence",
    "power_state",
    "guardrail_breaches",
)


def contract(
    experiment_id: str,
    *,
    verdict: str,
    abstain_reason: str | None,
    decided: bool,
    lift: float | None = None,
    confidence: float | None = None,
    ci: Sequence[float] | None = None,
    value_at_risk: float | None = None,
    cadence: str | None = None,
    guardrail_breaches: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns the contract of an experiment.

    Raises:
        ValueError: The members contradict one another; such a verdict must not be published.
    """
    if verdict == "keep" and guardrail_breaches:
        raise ValueError(f"keep with breaches {list(guardrail_breaches)}: that is iterate")
    if (verdict == "abstain") != (abstain_reason is not None):
        raise ValueError(f"{verdict} with abstain_reason {abstain_reason}")
    if verdict == "abstain" and (lift, confidence, ci) != (None, None, None):
        raise ValueError("an abstention carries neither lift nor confidence nor ci")
    return {
        "experiment_id": experiment_id,
        "lift": lift,
        "confidence": confidence,
        "ci": None if ci is None else list(ci),
        "verdict": verdict,
        "abstain_reason": abstain_reason,
        "value_at_risk": value_at_risk,
        "cadence": cadence,
        "power_state": {"clock": "decided" if decided else "open", "decided": decided},
        "guardrail_breaches": list(guardrail_breaches),
    }


def waiting_contract(experiment_id: str, *, decided: bool = False) -> dict[str, Any]:
    """Returns the contract of an experiment of which nothing is known yet."""
    return contract(experiment_id, verdict="abstain", abstain_reason="power", decided=decided)


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def document_text(document: object) -> str:
    """Returns the bytes that a document is stored, compared and served as.

    Raises:
        ValueError: A number is not finite: JSON has no word for it.
    """
    return _ENCODER.encode(document)
