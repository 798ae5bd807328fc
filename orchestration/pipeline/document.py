"""The evidence document: everything behind a verdict, as JSON (docs/api.md, 'The evidence')."""

import hashlib
import math
from bisect import bisect_left
from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from domain.contract import document_text
from domain.lineage.control_state import ControlState
from domain.lineage.flag import is_segment
from domain.measure import Measure, measure_of_policy
from domain.wording.advice import advice
from domain.wording.headline import headline_of
from domain.wording.left_out import left_out_sentence
from domain.wording.value import value_range
from orchestration.pipeline.members.aliasing import TIME, aliased_with
from orchestration.pipeline.members.effect import effect_member
from orchestration.pipeline.members.metrics import metric_rows
from orchestration.pipeline.members.serving import base_move_member, missing_control_member
from orchestration.pipeline.sentence import known_sentence, statement
from orchestration.pipeline.series import moment, seconds
from stats.decision.evidence import Arm, Evidence
from stats.decision.tipping_point import TippingPoint
from stats.decision.vouched import VouchedOutcomes
from stats.gates.guardrail import GuardrailReading
from stats.gates.shortfall import Shortfall
from stats.looks.policy import Policy
from storage.verdicts.evidence import ExperimentReading, UnitCounts
from storage.verdicts.gates import ReturningUsers

# Before so many units, to have seen none is no news of a rare metric.
_MANY_UNITS = 1_000
_MANY_USERS, _FAITHFUL, _SMALL_SHARE = 50, 0.95, 0.05


def timestamp(epoch_seconds: int | None) -> str | None:
    """Returns a time as the interface writes it."""
    if epoch_seconds is None:
        return None
    return moment(epoch_seconds).isoformat().replace("+00:00", "Z")


def evidence_document(
    reading: ExperimentReading,
    evidence: Evidence,
    *,
    contract: Mapping[str, Any],
    counts: UnitCounts,
    changes: Mapping[str, frozenset[str]],
    returning: ReturningUsers,
    state: ControlState,
) -> dict[str, Any]:
    """Returns the evidence document of an experiment as of its look.

    Args:
        reading: The experiment's stored cells and gates.
        evidence: The engine's evaluation of them.
        contract: The verdict contract that the evidence supports.
        counts: Its units, as of the same look.
        changes: The changes of each stratum besides the one under test.
        returning: Its users who came back, as of the same look.
        state: The builds beside its treatment then.
    """
    control = evidence.arms.control
    level = control.rate if control.total is None else control.mean
    measure = measure_of_policy(reading.policy, control=level)
    left_out = _left_out(evidence, counts)
    decided = evidence.decision.decided
    alone = None if decided else state.missing
    said = statement(
        evidence,
        measure,
        reading.policy["futility_margin"],
        left_out=left_out_sentence(left_out, reading.policy["target"]),
        alone=alone,
    )
    numbers = Policy.from_json(reading.policy)
    document = {
        "experiment_id": reading.experiment_id,
        "as_of": timestamp(evidence.as_of),
        "change": list(reading.change),
        "joint_with": list(reading.joint_with),
        "base_moved": base_move_member(state.moved),
        "nothing_to_compare": missing_control_member(alone),
        "policy": _policy(reading, numbers),
        "arms": {
            "control": _arm(evidence.arms.control, late=counts.late_control),
            "treatment": _arm(evidence.arms.treatment, late=counts.late_treatment),
        },
        "totals": _totals(evidence),
        **_yes_no(evidence),
        "known": _known(evidence, measure),
        "looks": _looks(evidence),
        "gates": _gates(reading, evidence, numbers=numbers, changes=changes),
        **({"splits": _splits(evidence)} if reading.splits_by_need else {}),
        "guardrails": [_guardrail(guardrail) for guardrail in evidence.guardrails],
        "candidate": _candidate(evidence),
        "sessions": _sessions(evidence),
        "tipping_point": _tipping_point(evidence.tipping_point),
        "vouched": _vouched(evidence.vouched),
        "left_out": left_out,
        "counts": {
            "in_cells": evidence.units_in_cells,
            "open": counts.exposed - evidence.units_in_cells - evidence.units_excluded,
            "late": counts.late,
            "in_flight": counts.in_flight,
            "unknown_commit": counts.unknown_commit,
            "ambiguous_commit": counts.ambiguous_commit,
            "partial": counts.partial,
            "crossover": counts.crossover,
            "excluded": counts.excluded + evidence.units_excluded,
            "warming": counts.warming,
            "unmatched_route": counts.unmatched_route,
            **({"unsigned": counts.unsigned} if _asks_for_signatures(reading) else {}),
        },
        "warnings": [
            *_warnings(reading, evidence, counts, returning),
            # Of a decided one `ended_because` says it.
            *(["base_moved"] if state.moved is not None and not decided else []),
            *(["declaration_differs"] if state.differs and not decided else []),
        ],
        "ended_because": _value(evidence.decision.ended_because),
        "digest": _digest(reading, evidence),
    }
    document["metrics"] = metric_rows(evidence, contract=contract, document=document)
    candidate = evidence.candidate is not None
    units_per_day = _units_per_day(evidence, numbers)
    return {
        "sentence": said.sentence,
        "headline": headline_of(contract, candidate=candidate).text,
        "reason": said.reason,
        "advice": advice(contract, document),
        **document,
        "value_range": value_range(
            contract, document, interval=evidence.ci, units_per_day=units_per_day
        ),
        "effect": effect_member(
            evidence,
            contract=contract,
            document=document,
            units_per_day=units_per_day,
        ),
    }


