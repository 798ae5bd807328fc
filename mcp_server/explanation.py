"""The evidence behind a verdict, cut to a kilobyte."""

import json
import math
from collections.abc import Sequence
from typing import Any

from mcp_server.contract import Effect, Explanation, Metric, Progress
from mcp_server.registration import note_of, rebase_of

LONGEST_BYTES = 1024
SENTENCE_BYTES = 280
FAULT_BYTES = 160
NAME_BYTES = 60


def explanation(
    experiment_id: str, evidence: dict[str, Any], checklist: object, registration: object = None
) -> Explanation:
    """Returns the evidence, the progress of the traffic, and the failed set-up checks.

    Args:
        evidence: The body of `GET /v1/reward/{experiment_id}/evidence`.
        checklist: The body of `GET /v1/reward/checklist`, or None where it could not be read.
        registration: The body of `GET /v1/reward/{experiment_id}/registration`, or None.

    Returns:
        An explanation of at most 1,024 bytes as JSON; `left_out` counts what did not fit.
    """
    notes = [note] if (note := note_of(registration)) is not None else []
    whole = Explanation(
        experiment_id=experiment_id,
        sentence=_sentence(evidence.get("sentence")),
        known=_sentence(_object(evidence.get("known")).get("sentence")),
        effect=effect(evidence),
        metrics=_metrics(evidence.get("metrics")),
        rebase=rebase_of(registration),
        progress=progress(evidence),
        warnings=[*_lines(notes), *_lines(evidence.get("warnings"))],
        faults=_faults(checklist),
        left_out=0,
    )
    return _fitted(whole)


def _fitted(whole: Explanation) -> Explanation:
    """The explanation with as many warnings, faults and metrics as fit.

    The least telling go first: unharmed guardrails, warnings, faults, then the other metrics.
    """
    metrics, warnings = list(whole.metrics), list(whole.warnings)
    faults = whole.faults and list(whole.faults)
    fitted, left_out = whole, 0
    while len(as_json(fitted.model_dump())) > LONGEST_BYTES:
        if (quiet := _last_quiet(metrics)) is not None:
            del metrics[quiet]
        elif rest := (warnings or faults or metrics):
            rest.pop()
        else:
            break
        left_out += 1
        fitted = whole.model_copy(
            update={
                "metrics": list(metrics),
                "warnings": list(warnings),
                "faults": faults,
                "left_out": left_out,
            }
        )
    return fitted


def _last_quiet(metrics: Sequence[Metric]) -> int | None:
    """The number of the last guardrail that is not breached."""
    quiet = [n for n, row in enumerate(metrics) if n > 0 and row.state != "breached"]
    return quiet[-1] if quiet else None


def _metrics(rows: object) -> list[Metric]:
    """The target's row and those of the guardrails; breached ones come next to it."""
    if not isinstance(rows, list):
        return []
    metrics = [_metric(row) for row in map(_object, rows)]
    breached = [row.state == "breached" for row in metrics]
    first = [row for n, row in enumerate(metrics) if n == 0 or breached[n]]
    return first + [row for n, row in enumerate(metrics) if n > 0 and not breached[n]]


def _metric(row: dict[str, Any]) -> Metric:
    ends = row.get("interval")
    numbers = [_number(end) for end in ends] if isinstance(ends, list) else []
    known = [_rounded(end, 4) for end in numbers if end is not None]
    return Metric(
        metric=cut(str(row.get("metric", "")), NAME_BYTES),
        state=cut(str(row.get("state", "not_known")), NAME_BYTES),
        control=_short(row.get("control")),
        treatment=_short(row.get("treatment")),
        interval=(known[0], known[1]) if len(known) == 2 else None,
    )


def _short(value: object) -> float | None:
    return None if (number := _number(value)) is None else _rounded(number, 4)


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
        basis=cut(str(member.get("basis", "open")), NAME_BYTES),
    )


def is_decided(evidence: dict[str, Any]) -> bool:
    """Whether the evidence is that of a decided verdict."""
    return _object(evidence.get("effect")).get("final") is True


def _rounded(number: float, digits: int = 6) -> float:
    """The number in six digits, or fewer: no more of it are known."""
    return float(f"{number:.{digits}g}")


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
