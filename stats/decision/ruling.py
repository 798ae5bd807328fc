"""The ruling: the verdict that the rules give over an experiment's looks, in their order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from domain.metric import DAY
from domain.policy import Numbers
from domain.words import AbstainReason, EndedBecause, Verdict
from stats.counts.cell import Ints
from stats.decision.stand import Stand
from stats.decision.surplus import Surplus
from stats.gates.readings import GateReadings
from stats.guardrails.guardrail import Watch
from stats.looks.closing import arms_left
from stats.looks.trace import Trace

CANDIDATE_WAIT = DAY
CANDIDATE_UNITS = 2  # as many times its units
# No concurrent control is left.
_WITHOUT_CONTROL = (EndedBecause.PROMOTED, EndedBecause.WITHDRAWN, EndedBecause.SUPERSEDED)
Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """The verdict by the rules, and the look that gave it.

    Attributes:
        abstain_reason: Set exactly where the verdict is `abstain`.
        ended_because: Set exactly where it is final and `abstain`.
        look: The number of the look; −1 before any.
        gated: At which looks a gate holds: they neither fire nor enter the running minimum.
        candidate: The look at which the test first held on the better side; None where it did
            not.
        unproven: Whether it was kept although harm to a guardrail was not excluded.
        suspected: Whether it is open, and the test alone says that it is worse.
    """

    verdict: Verdict
    abstain_reason: AbstainReason | None
    decided: bool
    ended_because: EndedBecause | None
    look: int
    gated: Flags
    candidate: int | None = None
    unproven: bool = False
    suspected: bool = False

    @property
    def fired(self) -> int:
        """The look at which the test first held on the side of the answer."""
        kept = self.verdict in {Verdict.KEEP, Verdict.ITERATE}
        return self.candidate if kept and self.candidate is not None else self.look


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """Which rule holds at which look.

    Attributes:
        unstood: A candidate does not stand, though it has to.
        impatient: It has waited long enough.
    """

    looks: Trace
    gates: GateReadings
    policy: Numbers
    horizon: Flags
    ends: Flags
    gated: Flags
    candidate: int | None
    breached: Flags
    proven: Flags
    suspected: Flags
    answered: Flags
    unstood: Flags
    impatient: Flags

    def ended(self, look: int) -> EndedBecause:
        if self.impatient[look]:
            return EndedBecause.DOES_NOT_STAND
        if not self.ends[look]:
            return EndedBecause.FUTILITY
        if self.horizon[look]:
            return EndedBecause.HORIZON
        looks = self.looks
        ending = self.gates.series.ending(int(looks.at[look]))
        # A withdrawal ends it also where nothing stood beside it: nobody has the change.
        if ending is EndedBecause.WITHDRAWN or (ending is not None and looks.n0[look]):
            return ending
        return arms_left(looks.end, looks.n1, looks.n0, look, self.policy)


def decide(
    looks: Trace,
    *,
    gates: GateReadings,
    watches: Sequence[Watch],
    policy: Numbers,
    horizon_end: int,
    closed_at: int | None,
    closed_because: EndedBecause = EndedBecause.CLOSED,
    day_unequal: bool = False,
    surplus: Surplus | None = None,
    stand: Stand | None = None,
) -> Ruling:
    """The ruling of the first look that decides, else of the last look.

    At each look the first rule that holds gives the verdict:

    1. closing: the horizon, no contrast, by hand or by its place → `abstain`, decided; a waiting
       candidate is not closed for lack of contrast, and is answered at the horizon if rule 4 says
       so;
    2. `non_identifiable` → `abstain`, open;
    3. `interacting` → `abstain`, open, unless only strata differ and each of them shows harm;
       outcomes after the window, or left out of a mean, hold back a single side;
    4. E(0) ≥ 1/α → `rollback` on the worse side, decided. The first look on the better side at
       which the test alone holds makes a candidate; from then on, at a look at which E(0) ≥ 1/α
       holds too, `iterate` if a guardrail is breached, `keep` if harm to each is excluded, or
       waited for in vain, and it stands where it has to; both decided. Until then
       `abstain / power`, open; decided where patience ends and it does not stand;
    5. futility → `abstain / power`, decided;
    6. else `abstain / power`, open.

    Args:
        closed_at: When it was closed by hand or by its place, if that is known by the last look's
            time.
        day_unequal: Whether a day is known to differ from the log: then rules 4 and 5 wait.
        surplus: The units beyond declared shares, whose line E has too; None for the test alone.
        stand: None where a keep need not stand.
    """
    rules = _rules(
        looks, gates, watches, policy, horizon_end=horizon_end, surplus=surplus, stand=stand
    )
    futile = looks.futile & ~rules.gated & ~_from(rules.candidate, len(looks))
    rows, margin = np.flatnonzero(futile), policy.futility_margin or 0.0
    for line in (looks.history, surplus):
        if line is not None and rows.size:
            bound = margin * np.abs(looks.totals.control_rate[rows])
            futile[rows] &= line[rows].excludes(bound, policy.log_threshold)
    open_rules = rules.answered | futile | rules.impatient
    decisive = np.flatnonzero(rules.ends | (open_rules & (not day_unequal)))
    known = _seen_before(looks, closed_at)
    if not decisive.size or decisive[0] >= known:
        if closed_because is EndedBecause.PLACE_ENDED and known and rules.unstood[known - 1]:
            closed_because = EndedBecause.DOES_NOT_STAND
        return _abstention(rules, known - 1, None if closed_at is None else closed_because)
    look = int(decisive[0])
    if rules.answered[look] and not day_unequal:
        return _answer(rules, look)
    return _abstention(rules, look, rules.ended(look))


def _rules(
    looks: Trace,
    gates: GateReadings,
    watches: Sequence[Watch],
    policy: Numbers,
    *,
    horizon_end: int,
    surplus: Surplus | None,
    stand: Stand | None,
) -> _Rules:
    reached = looks.log_e >= policy.log_threshold
    worse = _is_worse(looks, policy)
    gated = gates.held_back(harm=reached & worse)
    crossed = reached & ~gated
    candidate = _first(crossed & ~worse)
    # A cause of `interacting` that stays ends the wait: no later look can fire.
    waiting = _from(candidate, len(looks)) & ~gates.permanent
    if candidate is not None:
        waiting[candidate] = False
    horizon = looks.end == horizon_end
    ends = horizon | (looks.contrast_gone & ~waiting)
    breached = _any_since(looks.at, [watch.breached_at for watch in watches])
    proven = _all_since(looks.at, [watch.non_inferior_at for watch in watches if watch.awaited])
    ready = proven | _waited(looks, candidate)
    log_e = looks.log_e if surplus is None else surplus.guarded(looks.log_e)
    certain = crossed & (log_e >= policy.log_threshold)
    answered = certain & (worse | breached | ready) & (waiting | ~ends)
    unstood = impatient = np.zeros(len(looks), dtype=np.bool_)
    if stand is not None and candidate is not None:
        unstood = _from(candidate, len(looks)) & ~stand.holds
        answered &= worse | breached | ~unstood
        over = looks.at >= looks.at[candidate] + policy.patience_seconds
        impatient = unstood & over & ~answered & ~gated
    return _Rules(
        looks=looks,
        gates=gates,
        policy=policy,
        horizon=horizon,
        ends=ends,
        gated=gated,
        candidate=candidate,
        breached=breached,
        proven=proven,
        suspected=crossed & worse & ~certain,
        answered=answered,
        unstood=unstood,
        impatient=impatient,
    )


def _waited(looks: Trace, candidate: int | None) -> Flags:
    """Whether a candidate has waited for its guardrails: a day, and as many units as it had."""
    if candidate is None:
        return np.zeros(len(looks), dtype=np.bool_)
    units = looks.n1 + looks.n0
    return (looks.at >= looks.at[candidate] + CANDIDATE_WAIT) & (
        units >= CANDIDATE_UNITS * units[candidate]
    )


def _answer(rules: _Rules, look: int) -> Ruling:
    """The ruling of a look at which the test holds and its answer waits for nothing."""
    verdict = Verdict.ITERATE if rules.breached[look] else Verdict.KEEP
    if _is_worse(rules.looks, rules.policy)[look]:
        verdict = Verdict.ROLLBACK
    return Ruling(
        verdict=verdict,
        abstain_reason=None,
        decided=True,
        ended_because=None,
        look=look,
        gated=rules.gated,
        candidate=_by(rules.candidate, look),
        unproven=verdict is Verdict.KEEP and not bool(rules.proven[look]),
    )


def _abstention(rules: _Rules, look: int, ended: EndedBecause | None) -> Ruling:
    return Ruling(
        verdict=Verdict.ABSTAIN,
        abstain_reason=_reason(rules, look, ended),
        decided=ended is not None,
        ended_because=ended,
        look=look,
        gated=rules.gated,
        candidate=_by(rules.candidate, look),
        suspected=ended is None and look >= 0 and bool(rules.suspected[look]),
    )


def _reason(rules: _Rules, look: int, ended: EndedBecause | None) -> AbstainReason:
    """Which rule abstains."""
    if look < 0:
        return AbstainReason.POWER
    # A change that was compared fairly, and then withdrawn, lacked units and no control.
    if rules.gates.aliased[look] or (ended in _WITHOUT_CONTROL and not rules.looks.weight[look]):
        return AbstainReason.NON_IDENTIFIABLE
    return AbstainReason.INTERACTING if rules.gates.interacting[look] else AbstainReason.POWER


def _is_worse(looks: Trace, policy: Numbers) -> Flags:
    """Whether the score lies on the worse side."""
    return (looks.totals.S < 0) == (policy.better == "higher")


def _first(holds: Flags) -> int | None:
    """The first look at which something holds."""
    looks = np.flatnonzero(holds)
    return int(looks[0]) if looks.size else None


def _from(first: int | None, looks: int) -> Flags:
    """Whether each look is not before a given look; never where there is none."""
    return np.arange(looks) >= (looks if first is None else first)


def _by(candidate: int | None, look: int) -> int | None:
    """The candidate, where it came up to this look."""
    return candidate if candidate is not None and candidate <= look else None


def _seen_before(looks: Trace, closed_at: int | None) -> int:
    if closed_at is None:
        return len(looks)
    return int(np.searchsorted(looks.at, closed_at, side="right"))


def _any_since(at: Ints, moments: Sequence[int | None]) -> Flags:
    """Whether any of the moments has come, at each look."""
    known = [moment for moment in moments if moment is not None]
    return at >= min(known) if known else np.zeros(at.size, dtype=np.bool_)


def _all_since(at: Ints, moments: Sequence[int | None]) -> Flags:
    """Whether all of the moments have come, at each look."""
    known = [moment for moment in moments if moment is not None]
    if len(known) < len(moments):
        return np.zeros(at.size, dtype=np.bool_)
    return at >= max(known, default=0)