def _units_per_day(evidence: Evidence, numbers: Policy) -> float | None:
    """Returns the units a day of all traffic: the measured ones by the share that is sampled."""
    measured = evidence.eligible_per_day
    return None if measured is None else measured / numbers.sample_rate


def _value(word: object) -> str | None:
    return None if word is None else str(word)


def _policy(reading: ExperimentReading, numbers: Policy) -> dict[str, Any]:
    policy = reading.policy
    return {
        "target": policy["target"],
        "guardrails": policy["guardrails"],
        "environment": policy["environment"],
        "routes": policy["routes"],
        "routes_because": policy["routes_because"],
        "alpha": policy["alpha"],
        "attempt": policy["attempt"],
        "level": numbers.level,
        "rho": {
            "day": numbers.rho_day,
            "fast": numbers.rho_fast,
            **({"between": list(numbers.rho_between)} if numbers.rho_between else {}),
        },
        "window_seconds": policy["window_seconds"],
        "grace_seconds": policy["grace_seconds"],
        "block_min_units": policy["block_min_units"],
        "undeclared_min_units": numbers.undeclared_min_units,
        "horizon_days": policy["horizon_seconds"] // 86_400,
        "futility_margin": policy["futility_margin"],
        "unit": policy["unit"],
        "value_per_conversion": policy["value_per_conversion"],
        # A policy that measures every unit, or was frozen before samples, keeps its bytes.
        **({"sample_rate": rate} if (rate := policy.get("sample_rate", 1)) < 1 else {}),
        **({"signed_assignments": True} if _asks_for_signatures(reading) else {}),
        **({"earlier_attempts": earlier} if (earlier := policy.get("earlier_attempts")) else {}),
        **({"split_at": numbers.split_at} if reading.splits_by_need else {}),
        **({"segments": segments} if (segments := policy.get("segments")) else {}),
        **({"warmup_seconds": warmup} if (warmup := policy.get("warmup_seconds")) else {}),
        "after_window_at": numbers.after_window_at,
    }


def _asks_for_signatures(reading: ExperimentReading) -> bool:
    """Tells whether to mention signatures: documents decided without them keep their bytes."""
    return reading.policy.get("signed_assignments", False)


def _arm(arm: Arm, *, late: int) -> dict[str, Any]:
    return {
        "units": arm.units,
        "conversions": arm.conversions,
        "rate": arm.rate,
        # Of a mean: what all its events are worth, capped, and what that is a unit.
        **({} if arm.total is None else {"total": arm.total, "mean": arm.mean}),
        "late": late,
    }


def _left_out(evidence: Evidence, counts: UnitCounts) -> list[dict[str, Any]]:
    """Returns the outcomes of counted units that do not count, by reason and arm."""
    reasons = [("late", counts.late_control, counts.late_treatment)] + [
        (str(outcomes.reason), outcomes.control, outcomes.treatment)
        for outcomes in evidence.gates.left_out
    ]
    return [
        {"reason": reason, "of": "outcomes", "control": control, "treatment": treatment}
        for reason, control, treatment in reasons
        if control or treatment
    ]


