"""A breach or suspicion while nothing is decided, and the step that each asks for."""

from collections.abc import Mapping

from domain.cause import Cause
from domain.contract import Contract
from domain.evidence.document import AnyEvidence, Evidence
from domain.words import Action, Verdict

ARRIVAL = "arrival"
# Every face shows this beside the evidence's sentence, which names both causes.
STEADY_SHORTFALL = "arrival alone is breached, at a steady ratio"
# While any of these holds, units are in the wrong arm, or are no units: a breach may be its doing.
_WRONG_ARMS = frozenset({Cause.UNIT, Cause.CROSSOVER, Cause.DRAW})


def is_steady_shortfall(contract: Contract, evidence: Evidence | None) -> bool:
    """Tells whether nothing but `arrival` is breached, at a ratio that was steady all along.

    A router whose weight is mis-set looks like that, and so does a build that dies in some
    sessions: a fault of the set-up to look into, no reason to go back by itself.

    Args:
        evidence: The evidence document behind it; None before any look.
    """
    shortfall = None if evidence is None else evidence.gates.shortfall
    is_alone = contract.guardrail_breaches == (ARRIVAL,)
    return is_alone and shortfall is not None and shortfall.steady


def breach_action(contract: Contract, evidence: Evidence | None) -> Action | None:
    """Returns the step that breaches beside an abstention ask for; None where nothing is breached.

    To go back, unless the set-up has to be repaired first, or the target is better already: then
    the change is to be revised, as `iterate` says once it is decided.

    Args:
        evidence: The evidence document behind it; None before any look.
    """
    if contract.verdict is not Verdict.ABSTAIN or not contract.guardrail_breaches:
        return None
    wrong = set() if evidence is None else _WRONG_ARMS & {*evidence.gates.interacting_because}
    if wrong or is_steady_shortfall(contract, evidence):
        return Action.FIX
    better = evidence is not None and evidence.candidate is not None
    return Action.REVISE if better else Action.ROLL_BACK


def suspicion(evidence: AnyEvidence | None) -> Action | None:
    """Returns the step that a harm asks for which lost units may explain; None without any."""
    if not isinstance(evidence, Evidence) or evidence.surplus is None:
        return None
    return Action(evidence.policy.on_suspicion) if evidence.surplus.suspected else None


def is_trusted(
    contract: Contract,
    evidence: AnyEvidence | None,
    claimed: Mapping[str, bool],
    *,
    claims_units: bool,
) -> bool:
    """Tells whether a workflow may act on a verdict, whoever may have sent its events.

    It may not act on a breach whose events anybody can have sent with the public key. Nor may it
    where such events made units and no declared share holds the arms: more units dilute a rate.

    Args:
        claimed: The names of events that came, each with whether any came with the public key,
            unsigned, since the start.
        claims_units: Whether any unit may have been made by such an event.
    """
    numbers = evidence if isinstance(evidence, Evidence) else None
    if breach_action(contract, numbers) is not Action.ROLL_BACK:
        return True
    if numbers is None:
        return False
    vouched = {
        each.of or each.name
        for each in numbers.policy.guardrails
        if each.vouched_only
        or each.trusted_only
        or {claimed[name] for name in each.sources if name in claimed} == {False}
    }
    gates, breaches = numbers.gates, contract.guardrail_breaches
    is_unheld = gates.sample_ratio_e is None or Cause.SAMPLE_RATIO in gates.interacting_because
    units_hold = not (claims_units and (is_unheld or ARRIVAL in breaches))
    return numbers.policy.signed_assignments or (units_hold and not vouched.isdisjoint(breaches))
