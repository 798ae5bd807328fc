"""The evidence behind a verdict, cut to a kilobyte."""

import json
import math
from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct, structs

from domain.evidence.counts import Sessions
from domain.evidence.document import AnyEvidence, Evidence
from domain.evidence.effect import Effect
from domain.evidence.results import MetricRow
from domain.lineage import control_state
from domain.registration import RegistrationAnswer
from domain.wording.registration import registration_note
from mcp_server.contract import BaseMove, Explanation, SetUp, shown

ShapeT = TypeVar("ShapeT", Explanation, SetUp)

LONGEST_BYTES = 1024
SENTENCE_BYTES = 280
KNOWN_BYTES = 210
FAULT_BYTES = 160
NAME_BYTES = 60
# Of a rebase; the evidence names all of them.
_MOST_CHANGES = 3


def explanation(
    evidence: AnyEvidence,
    checklist: object,
    registration: RegistrationAnswer | None = None,
    *,
    effect: Effect | None = None,
) -> Explanation:
    """Returns the evidence, the progress of the traffic, and the failed set-up checks.

    Args:
        evidence: The answer of `GET /v1/reward/{experiment_id}/evidence`.
        checklist: The body of `GET /v1/reward/checklist`, or None where it could not be read.
        registration: The answer of `GET /v1/reward/{experiment_id}/registration`, or None.
        effect: The effect as it was measured since; None where that is the evidence's own.

    Returns:
        An explanation of at most 1,024 bytes as JSON; `left_out` counts what did not fit.
    """
    note = None if registration is None else registration_note(registration, looked_at=True)
    moved = None if registration is None else registration.base_moved
    numbers = evidence if isinstance(evidence, Evidence) else None
    known = None if numbers is None else numbers.known.sentence
    best = effect or (None if numbers is None else numbers.effect)
    whole = Explanation(
        experiment_id=evidence.experiment_id,
        attempt=None if numbers is None else numbers.policy.attempt,
        sentence=cut(evidence.sentence, SENTENCE_BYTES),
        known=None if known is None else cut(known, KNOWN_BYTES),
        effect=None if best is None else _effect(best),
        metrics=() if numbers is None else _metrics(numbers.metrics),
        rebase=None if moved is None else _rebase(moved),
        progress=progress(numbers),
        warnings=_lines([*([] if note is None else [note]), *evidence.warnings]),
        faults=_faults(checklist, evidence.experiment_id),
        left_out=0,
    )
    # The least telling go first: unharmed guardrails, warnings, faults, then the other metrics.
    telling = 1 + sum(row.state == "breached" for row in whole.metrics[1:])
    return fitted(fitted(whole, metrics=telling), warnings=0, faults=0, metrics=0)


def fitted(whole: ShapeT, **least: int) -> ShapeT:
    """The shape in a kilobyte: its lists lose their last entries, the first list before the next.

    Args:
        whole: A shape whose `left_out` counts these entries.
    """
    for name, kept in least.items():
        while len(getattr(whole, name) or ()) > kept and not fits(whole):
            rest = {name: getattr(whole, name)[:-1], "left_out": whole.left_out + 1}
            whole = structs.replace(whole, **rest)
    return whole


def fits(answer: Struct) -> bool:
    """Tells whether an answer is at most a kilobyte of JSON."""
    return len(as_json(shown(answer))) <= LONGEST_BYTES


def _metrics(rows: Sequence[MetricRow]) -> tuple[MetricRow, ...]:
    """The target's row and those of the guardrails; breached ones come next to it."""
    guardrails = sorted(rows[1:], key=lambda row: row.state != "breached")
    return tuple(map(_metric, (*rows[:1], *guardrails)))


def _metric(row: MetricRow) -> MetricRow:
    low, high = row.interval or (None, None)
    return structs.replace(
        row,
        metric=cut(row.metric, NAME_BYTES),
        control=row.control and rounded(row.control, 4),
        treatment=row.treatment and rounded(row.treatment, 4),
        interval=None if low is None or high is None else (rounded(low, 4), rounded(high, 4)),
    )


def _rebase(moved: control_state.BaseMove) -> BaseMove:
    changes = tuple(change[:64] for change in moved.changes[:_MOST_CHANGES])
    return BaseMove(on=moved.rebase_on[:64], changes=changes, continues=moved.continues)


def progress(evidence: Evidence | None) -> Sessions | None:
    """How far the traffic has come; None for an experiment that ended before it was computed."""
    if evidence is None:
        return None
    sessions = evidence.sessions
    return structs.replace(
        sessions, required=_whole(sessions.required), per_day=_whole(sessions.per_day)
    )


def _effect(effect: Effect) -> Effect | None:
    """The best estimate of the effect; None where there is none, or it is no estimate."""
    estimate, error, relative = effect.estimate, effect.standard_error, effect.relative
    likelihood = effect.likelihood
    if estimate is None or error is None:
        return None
    return structs.replace(
        effect,
        estimate=rounded(estimate),
        standard_error=rounded(error),
        relative=relative and rounded(relative),
        likelihood=likelihood
        and structs.replace(
            likelihood,
            estimate=rounded(likelihood.estimate),
            standard_error=rounded(likelihood.standard_error),
        ),
    )


def rounded(number: float, digits: int = 6) -> float:
    """The number in six digits, or fewer: no more of it are known."""
    return float(f"{number:.{digits}g}")


def _faults(checklist: object, experiment_id: str) -> tuple[str, ...] | None:
    """The checks that this experiment fails, each with its fix: `set_up` has the project's."""
    if not isinstance(checklist, list):
        return None
    checks = [check for check in checklist if isinstance(check, dict)]
    own = [check for check in checks if check.get("experiment_id") == experiment_id]
    failed = [check for check in own if check.get("ok") is False]
    return _lines([f"{check.get('check', '')}: {check.get('fix', '')}" for check in failed])


def _lines(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(cut(line, FAULT_BYTES) for line in lines)


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


def _whole(number: float | None) -> int | None:
    """The number rounded up: there is no half a session."""
    return None if number is None else math.ceil(number)
