"""An example of an evidence document, of which a test changes what it is about."""

import json
from pathlib import Path
from typing import Any

from domain.document import document_text
from domain.evidence.document import Evidence, evidence_of

# As the pipeline publishes it: a story of tests/pipeline/scenarios/test_scenarios.py compares.
PUBLISHED = Path(__file__).with_name("evidence.json")
# The members of a row that a test names a part of.
_ROWS: dict[str, dict[str, Any]] = {
    "looks": {
        "at": "2026-10-01T10:00:00Z",
        "e_value": 1.0,
        "p_running_min": 1.0,
        "lift": None,
        "ci": None,
        "gated": False,
    },
    "guardrails": {
        **dict.fromkeys(("breached_at", "non_inferior_at", "lift")),
        "e_value": 1.0,
        "threshold": 40.0,
    },
    "metrics": {
        **dict.fromkeys(("control", "treatment", "difference", "interval")),
        "role": "guardrail",
        "state": "not_known",
    },
}


def example_document(**members: Any) -> dict[str, Any]:
    """An evidence document as JSON: whole, with these members, each as far as it is named."""
    return _merged(json.loads(PUBLISHED.read_text()), members)


def example_evidence(**members: Any) -> Evidence:
    """The same, decoded."""
    evidence = evidence_of(document_text(example_document(**members)))
    assert isinstance(evidence, Evidence)
    return evidence


def _merged(whole: dict[str, Any], members: dict[str, Any]) -> dict[str, Any]:
    merged = dict(whole)
    for name, value in members.items():
        before = whole.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[name] = _merged(before, value)
        elif name in _ROWS:
            merged[name] = [{**_ROWS[name], **row} for row in value]
        else:
            merged[name] = value
    return merged
