"""The evidence behind a verdict, cut to one kilobyte."""

import json
import math
from typing import Any

from mcp_server.contract import Effect, Explanation, Progress

LONGEST_BYTES = 1024
SENTENCE_BYTES = 280
FAULT_BYTES = 160


def explanation(experiment_id: str, evidence: dict[str, Any], checklist: object) -> Explanation:
    """Returns the evidence, the progress of the traffic, and the failed set-up checks.

    Args:
        experiment_id: The experiment.
        evidence: The body of `GET /v1/reward/{experiment_id}/evidence`.
        checklist: The body of `GET /v1/reward/checklist`, or None where it could not be read.

    Returns:
        An explanation of at most 1,024 bytes as JSON; `left_out` counts what did not fit.
    """
    whole = Explanation(
        experiment_id=experiment_id,
        sentence=_sentence(evidence.get("sentence")),
        known=_sentence(_object(evidence.get("known")).get("sentence")),
        effect=effect(evidence),
        progress=progress(evidence),
        warnings=_lines(evidence.get("warnings")),
        faults=_faults(checklist),
        left_out=0,
    )
    return _fitted(whole)


def _fitted(whole: Explanation) -> Explanation:
    """The explanation with as many warnings and faults, faults last, as fit."""
    warnings, faults = list(whole.warnings), whole.faults and list(whole.faults)
    fitted, left_out = whole, 0
    while len(as_json(fitted.model_dump())) > LONGEST_BYTES and (warnings or faults):
        (warnings or faults or []).pop()
        left_out += 1
        fitted = whole.model_copy(
            update={"warnings": list(warnings), "faults": faults, "left_out": left_out}
        )
    return fitted


def progress(evidence: dict[str, Any]) -> Progress:
    """How far the traffic has come, by the same evidence."""
    sessions = _object(evidence.get("sessions"))
    decision = sessions.get("projected_decision_at")
    return Progress(
        accumulated=_number(sessions.get("accumulated")),
        required=_whole(sessions.get("required")),
        per_day=_whole(sessions.get("per_day")),
        projected_decision_at=decision[:40] if isinstance(decision, str) else None,
    )


def effect(evidence: dict[str, Any]) -> Effect | None:
    """The best estimate of the effect; None where there is none, or it is no estimate."""
    member = _object(evidence.get("effect"))
    estimate, error = _number(member.get("estimate")), _number(member.get("standard_error"))
    if estimate is None or error is None:
        return None
    return Effect(
        estimate=_rounded(estimate),
        standard_error=_rounded(error),
        relative=None
        if (relative := _number(member.get("relative"))) is None
        else _rounded(relative),
        final=member.get("final") is True,
    )


def _rounded(number: float) -> float:
    """The number in six digits: no more of it are known."""
    return float(f"{number:.6g}")


def _faults(checklist: object) -> list[str] | None:
    """The checks that failed, each with its fix."""
    if not isinstance(checklist, list):
        return None
    failed = [check for check in map(_object, checklist) if check.get("ok") is False]
    return _lines([f"{check.get('check', '')}: {check.get('fix', '')}" for check in failed])


def _lines(value: object) -> list[str]:
    return [cut(str(line), FAULT_BYTES) for line in value] if isinstance(value, list) else []


def _sentence(value: object) -> str | None:
    return cut(value, SENTENCE_BYTES) if isinstance(value, str) else None


def cut(text: str, longest: int) -> str:
    """The text, or as much of it as fits in so many bytes of JSON, with an ellipsis."""
    if len(as_json(text)) <= longest:
        return text
    while len(as_json(f"{text}…")) > longest:
        text = text[: min(len(text) - 1, longest)]
    return f"{text}…"


def as_json(value: object) -> bytes:
    """The value as it goes over the wire."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _number(value: object) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int | float | None:
    """The number rounded up: there is no half a session."""
    number = _number(value)
    return math.ceil(number) if isinstance(number, float) and math.isfinite(number) else number


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
