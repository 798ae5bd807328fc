"""The sentence of an evidence document: its result so far, in a sentence or two."""

from collections.abc import Sequence
from dataclasses import dataclass

from domain.cause import Cause
from domain.evidence.policy import EvidencePolicy
from domain.evidence.results import Adjustment
from domain.figures import listed, percent
from domain.lineage.serving import MissingControl
from domain.lineage.takeover import Takeover
from domain.measure import Measure, too_small
from domain.wording.base_move import promotion_clause
from domain.wording.headline import NO_ANSWER, VERDICTS
from domain.wording.left_out import CURES, UNKNOWN_USER, unclear_sentence
from domain.wording.metrics import never_received
from domain.wording.registration import nothing_to_compare_sentence
from domain.wording.surplus import SUSPICION, awaited_line, awaited_stand
from domain.words import AbstainReason, EndedBecause, Verdict
from stats.decision.evidence import DAY_UNEQUAL, Evidence
from stats.gates.readings import CONTRAST, GATES
from stats.gates.shortfall import Shortfall

_ENDED = {
    EndedBecause.HORIZON: "the horizon was reached without an answer",
    EndedBecause.PROMOTED: "only treatment was left, so nothing could be compared any more",
    EndedBecause.WITHDRAWN: "treatment was withdrawn, so nothing could be compared any more",
    EndedBecause.SUPERSEDED: "another change took over, so nothing could be compared any more",
    EndedBecause.NOTHING_TO_COMPARE: "no build without it was ever served, so nothing could be"
    " compared",
    EndedBecause.CLOSED: "it was closed by hand",
    EndedBecause.DOES_NOT_STAND: "it did not stand beside the project's other changes in time",
    EndedBecause.PLACE_ENDED: "its place ended before",
}
_UNFAIR = (AbstainReason.NON_IDENTIFIABLE, AbstainReason.INTERACTING)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The statements of an experiment's evidence."""

    sentence: str
    reason: str


def statement(
    evidence: Evidence,
    measure: Measure,
    policy: EvidencePolicy,
    *,
    left_out: str | None = None,
    alone: MissingControl | None = None,
    silent: Sequence[str] = (),
    ending: Takeover | None = None,
) -> Statement:
    """Returns the statements of an experiment's evidence.

    Args:
        left_out: The outcomes that do not count; None where all do.
        ending: The deploy by which users had the change all, or none; None where there was none.
    """
    if alone is not None:
        said = nothing_to_compare_sentence(alone)
        return of_the_experiment("Can't say", said[:1].lower() + said[1:])
    said = _statement(evidence, measure, policy, silent, ending)
    shortfall = evidence.shortfall
    more = [
        left_out,
        None if shortfall is None else _shortfall(shortfall),
        unclear_sentence(evidence.flag_values, policy.unit),
        CURES[UNKNOWN_USER] if Cause.USER_UNNAMED in evidence.gates.interacting_because else None,
    ]
    return Statement(
        sentence=" ".join(filter(None, [said.sentence, *more])),
        reason=" ".join(filter(None, [said.reason, *more])),
    )


def of_the_change(word: str, clause: str) -> Statement:
    """Returns a statement on the change's effect."""
    return Statement(sentence=f"{word}: {clause}", reason=f"With this change, {clause}")


def of_the_metric(word: str, metric: str, clause: str) -> Statement:
    """Returns a statement on why a metric gives no answer."""
    return Statement(sentence=f"{word} on {metric}: {clause}", reason=f"On {metric}: {clause}")


def of_the_experiment(word: str, clause: str) -> Statement:
    """Returns a statement on an experiment in which nothing can be measured."""
    return Statement(sentence=f"{word}: {clause}", reason=f"{clause[:1].upper()}{clause[1:]}")


def _shortfall(shortfall: Shortfall) -> str:
    """Returns what arrives of treatment, and what may be the cause."""
    share = f"Treatment gets {100 * shortfall.actual:.3g} % of the units"
    declared = f"where {100 * shortfall.declared:.3g} % is declared"
    if not shortfall.actual:
        return (
            f"No unit of treatment came, {declared}: either no unit was sent to it, or the build"
            " dies before it can report."
        )
    if shortfall.steady:
        return (
            f"{share}, {declared}, at a steady ratio: either the router's weight is mis-set, or the"
            " build dies before it can report."
        )
    if shortfall.fell:
        return f"{share}, {declared}, and its share fell: the build may die before it can report."
    return f"{share}, {declared}: the build may die before it can report."