def _yes_no(evidence: Evidence) -> dict[str, Any]:
    """Returns, beside a mean, the test of whether units had its event."""
    yes_no = evidence.yes_no
    if yes_no is None:
        return {}
    ci = list(yes_no.ci)
    return {"yes_no": {"lift": yes_no.lift, "e_value": yes_no.e_value, "ci": ci}}


def _totals(evidence: Evidence) -> dict[str, Any]:
    return {
        "S": evidence.S,
        "W": evidence.W,
        "V": evidence.V,
        "lift": evidence.lift,
        "e_value": evidence.e_value,
        "p_value": evidence.p_value,
        "p_running_min": evidence.p_running_min,
        "ci": None if evidence.ci is None else list(evidence.ci),
    }


def _known(evidence: Evidence, measure: Measure) -> dict[str, Any]:
    known = evidence.known
    return {
        "not_worse_than": known.not_worse_than,
        "not_better_than": known.not_better_than,
        "smallest_lift_by_horizon": known.smallest_lift_by_horizon,
        "sentence": known_sentence(evidence, measure),
    }


def _looks(evidence: Evidence) -> list[dict[str, Any]]:
    # Column by column: there may be hundreds of each of thousands of experiments.
    looks = evidence.looks
    columns = zip(
        np.datetime_as_string(looks.at.astype("datetime64[s]")).tolist(),
        *(column.tolist() for column in (looks.e_value, looks.p_running_min, looks.lift)),
        looks.ci.tolist(),
        (np.isnan(looks.ci[:, 0]) | np.isnan(looks.ci[:, 1])).tolist(),
        looks.gated.tolist(),
        strict=True,
    )
    return [
        {
            "at": f"{at}Z",
            "e_value": e_value,
            "p_running_min": p_running_min,
            "lift": None if math.isnan(lift) else lift,
            "ci": None if is_unknown else ci,
            "gated": gated,
        }
        for at, e_value, p_running_min, lift, ci, is_unknown, gated in columns
    ]


def _splits(evidence: Evidence) -> list[dict[str, Any]]:
    return [
        {"by": split.flag, "e_value": split.e_value, "since": timestamp(split.since)}
        for split in evidence.splits
    ]


def _gates(
    reading: ExperimentReading,
    evidence: Evidence,
    *,
    numbers: Policy,
    changes: Mapping[str, frozenset[str]],
) -> dict[str, Any]:
    gates = evidence.gates
    return {
        "vif": _finite(gates.vif),
        "aliased_with": _aliased_with(reading, evidence, numbers, changes),
        "sample_ratio_e": _finite(gates.sample_ratio_e),
        "crossover_share": gates.crossover_share,
        "lateness_e": _finite(gates.lateness_e),
        "interaction_e": _finite(gates.interaction_e),
        "after_window_e": _finite(gates.after_window_e),
        "left_out_e": {str(outcomes.reason): outcomes.e_value for outcomes in gates.left_out},
        "interacting_because": [str(cause) for cause in gates.interacting_because],
        "shortfall": _shortfall(gates.shortfall),
    }


def _aliased_with(
    reading: ExperimentReading,
    evidence: Evidence,
    numbers: Policy,
    changes: Mapping[str, frozenset[str]],
) -> list[str]:
    vif, confounded = evidence.gates.vif, list(evidence.confounded_by)
    if vif is None or vif <= numbers.vif_limit:
        return confounded
    aliases = aliased_with(reading.cells, reading.strata, changes, before=evidence.closed_until)
    return sorted({*aliases, *confounded} - ({TIME} if confounded else set[str]()))


def _shortfall(shortfall: Shortfall | None) -> dict[str, Any] | None:
    if shortfall is None:
        return None
    return {
        "declared": shortfall.declared,
        "seen": shortfall.actual,
        "steady": shortfall.steady,
    }


def _finite(number: float | None) -> float | str | None:
    """Returns a number as JSON can say it: infinity is a word."""
    return "inf" if number is not None and math.isinf(number) else number


def _guardrail(reading: GuardrailReading) -> dict[str, Any]:
    return {
        "metric": reading.metric,
        "e_value": reading.e_value,
        "threshold": reading.threshold,
        "breached_at": timestamp(reading.breached_at),
        "non_inferior_at": timestamp(reading.non_inferior_at),
        "lift": reading.lift,
    }


