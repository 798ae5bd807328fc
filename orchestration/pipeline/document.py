"""The evidence document, filled: the engine's numbers with the counts and builds beside them."""

import hashlib
from bisect import bisect_left
from collections.abc import Mapping
from itertools import islice

import msgspec
from msgspec import structs

from domain.contract import Contract, is_fair
from domain.document import document_text, moment
from domain.evidence.counts import Arms, LeftOut
from domain.evidence.document import Evidence as EvidenceDocument
from domain.evidence.document import ValueRange
from domain.evidence.policy import EvidencePolicy
from domain.evidence.results import EvidenceSplit, MetricRow, State
from domain.lineage.control_state import ControlState
from domain.lineage.flag import is_segment
from domain.measure import measure_of_policy
from domain.wording.headline import headline_of
from domain.wording.left_out import left_out_sentence
from domain.words import Verdict
from orchestration.pipeline.members.aliasing import TIME, aliased_with
from orchestration.pipeline.members.effect import (
    dollars_of,
    effect_at_look,
    is_retrospective,
    value_between,
)
from orchestration.pipeline.sentence import adjustment_sentence, known_sentence, statement
from orchestration.pipeline.series import seconds
from stats.decision.evidence import Evidence
from stats.gates.vif import MIN_TREATMENT_UNITS
from storage.verdicts.evidence import ExperimentReading, UnitCounts

# Before so many units, to have seen none is no news of a rare metric.
_MANY_UNITS = 1_000
# Such a share of sessions without a user, or of units without a build, is worth a warning.
_MANY_UNKNOWN = 0.05
_ANSWERS: Mapping[Verdict, State] = {
    Verdict.KEEP: "better",
    Verdict.ITERATE: "better",
    Verdict.ROLLBACK: "worse",
}


def evidence_document(
    reading: ExperimentReading,
    evidence: Evidence,
    *,
    contract: Contract,
    counts: UnitCounts,
    changes: Mapping[str, frozenset[str]],
    state: ControlState,
) -> EvidenceDocument:
    """Returns the evidence document of an experiment as of its look."""
    policy, decided = EvidencePolicy.of(reading.policy), contract.decided
    arms = Arms(
        control=structs.replace(evidence.arms.control, late=counts.late_control),
        treatment=structs.replace(evidence.arms.treatment, late=counts.late_treatment),
    )
    measure = measure_of_policy(policy, control=arms.control.level)
    left_out = _left_out(evidence, counts)
    alone = None if decided else state.missing
    said = statement(
        evidence,
        measure,
        policy,
        left_out=left_out_sentence(left_out, policy.target, policy.unit),
        alone=alone,
        silent=counts.never_received,
        ending=state.ending,
    )
    fair = is_fair(contract)
    dollars = dollars_of(reading.policy, evidence.eligible_per_day)
    value = value_between(evidence.totals.ci, dollars) if fair else None
    return EvidenceDocument(
        sentence=said.sentence,
        headline=headline_of(contract).text,
        reason=said.reason,
        advice=(),
        experiment_id=reading.experiment_id,
        as_of=None if evidence.as_of is None else moment(evidence.as_of),
        change=tuple(reading.change),
        joint_with=tuple(reading.joint_with),
        base_moved=state.moved,
        nothing_to_compare=alone,
        policy=policy,
        arms=arms,
        totals=evidence.totals,
        yes_no=evidence.yes_no,
        adjustment=evidence.adjustment
        and structs.replace(
            evidence.adjustment, sentence=adjustment_sentence(evidence.adjustment, policy.unit)
        ),
        known=structs.replace(evidence.known, sentence=known_sentence(evidence, measure)),
        looks=evidence.looks,
        gates=structs.replace(
            evidence.gates, aliased_with=_aliased_with(reading, evidence, changes)
        ),
        splits=tuple(
            EvidenceSplit(by=split.flag, e_value=split.e_value, since=moment(split.since))
            for split in evidence.splits
        ),
        draw=evidence.draw,
        flag_values=evidence.flag_values,
        guardrails=evidence.guardrails,
        candidate=evidence.candidate,
        surplus=evidence.surplus,
        sessions=evidence.sessions,
        tipping_point=evidence.tipping_point,
        vouched=evidence.vouched,
        left_out=left_out,
        retrospective=is_retrospective(reading, evidence.as_of),
        counts=counts.units
        if policy.signed_assignments
        else structs.replace(counts.units, unsigned=None),
        never_received=tuple(counts.never_received),
        warnings=_warnings(reading, evidence, counts, state),
        ended_because=evidence.decision.ended_because,
        digest=_digest(reading, evidence),
        metrics=_metrics(evidence, policy, arms, fair=fair),
        value_range=None if value is None else ValueRange(low=value[0], high=value[1]),
        effect=effect_at_look(evidence, reading, dollars, fair=fair),
    )


