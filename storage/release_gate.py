"""A release gate: whether a rollout may go on with a change, by a policy of the rollout's own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from storage.freeze import Freeze

# As an Argo measurement is called.
Phase = Literal["Successful", "Failed", "Running"]
POLICIES = "keep, no-breach, or no-harm:SHARE with a share between 0 and 1, no-harm:0.2 say"
POLICY_PATTERN = r"^(keep|no-breach|no-harm:(0?\.[0-9]*[1-9][0-9]*|1(\.0*)?))$"

_FAULTS = {
    "non_identifiable": "the change cannot be told apart from what else differs",
    "interacting": "the arms cannot be compared",
}


@dataclass(frozen=True, kw_only=True)
class GatePolicy:
    """What must be known of a change before it goes on.

    Attributes:
        name: `keep`: that it helps. `no-harm`: that it harms no more than `loss`. `no-breach`:
            only that no guardrail is breached.
        loss: The accepted loss, as a share of control's rate or mean; None accepts none.
    """

    name: Literal["keep", "no-breach", "no-harm"]
    loss: float | None = None


@dataclass(frozen=True, kw_only=True)
class Judgment:
    """What a rollout is told.

    Attributes:
        phase: `Successful`: go on; `Failed`: go back; `Running`: neither.
        because: Why, in a few words.
    """

    phase: Phase
    because: str


def gate_policy(told: str) -> GatePolicy:
    """Returns a policy as it is written.

    Raises:
        ValueError: It is none of `POLICIES`.
    """
    if re.fullmatch(POLICY_PATTERN, told) is None:
        raise ValueError(f"must be {POLICIES}")
    if told == "keep" or told == "no-breach":  # noqa: PLR1714 (a type checker reads this one)
        return GatePolicy(name=told)
    return GatePolicy(name="no-harm", loss=float(told.partition(":")[2]))


def judgment(
    contract: Mapping[str, Any],
    evidence: Mapping[str, Any] | None,
    *,
    policy: GatePolicy,
    freeze: Freeze | None,
) -> Judgment:
    """Returns what a rollout is to do with a change.

    A verdict against the change fails every policy, and so does a breach: it may be why the arms
    came apart. Nothing else does: to abstain is neither to stop a rollout nor to undo it.

    Args:
        contract: The served verdict contract.
        evidence: The evidence that it rests on; None before any look.
        policy: The rollout's.
        freeze: What is in force.
    """
    if freeze is not None:
        return Judgment(phase="Running", because=f"Hold: frozen, {freeze.reason}.")
    return _failed(contract) or _faulty(contract) or _passed(contract, evidence or {}, policy)


def _failed(contract: Mapping[str, Any]) -> Judgment | None:
    breaches = ", ".join(contract["guardrail_breaches"])
    because = {
        "rollback": "Go back: rollback.",
        "iterate": f"Go back: iterate, it harms {breaches or 'a guardrail'}.",
    }.get(contract["verdict"], f"Go back: {breaches} is breached." if breaches else None)
    return None if because is None else Judgment(phase="Failed", because=because)


def _faulty(contract: Mapping[str, Any]) -> Judgment | None:
    """Holds where nothing can be said, whatever an interval or a guardrail seems to say."""
    reason = contract["abstain_reason"]
    if reason not in _FAULTS:
        return None
    return Judgment(phase="Running", because=f"Hold: {reason}, {_FAULTS[reason]}.")


def _passed(
    contract: Mapping[str, Any], evidence: Mapping[str, Any], policy: GatePolicy
) -> Judgment:
    if contract["verdict"] == "keep":
        return Judgment(phase="Successful", because="Go on: keep.")
    if policy.name == "no-breach":
        return Judgment(phase="Successful", because="Go on: no guardrail is breached.")
    if policy.loss is not None and excludes_loss(evidence, policy.loss):
        because = f"Go on: a loss beyond {100 * policy.loss:g} % of control is excluded."
        return Judgment(phase="Successful", because=because)
    ended = " any more" if contract["power_state"]["decided"] else " yet"
    return Judgment(phase="Running", because=f"Hold: {policy.name} is not shown{ended}.")


def excludes_loss(evidence: Mapping[str, Any], share: float) -> bool:
    """Tells whether a loss beyond a share of control's level is excluded, on its worse side.

    Args:
        evidence: The evidence document; empty before any look.
        share: The accepted loss, as a share of control's rate or mean.
    """
    known = evidence.get("known", {}).get("not_worse_than")
    if known is None:
        return False
    higher = evidence["policy"]["target"]["better"] == "higher"
    return (-known if higher else known) <= share
