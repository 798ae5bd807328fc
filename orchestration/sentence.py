"""The sentence that leads an evidence document: what is known, for a person in a hurry."""

from datetime import UTC, datetime

from stats.decision import Candidate
from stats.evidence import Evidence
from stats.gate import Cause
from stats.verdict import AbstainReason, EndedBecause, Verdict

_ENDED = {
    EndedBecause.HORIZON: "the horizon was reached without an answer",
    EndedBecause.PROMOTED: "only treatment was left, so nothing could be compared any more",
    EndedBecause.WITHDRAWN: "treatment was withdrawn, so nothing could be compared any more",
    EndedBecause.SUPERSEDED: "another change took over, so nothing could be compared any more",
    EndedBecause.FUTILITY: "the difference, if any, is too small to matter",
    EndedBecause.CLOSED: "it was closed by hand",
}


_BECAUSE = {
    Cause.SAMPLE_RATIO: "the arms do not get the shares that were declared",
    Cause.CROSSOVER: "units move between the arms",
    Cause.LATENESS: "outcomes come too late more often in one arm",
    Cause.INTERACTION: "the effect differs with what else a build carries",
}


def points(value: float) -> str:
    """Returns a difference of rates in percentage points."""
    return f"{100 * value:+.2f} points"


def percent(value: float) -> str:
    """Returns a relative lift in percent."""
    return f"{100 * value:+.1f} %"


def sentence(evidence: Evidence, *, metric: str) -> str:
    """Returns what an experiment's evidence says, in one or two sentences."""
    decision = evidence.decision
    if decision.verdict is not Verdict.ABSTAIN:
        return _answer(evidence, metric=metric)
    if decision.ended_because is not None:
        why = _ENDED[decision.ended_because]
        return f"No answer on {metric}: {why}. {known_sentence(evidence)}".strip()
    if decision.abstain_reason is AbstainReason.NON_IDENTIFIABLE:
        return (
            f"Can't say on {metric}: treatment and control were not served side by side, so the"
            " change cannot be told from what else differs between them."
        )
    if decision.abstain_reason is AbstainReason.INTERACTING:
        why = " and ".join(_BECAUSE[cause] for cause in evidence.gates.interacting_because)
        return f"Can't say on {metric}: {why}, so the difference is not the change's alone."
    if evidence.candidate is not None:
        return _waiting(evidence.candidate, metric=metric)
    return f"Can't say yet on {metric}: {_progress(evidence)}. {known_sentence(evidence)}".strip()


def _answer(evidence: Evidence, *, metric: str) -> str:
    decision, rate = evidence.decision, evidence.arms.control.rate
    lift, ci = decision.lift, decision.ci
    if lift is None or ci is None or rate is None:
        raise ValueError(f"{decision.verdict} without lift, interval and control rate")
    moved = "rose" if lift > 0 else "fell"
    relative = f" ({percent(lift / rate)} of control's {100 * rate:.2f} %)" if rate else ""
    word = {Verdict.KEEP: "Keep", Verdict.ROLLBACK: "Roll back", Verdict.ITERATE: "Iterate"}
    return (
        f"{word[decision.verdict]}: {metric} {moved} by {points(lift)}{relative}; the true"
        f" difference lies between {points(ci[0])} and {points(ci[1])}, however often one looked."
    )


def _waiting(candidate: Candidate, *, metric: str) -> str:
    guardrails = ", ".join(candidate.waits_for) or "its guardrails"
    return (
        f"Almost: {metric} moved by {points(candidate.lift)}, to the better; it is kept once"
        f" {guardrails} is shown unharmed, or when the wait for that is over."
    )


def _progress(evidence: Evidence) -> str:
    sessions = evidence.sessions
    if not sessions.accumulated:
        return "no block of exposed units has closed"
    seen = f"{sessions.accumulated:,} units so far"
    if sessions.required is None:
        return seen
    needed = f"{seen}, about {sessions.required:,.0f} are needed to find a 20 % change"
    at = sessions.projected_decision_at
    if at is None:
        return needed
    return f"{needed}, reached about {datetime.fromtimestamp(at, tz=UTC):%Y-%m-%d %H:%M} UTC"


def known_sentence(evidence: Evidence) -> str:
    """Returns what an interval excludes so far; empty while there is none."""
    known = evidence.known
    if known.not_worse_than is None or known.not_better_than is None:
        return ""
    return (
        f"So far: not worse than {percent(known.not_worse_than)}, not better than"
        f" {percent(known.not_better_than)}."
    )
