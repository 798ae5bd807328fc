"""The policy member of an evidence document: the frozen policy as it is served."""

import msgspec

from domain.evidence.policy import EvidencePolicy, Precisions
from domain.registration import RETROSPECTIVE
from stats.looks.policy import DAY, Policy
from storage.verdicts.evidence import ExperimentReading


def is_retrospective(reading: ExperimentReading, as_of: int | None) -> bool:
    """Tells whether all that counts at a look, in epoch seconds, could be seen before it was asked.

    That is history, and what was registered after the last outcome that counts had closed.
    """
    seen_before = as_of is not None and as_of <= reading.registered_at.timestamp()
    return bool(reading.policy[RETROSPECTIVE]) or seen_before


def policy_of(reading: ExperimentReading) -> EvidencePolicy:
    """Returns the policy as it is served: its settings at their defaults are left out."""
    frozen, numbers = reading.policy, Policy.from_json(reading.policy)
    return msgspec.convert(
        {
            **frozen,
            "level": numbers.level,
            "undeclared_min_units": numbers.undeclared_min_units,
            "sample_rate": numbers.sample_rate if numbers.sample_rate < 1 else None,
            "rho": Precisions(
                day=numbers.rho_day, fast=numbers.rho_fast, between=numbers.rho_between
            ),
            "horizon_days": frozen["horizon_seconds"] // DAY,
            "reward_days": numbers.reward_seconds // DAY,
        },
        EvidencePolicy,
    )
