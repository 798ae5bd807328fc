"""The outcome of a wait for a verdict: its exit code, and why."""

from dataclasses import dataclass
from enum import IntEnum

from domain.contract import Contract
from domain.evidence.breach import STEADY_SHORTFALL, breach_action, is_steady_shortfall, suspicion
from domain.evidence.document import AnyEvidence, Evidence
from domain.figures import length_of_time
from domain.measure import excludes_loss, too_small
from domain.wording.registration import HISTORY
from domain.wording.surplus import SUSPICION
from domain.wording.warnings import WARNINGS
from domain.words import AbstainReason, Action, EndedBecause, Verdict

# A block, the window of `error`, the grace, and three minutes: by then traffic has had a look.
FIRST_LOOK_SECONDS = 900.0
# Endings that are said as they are, also where no event came.
_SAID = (EndedBecause.CLOSED, EndedBecause.CANNOT_START)
_NO_OUTCOME = ("metric_never_seen", "none_in_window")

UNIT_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class Exit(IntEnum):
    """The exit codes of the process."""

    KEEP = 0
    ROLLBACK = 10
    ITERATE = 11
    CLOSED = 12
    BREACHED = 13
    TIMEOUT = 14
    FAULT = 15


@dataclass(frozen=True, kw_only=True)
class Poll:
    """The verdict and evidence of a poll.

    Attributes:
        evidence: The evidence document, never newer than the contract; None before any look.
    """

    contract: Contract
    evidence: AnyEvidence | None
    beside: str | None = None

    @property
    def decided(self) -> bool:
        """Whether the verdict is final."""
        return self.contract.decided

    @property
    def numbers(self) -> Evidence | None:
        """The evidence with its numbers; None where there never were any."""
        return self.evidence if isinstance(self.evidence, Evidence) else None

    @property
    def sentence(self) -> str:
        """The evidence in a sentence."""
        known = None if self.evidence is None else self.evidence.sentence
        said = " ".join(filter(None, [known, self.beside])) or "No look yet: nothing was measured."
        return f"{said} {HISTORY}" if self.numbers and self.numbers.retrospective else said


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of the gate: its exit code and its reason."""

    exit: Exit
    because: str


def outcome(
    poll: Poll, *, accept_harm: float | None, waited: float, timeout: float
) -> Outcome | None:
    """Returns how the gate ends after a poll; None if it goes on waiting.

    A verdict goes before everything. A breach goes before a fault of the set-up, since it may be
    why the arms came apart; both go before an accepted harm, whose interval they make worthless.

    Args:
        accept_harm: The accepted loss, as a share of the control rate; None accepts none.
    """
    last = waited >= timeout
    contract = poll.contract
    breaches = ", ".join(contract.guardrail_breaches)
    ends = {
        Verdict.KEEP: Outcome(exit=Exit.KEEP, because="keep: the treatment is better."),
        Verdict.ROLLBACK: Outcome(exit=Exit.ROLLBACK, because="rollback: the treatment is worse."),
        Verdict.ITERATE: Outcome(
            exit=Exit.ITERATE, because=f"iterate: it helps, but harms {breaches or 'a guardrail'}."
        ),
    }
    return (
        ends.get(contract.verdict)
        or _breach(poll)
        or _fault(poll, last=poll.decided or last, waited=waited)
        or _accepted(poll, accept_harm)
        or _closed(poll)
        or (
            Outcome(exit=Exit.TIMEOUT, because=f"no verdict within {length_of_time(timeout)}.")
            if last
            else None
        )
    )


def _breach(poll: Poll) -> Outcome | None:
    breaches = ", ".join(poll.contract.guardrail_breaches)
    if is_steady_shortfall(poll.contract, poll.numbers):
        because = f"{STEADY_SHORTFALL}: repair the cause, and register anew."
        return Outcome(exit=Exit.FAULT, because=because)
    match breach_action(poll.contract, poll.numbers):
        case Action.ROLL_BACK:
            return Outcome(exit=Exit.BREACHED, because=f"breached without a verdict: {breaches}.")
        case Action.REVISE:
            because = f"it helps, but harms {breaches}: to be revised before any verdict."
            return Outcome(exit=Exit.ITERATE, because=because)
        case _ if suspicion(poll.numbers) is Action.ROLL_BACK:
            return Outcome(exit=Exit.BREACHED, because=f"{SUSPICION.lower()}, without a verdict.")
        case _:
            return None


def _fault(poll: Poll, *, last: bool, waited: float) -> Outcome | None:
    """Returns a fault of the set-up that prevents a verdict; missing events only at the end."""
    reason = poll.contract.abstain_reason
    faults = {
        AbstainReason.NON_IDENTIFIABLE: f"non_identifiable: {_aliased(poll)}.",
        AbstainReason.INTERACTING: f"interacting: {_interacting(poll)}.",
    }
    said = None if reason is None else faults.get(reason)
    said = said or (_silence(poll, waited=waited) if last else None)
    return None if said is None else Outcome(exit=Exit.FAULT, because=said)


def _aliased(poll: Poll) -> str:
    evidence = poll.numbers
    if evidence is not None and evidence.nothing_to_compare is not None:
        # The sentence that is printed before says what is served instead.
        return "there is nothing to compare the change with"
    names = () if evidence is None else evidence.gates.aliased_with
    if not names:
        return "the arms differ in more than the change"
    return f"the change cannot be separated from {', '.join(name[:12] for name in names)}"


def _interacting(poll: Poll) -> str:
    causes = () if poll.numbers is None else poll.numbers.gates.interacting_because
    listed = ", ".join(cause.replace("_", " ") for cause in causes)
    return f"the arms cannot be compared{f' ({listed})' if listed else ''}; see explain"


def _silence(poll: Poll, *, waited: float) -> str | None:
    """Returns which events are missing, at the end of the wait or of the experiment."""
    counts = None if poll.numbers is None else poll.numbers.counts
    if poll.evidence is not None and poll.evidence.ended_because in _SAID:
        return None
    in_cells = 0 if counts is None else counts.in_cells
    if not in_cells and (poll.decided or waited >= FIRST_LOOK_SECONDS):
        if counts is not None and counts.unknown_commit:
            return (
                "no events of a known commit: the deploy of the commit that they name is missing."
            )
        if counts is not None and counts.ambiguous_commit:
            return (
                "no events of this commit alone: they name so little of its id that it begins"
                " several; send the whole id."
            )
        if counts is not None and counts.unknown_build:
            return "no events of a build: none names a commit; send it with each event."
        if counts is None or not counts.open:
            return "no events: nothing was counted; check the events' route and commit."
    warnings = () if poll.evidence is None else poll.evidence.warnings
    return next((WARNINGS[word] for word in _NO_OUTCOME if word in warnings), None)


def _accepted(poll: Poll, accept_harm: float | None) -> Outcome | None:
    """Returns the end by an accepted harm, if a larger loss is excluded."""
    if accept_harm is None or not excludes_loss(poll.numbers, accept_harm):
        return None
    said = f"accepted: a loss beyond {100 * accept_harm:g} % of the control rate is excluded."
    return Outcome(exit=Exit.KEEP, because=said)


def _closed(poll: Poll) -> Outcome | None:
    if not poll.decided:
        return None
    ended = None if poll.evidence is None else poll.evidence.ended_because
    margin = None if poll.numbers is None else poll.numbers.policy.futility_margin
    why = "" if ended is EndedBecause.CLOSED else str(ended or "")
    if ended is EndedBecause.FUTILITY and margin is not None:
        why = f"futility, the difference is {too_small(margin)}"
    return Outcome(
        exit=Exit.CLOSED, because=f"closed without a verdict{f': {why}' if why else ''}."
    )


def while_frozen(reason: str, timeout: float) -> Outcome:
    """Returns how the gate ends while the service is frozen."""
    because = f"frozen: {reason}. No verdict was to be acted on within {length_of_time(timeout)}."
    return Outcome(exit=Exit.TIMEOUT, because=because)
