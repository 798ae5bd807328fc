"""A release gate: whether a rollout may go on with a change, by a policy of the rollout's own."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from domain.contract import Contract
from domain.evidence.breach import STEADY_SHORTFALL, breach_action, is_steady_shortfall, suspicion
from domain.evidence.document import Evidence
from domain.measure import excludes_loss
from domain.wording.surplus import SUSPICION
from domain.words import Action
from storage.releases.commit_experiments import CommitExperiment
from storage.releases.freeze import Freeze

# As an Argo measurement is called.
Phase = Literal["Successful", "Failed", "Running"]
POLICIES = "keep, no-breach, or no-harm:SHARE with a share between 0 and 1, no-harm:0.2 say"
POLICY_PATTERN = r"^(keep|no-breach|no-harm:(0?\.[0-9]*[1-9][0-9]*|1(\.0*)?))$"

_FAULTS = {
    "non_identifiable": "the arms differ in more than the change",
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
    """The judgment that a rollout gets.

    Attributes:
        phase: `Successful`: go on; `Failed`: go back; `Running`: neither.
    """

    phase: Phase
    because: str
    experiment: CommitExperiment | None = None


def hold(because: str) -> Judgment:
    """Returns the judgment of a question that no experiment answers."""
    return Judgment(phase="Running", because=f"Hold: {because}")


def frozen(freeze: Freeze, experiment: CommitExperiment | None = None) -> Judgment:
    """Returns the judgment while the service is frozen."""
    because = f"Hold: frozen, {freeze.reason}."
    return Judgment(phase="Running", because=because, experiment=experiment)


def unregistered(commit: str, metric: str) -> Judgment:
    """Returns the judgment on a commit without an experiment."""
    return hold(
        f"commit {commit[:12]} has no experiment on {metric} yet. Register it by"
        " POST /v1/reward/register; a POST of this question registers it, too."
    )


def gate_policy(name: str) -> GatePolicy:
    """Returns a policy as it is written.

    Raises:
        ValueError: It is none of `POLICIES`.
    """
    if re.fullmatch(POLICY_PATTERN, name) is None:
        raise ValueError(f"must be {POLICIES}")
    if name == "keep" or name == "no-breach":  # noqa: PLR1714 (a type checker reads this form)
        return GatePolicy(name=name)
    return GatePolicy(name="no-harm", loss=float(name.partition(":")[2]))


def judgment(
    experiments: Sequence[CommitExperiment],
    *,
    metric: str,
    policy: GatePolicy,
    freeze: Freeze | None,
) -> Judgment | None:
    """Returns the judgment on a commit: go on, hold or roll back.

    A verdict against the commit fails every policy, on whatever metric it stands, and so does a
    breach: it may be why the arms came apart. Nothing else does: to abstain is neither to stop a
    rollout nor to undo it. Of a metric the newest verdict holds; a registration after it, which has
    none yet, takes nothing back. None where nothing is against the commit and no experiment is on
    the metric.

    Args:
        experiments: All of the commit in the environment, the newest first.
        metric: The target that the rollout asks for: whether it may go on is said by the newest
            experiment on it.
    """
    answering = next(
        (experiment for experiment in experiments if experiment.metric == metric), None
    )
    if freeze is not None:
        return frozen(freeze, answering)
    live = [experiment for experiment in experiments if not experiment.is_past]
    for experiment in _in_force(live):
        if (against := _against(experiment)) is not None:
            because = f"{against}{_elsewhere(experiment, answering)}."
            return Judgment(phase="Failed", because=because, experiment=experiment)
    for experiment in _in_force(live):
        if suspicion(experiment.numbers) is Action.PAUSE:
            because = f"Hold: {SUSPICION.lower()}{_elsewhere(experiment, answering)}."
            return Judgment(phase="Running", because=because, experiment=experiment)
    if answering is None:
        return None
    if (fault := _fault(answering)) is not None:
        return Judgment(phase="Running", because=f"Hold: {fault}.", experiment=answering)
    phase, because = _passed(answering.contract, answering.numbers, policy)
    return Judgment(phase=phase, because=because, experiment=answering)


def _in_force(experiments: Sequence[CommitExperiment]) -> Iterator[CommitExperiment]:
    """Yields, of each metric, the experiments down to the newest that has a verdict."""
    answered: set[str] = set()
    for experiment in experiments:
        if experiment.metric not in answered:
            yield experiment
        if experiment.contract.verdict != "abstain":
            answered.add(experiment.metric)


def _against(experiment: CommitExperiment) -> str | None:
    """Returns what speaks for going back, if anything does."""
    contract = experiment.contract
    breaches = ", ".join(contract.guardrail_breaches)
    if contract.verdict == "rollback":
        return "Go back: rollback"
    if is_steady_shortfall(contract, experiment.numbers):
        return None
    if contract.verdict == "iterate":
        return f"Go back: iterate, it harms {breaches or 'a guardrail'}"
    if suspicion(experiment.numbers) is Action.ROLL_BACK:
        return f"Go back: {SUSPICION.lower()}"
    asks = breach_action(contract, experiment.numbers)
    return None if asks in {None, Action.FIX} else f"Go back: {breaches} is breached"


def _elsewhere(experiment: CommitExperiment, answering: CommitExperiment | None) -> str:
    """Names an experiment that is not the experiment asked for."""
    if answering is not None and answering.experiment_id == experiment.experiment_id:
        return ""
    return f", by {experiment.experiment_id} on {experiment.metric}"


def _fault(experiment: CommitExperiment) -> str | None:
    """Returns why an experiment cannot be judged, regardless of its interval and guardrails."""
    contract = experiment.contract
    numbers = experiment.numbers
    if experiment.is_past:
        return "the change was not measured live"
    if is_steady_shortfall(contract, numbers):
        return STEADY_SHORTFALL
    if numbers is not None and numbers.nothing_to_compare is not None:
        return "no build to compare with"
    reason = contract.abstain_reason
    return f"{reason}, {_FAULTS[reason]}" if reason in _FAULTS else None


def _passed(contract: Contract, evidence: Evidence | None, policy: GatePolicy) -> tuple[Phase, str]:
    if contract.verdict == "keep":
        return "Successful", "Go on: keep."
    if policy.name == "no-breach":
        return "Successful", "Go on: no guardrail is breached."
    if policy.loss is not None and excludes_loss(evidence, policy.loss):
        return "Successful", f"Go on: a loss beyond {100 * policy.loss:g} % of control is excluded."
    if contract.decided:
        return "Running", f"Hold: it ended before {policy.name} was shown."
    return "Running", f"Hold: {policy.name} is not shown yet."