def _statement(
    evidence: Evidence,
    measure: Measure,
    policy: EvidencePolicy,
    silent: Sequence[str],
    ending: Takeover | None,
) -> Statement:
    decision, metric = evidence.decision, measure.name
    if decision.verdict is not Verdict.ABSTAIN:
        answer = _answer(evidence, measure, policy.level)
        return of_the_change(VERDICTS[decision.verdict], answer)
    if decision.ended_because is not None:
        why, margin = decision.ended_because, policy.futility_margin
        if why is EndedBecause.FUTILITY and margin is not None:
            ended = f"the difference, if any, is {too_small(margin)}"
        elif why is EndedBecause.PROMOTED and ending is not None:
            got = f"everybody got the change{promotion_clause(ending)}"
            ended = f"{got}, so nothing could be compared any more"
        else:
            ended = _ENDED[why]
        said = [f"{ended}.", _held_back(evidence, silent), known_sentence(evidence, measure)]
        return of_the_metric(NO_ANSWER, metric, " ".join(filter(None, said)))
    if decision.abstain_reason in _UNFAIR:
        return of_the_metric("Can't say", metric, f"{_unfair(evidence)}.")
    if DAY_UNEQUAL in evidence.warnings:
        waits = "a day of its counts differs from the log, and it is decided once that is repaired."
        return of_the_metric("Can't say yet", metric, waits)
    if (waiting := _waiting(evidence, measure)) is not None:
        return waiting
    known = known_sentence(evidence, measure)
    return of_the_metric("Can't say yet", metric, f"{_progress(evidence, policy)}. {known}".strip())


def _unfair(evidence: Evidence) -> str:
    """Returns why what differs is not the change's alone."""
    if evidence.decision.abstain_reason is AbstainReason.NON_IDENTIFIABLE:
        return CONTRAST.why
    causes = evidence.gates.interacting_because
    why = " and ".join(gate.why for gate in GATES if gate.cause in causes)
    if evidence.shortfall is not None and causes == (Cause.SAMPLE_RATIO,):
        return why
    return f"{why}, so the comparison is not fair"


def _answer(evidence: Evidence, measure: Measure, level: float) -> str:
    decision, control = evidence.decision, measure.control
    lift, ci = decision.lift, decision.ci
    if lift is None or ci is None or control is None:
        raise ValueError(f"{decision.verdict} without lift, interval and control")
    moved = "rose" if lift > 0 else "fell"
    share = f"{100 * abs(lift / control):.1f} %" if control else ""
    relative = f" ({share} of control's {measure.level(control)})" if control else ""
    low, high = (measure.difference(measure.possible(end)) for end in ci)
    return (
        f"{measure.name} {moved} by {measure.size(lift)}{relative};"
        f" {100 * (1 - level):.4g} % sure: between {low} and {high}."
    )


def _waiting(evidence: Evidence, measure: Measure) -> Statement | None:
    """Returns a difference that waits for something more; None where there is none."""
    candidate, lift = evidence.candidate, evidence.totals.lift
    suspected = evidence.surplus is not None and evidence.surplus.suspected
    if lift is None or not (candidate or suspected):
        return None
    said = [f"{measure.name} is {'up' if lift > 0 else 'down'} {measure.size(lift)}."]
    if suspected:
        return of_the_change(SUSPICION, said[0])
    if candidate is not None and not candidate.holds:
        said.append("The difference was beyond chance before, but is not at the moment.")
    return of_the_change("Almost", " ".join(said))


def _held_back(evidence: Evidence, silent: Sequence[str]) -> str | None:
    """Returns the conditions that a keep waited for in vain; None without any."""
    candidate = evidence.candidate
    if candidate is None:
        return None
    line, guardrails = awaited_line(evidence.surplus), listed(candidate.waits_for)
    untils = [*filter(None, [line, awaited_stand(candidate)])]
    waited = [f"for {guardrails}" if guardrails else None, *(f"until {each}" for each in untils)]
    if not any(waited):
        return None
    since = f"It was beyond chance at {candidate.at:%d %b %H:%M} UTC, and waited"
    never = never_received(silent, candidate)
    return " ".join(filter(None, [f"{since} {listed([*filter(None, waited)])}.", never]))


def _progress(evidence: Evidence, policy: EvidencePolicy) -> str:
    units = evidence.sessions.accumulated
    if units:
        return f"{units:,} {policy.unit}s counted"
    is_early = any(
        row.role == "so_far" and row.control is not None for row in evidence.guardrail_rows
    )
    return "no window has passed yet" if is_early else "nothing was measured yet"


_LEAST_NARROWER = 0.005


def adjustment_sentence(adjustment: Adjustment, unit: str) -> str:
    """Returns the sentence on the gain from the history of users."""
    users, explained, narrower = (
        f"{100 * share:.0f} %"
        for share in (adjustment.with_history, adjustment.explained, adjustment.narrower)
    )
    if not adjustment.is_read:
        return (
            f"{users} of {unit}s have a history. The arms differ in who came, so test and effect"
            " do without it."
        )
    # Slopes of early blocks may fit later blocks badly: then the interval is a little wider.
    if adjustment.narrower < _LEAST_NARROWER:
        return f"{users} of {unit}s have a history, which does not narrow the interval so far."
    return (
        f"{users} of {unit}s have a history. It explains {explained} of how {unit}s differ: the"
        f" interval is {narrower} narrower than without it."
    )


def known_sentence(evidence: Evidence, measure: Measure) -> str:
    """Returns the lifts that an interval excludes so far; empty where it excludes no such lift."""
    # A gate holds: what differs is not the change's alone.
    if evidence.looks and evidence.looks[-1].gated:
        return ""
    known = evidence.known
    bounds = {"worse": known.not_worse_than, "better": known.not_better_than}
    parts = [
        f"not {side} than {percent(bound)}"
        for side, bound in bounds.items()
        # No rate falls by more than all of it.
        if bound is not None and (measure.mean or bound > -1)
    ]
    return f"So far: {', '.join(parts)}." if parts else ""
