"""The metrics member of an evidence document: a row for the target, and for each guardrail."""

from collections.abc import Iterator, Mapping
from typing import Any

from domain.comparison import is_fair
from stats.decision.evidence import Evidence
from stats.gates.guardrail import GuardrailReading
from stats.looks.words import Verdict

_ANSWERS = {Verdict.KEEP: "better", Verdict.ITERATE: "better", Verdict.ROLLBACK: "worse"}


def metric_rows(
    evidence: Evidence, *, contract: Mapping[str, Any], document: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns a row for each metric, the target first (docs/api.md, 'The evidence').

    Args:
        evidence: The evidence at the look.
        contract: The verdict contract that it supports.
        document: The other members of the evidence document.
    """
    return list(_rows(evidence, contract, document))


def _rows(
    evidence: Evidence, contract: Mapping[str, Any], document: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    control, treatment = evidence.arms.control, evidence.arms.treatment
    yield {
        "metric": document["policy"]["target"]["name"],
        "role": "target",
        "control": control.rate if control.total is None else control.mean,
        "treatment": treatment.rate if treatment.total is None else treatment.mean,
        "difference": evidence.lift,
        "interval": None if evidence.ci is None else list(evidence.ci),
        "state": _target_state(evidence, contract, document),
    }
    for reading in evidence.guardrails:
        yield {
            "metric": reading.metric,
            "role": "guardrail",
            "control": reading.control,
            "treatment": reading.treatment,
            "difference": reading.lift,
            "interval": None if reading.interval is None else list(reading.interval),
            "state": _guardrail_state(reading),
        }


def _target_state(
    evidence: Evidence, contract: Mapping[str, Any], document: Mapping[str, Any]
) -> str:
    if not is_fair(contract, document):
        return "unfair"
    waits = evidence.candidate is not None and evidence.candidate.holds
    return _ANSWERS.get(evidence.decision.verdict, "better" if waits else "not_known")


def _guardrail_state(reading: GuardrailReading) -> str:
    if reading.breached_at is not None:
        return "breached"
    return "not_known" if reading.non_inferior_at is None else "unharmed"
