"""The explanation of a verdict: its evidence, and the set-up checks that its experiment fails."""

import json
from typing import Any

import msgspec
from msgspec import structs

from domain.checklist.line import ChecklistLine
from domain.evidence.document import AnyEvidence, Evidence
from domain.evidence.effect import Effect
from domain.evidence.results import MetricRow
from domain.registration import RegistrationAnswer
from domain.wording.registration import registration_note
from mcp_server.contract import shown

LONGEST_BYTES = 4096
# A rebase names at least so many changes; the registration names all of them.
_LEAST_CHANGES = 3


def explanation(
    evidence: AnyEvidence,
    faults: tuple[ChecklistLine, ...] | None,
    registration: RegistrationAnswer | None = None,
    *,
    effect: Effect | None = None,
) -> dict[str, object]:
    """Returns an `Explanation` as an agent gets it, in at most 4 KiB.

    Args:
        faults: The failed checks of the experiment; None where they could not be read.
        registration: None where it could not be read.
        effect: The effect as it was measured since; None where that is the evidence's own.
    """
    note = None if registration is None else registration_note(registration, looked_at=True)
    fresh: dict[str, Any] = {"warnings": (*([note] if note else []), *evidence.warnings)}
    telling = 0
    if isinstance(evidence, Evidence):
        rows = sorted(evidence.metrics, key=_is_calm)
        telling = len(rows) - sum(map(_is_calm, rows))
        moved = evidence.base_moved if registration is None else registration.base_moved
        fresh |= {"metrics": tuple(rows), "base_moved": moved}
        fresh |= {"effect": effect or evidence.effect}
    said = shown(structs.replace(evidence, **fresh))
    answer: dict[str, Any] = {"evidence": said, "faults": shown(faults), "left_out": 0}
    metrics, moved = said.get("metrics", []), said.get("base_moved") or {"changes": []}
    # The least telling go first: unharmed guardrails, warnings, faults, then the other metrics.
    lists = [(metrics, telling), (moved["changes"], _LEAST_CHANGES), (said["warnings"], 0)]
    return fitted(answer, *lists, (answer["faults"] or [], 0), (metrics, 0))


def _is_calm(row: MetricRow) -> bool:
    """Tells whether a row is a guardrail's that is not breached."""
    return row.role == "guardrail" and row.state != "breached"


def fitted(answer: dict[str, object], *lists: tuple[list[Any], int]) -> dict[str, object]:
    """Leaves the last entries of lists out until the answer fits, and counts them in `left_out`.

    Args:
        lists: Lists in the answer, those to shorten first, and the entries that each keeps.
    """
    left_out = 0
    for entries, kept in lists:
        while len(entries) > kept and not fits(answer):
            del entries[-1]
            left_out += 1
            answer["left_out"] = left_out
    return answer


def fits(answer: object) -> bool:
    """Tells whether an answer is at most 4 KiB of JSON."""
    return len(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")) <= LONGEST_BYTES


def failed_checks(checklist: object, experiment_id: str) -> tuple[ChecklistLine, ...] | None:
    """Returns the checks that an experiment fails; None where a body is no checklist."""
    try:
        lines = msgspec.convert(checklist, tuple[ChecklistLine, ...])
    except msgspec.ValidationError:
        return None
    return tuple(each for each in lines if each.ok is False and each.experiment_id == experiment_id)