def _candidate(evidence: Evidence) -> dict[str, Any] | None:
    candidate = evidence.candidate
    if candidate is None:
        return None
    return {
        "at": timestamp(candidate.at),
        "lift": candidate.lift,
        "confidence": candidate.confidence,
        "ci": list(candidate.ci),
        "cadence": str(candidate.cadence),
        "holds": candidate.holds,
        "waits_for": list(candidate.waits_for),
    }


def _sessions(evidence: Evidence) -> dict[str, Any]:
    sessions = evidence.sessions
    return {
        "accumulated": sessions.accumulated,
        "required": sessions.required,
        "required_fast": sessions.required_fast,
        "per_day": sessions.per_day,
        "projected_decision_at": timestamp(sessions.projected_decision_at),
    }


def _tipping_point(point: TippingPoint | None) -> dict[str, Any] | None:
    return None if point is None else {"sessions": point.sessions, "unseen": point.unseen}


def _vouched(outcomes: VouchedOutcomes | None) -> dict[str, Any] | None:
    if outcomes is None:
        return None
    return {
        "conversions": outcomes.conversions,
        "of": outcomes.of,
        "e_value": outcomes.e_value,
        "holds": outcomes.holds,
    }


def _warnings(
    reading: ExperimentReading,
    evidence: Evidence,
    counts: UnitCounts,
    returning: ReturningUsers,
) -> list[str]:
    arms = evidence.arms
    counted = (
        arms.control.conversions
        + arms.treatment.conversions
        + counts.late_control
        + counts.late_treatment
    )
    warnings = {
        "base_assumed": reading.base_assumed,
        "metric_never_seen": evidence.units_in_cells >= _MANY_UNITS and not counted,
        "unknown_commit": counts.unknown_commit > 0,
        "ambiguous_commit": counts.ambiguous_commit > 0,
        "unmatched_route": counts.unmatched_route > 0,
        "unsigned": counts.unsigned > 0,
        "uneven_segments": any(is_segment(split.flag) for split in evidence.splits),
        "outcomes_left_out": any(
            outcomes.control or outcomes.treatment for outcomes in evidence.gates.left_out
        ),
        "uncapped": _is_uncapped(reading.policy),
        "sticky_by_user": _is_sticky_by_user(evidence, returning),
    }
    return [*evidence.warnings, *(word for word, holds in warnings.items() if holds)]


def _is_uncapped(policy: Mapping[str, Any]) -> bool:
    """Tells whether a single value can outweigh all others of a mean."""
    metrics = [policy["target"], *policy["guardrails"]]
    return any(metric["kind"] == "mean" and metric["cap"] is None for metric in metrics)


def _is_sticky_by_user(evidence: Evidence, returning: ReturningUsers) -> bool:
    """Tells that users rather than sessions keep their arm."""
    units = [evidence.arms.control.units, evidence.arms.treatment.units]
    return (
        returning.users >= _MANY_USERS
        and returning.faithful >= _FAITHFUL * returning.users
        and min(units) >= _SMALL_SHARE * sum(units)
    )


def _digest(reading: ExperimentReading, evidence: Evidence) -> str:
    """Returns the SHA-256 of cells, deploys and policy: of the same evidence, the same."""
    known_at = max(evidence.as_of or 0, seconds(reading.bound_at))
    cells = reading.cells
    strata = map(reading.strata.__getitem__, cells.stratum)
    counted = zip(cells.block, strata, cells.n1, cells.x1, cells.n0, cells.x0, strict=True)
    # Whole numbers and names, which make most of the text: any encoder writes the same of them.
    closed = list(islice(counted, bisect_left(cells.block, evidence.closed_until)))
    others = {
        "deploys": [
            [
                deploy.commit,
                deploy.base,
                deploy.deployed_at.isoformat(),
                deploy.allocation,
            ]
            for deploy in reading.deploys
            if deploy.recorded_at.timestamp() <= known_at
        ],
        "policy": dict(sorted(reading.policy.items())),
    }
    text = document_text(others).encode()
    return hashlib.sha256(b'{"cells":' + msgspec.json.encode(closed) + b"," + text[1:]).hexdigest()