def _left_out(evidence: Evidence, counts: UnitCounts) -> tuple[LeftOut, ...]:
    """Returns the units, and the outcomes of counted units, that do not count."""
    reasons = [("late", counts.late_control, counts.late_treatment)] + [
        (str(outcomes.reason), outcomes.control, outcomes.treatment)
        for outcomes in evidence.left_out
    ]
    return (
        *counts.left_out,
        *(
            LeftOut(reason=reason, of="outcomes", control=control, treatment=treatment)
            for reason, control, treatment in reasons
            if control or treatment
        ),
    )


def _aliased_with(
    reading: ExperimentReading, evidence: Evidence, changes: Mapping[str, frozenset[str]]
) -> tuple[str, ...]:
    vif, confounded = evidence.vif, evidence.confounded_by
    if vif is None or vif <= reading.policy.vif_limit:
        return confounded
    aliases = aliased_with(reading.cells, reading.strata, changes, before=evidence.closed_until)
    return tuple(sorted({*aliases, *confounded} - ({TIME} if confounded else set[str]())))


def _metrics(
    evidence: Evidence, policy: EvidencePolicy, arms: Arms, *, fair: bool
) -> tuple[MetricRow, ...]:
    """Returns a row for each metric, the target first."""
    waits = evidence.candidate is not None and evidence.candidate.holds
    unknown: State = "better" if waits else "not_known"
    target = MetricRow(
        metric=policy.target.name,
        role="target",
        control=arms.control.level,
        treatment=arms.treatment.level,
        difference=evidence.totals.lift,
        interval=evidence.totals.ci,
        state=_ANSWERS.get(evidence.decision.verdict, unknown) if fair else "unfair",
    )
    return (target, *evidence.guardrail_rows)


def _warnings(
    reading: ExperimentReading, evidence: Evidence, counts: UnitCounts, state: ControlState
) -> tuple[str, ...]:
    arms, units = evidence.arms, counts.units
    late = counts.late_control + counts.late_treatment
    counted = arms.control.conversions + arms.treatment.conversions + late
    open_now = not evidence.decision.decided
    policy = reading.policy
    left_out = any(outcomes.control or outcomes.treatment for outcomes in evidence.left_out)
    none_counted = evidence.units_in_cells >= _MANY_UNITS and not counted and not left_out
    received = policy.target.name not in counts.never_received
    warnings = {
        "retrospective": is_retrospective(reading, evidence.as_of),
        "base_assumed": reading.base_assumed,
        "metric_never_seen": none_counted and not received,
        "none_in_window": none_counted and received,
        "unknown_commit": units.unknown_commit > 0,
        "unknown_build": units.unknown_build
        > _MANY_UNKNOWN * (units.in_cells + units.open + units.unknown_build),
        "ambiguous_commit": units.ambiguous_commit > 0,
        "unknown_user": (evidence.gates.unnamed_share or 0) > _MANY_UNKNOWN,
        "unmatched_route": units.unmatched_route > 0,
        "unsigned": bool(units.unsigned),
        "uneven_segments": any(is_segment(split.flag) for split in evidence.splits),
        "outcomes_left_out": left_out,
        "values_left_out": any(each.taken_for == "left_out" for each in evidence.flag_values),
        "control_unseen": policy.flag is not None
        and arms.treatment.units >= MIN_TREATMENT_UNITS
        and not arms.control.units,
        "uncapped": any(each.kind == "mean" and each.cap is None for each in policy.judged),
        "unwatched": bool(policy.unwatched),
        # A decided experiment says it by `ended_because`.
        "base_moved": state.moved is not None and open_now,
        "declaration_differs": state.differs and open_now,
    }
    return (*evidence.warnings, *(word for word, holds in warnings.items() if holds))


def _digest(reading: ExperimentReading, evidence: Evidence) -> str:
    """Returns the SHA-256 of cells, deploys and policy: of the same evidence, the same."""
    known_at = max(evidence.as_of or 0, seconds(reading.bound_at))
    cells = reading.cells
    strata = map(reading.strata.__getitem__, cells["stratum"])
    units = (cells[name] for name in ("n1", "x1", "n0", "x0"))
    counted = zip(cells["block"], strata, *units, strict=True)
    # Whole numbers and names, which make most of the text: any encoder writes the same of them.
    closed = list(islice(counted, bisect_left(cells["block"], evidence.closed_until)))
    others = {
        "deploys": [
            [deploy.commit, deploy.base, deploy.deployed_at.isoformat(), deploy.allocation]
            for deploy in reading.deploys
            if deploy.recorded_at.timestamp() <= known_at
        ],
        "policy": dict(sorted(reading.frozen.items())),
    }
    text = document_text(others).encode()
    return hashlib.sha256(b'{"cells":' + msgspec.json.encode(closed) + b"," + text[1:]).hexdigest()
