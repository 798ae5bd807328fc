"""The ruling: what the looks at an experiment say, in the order of the rules."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stats.cell import Ints
from stats.closing import arms_left, without_contrast
from stats.gate import Cause, GateReadings
from stats.guardrail import Watch
from stats.policy import DAY, Policy
from stats.trace import Trace
from stats.verdict import AbstainReason, EndedBecause, Verdict

MIN_TREATMENT_UNITS = 50
CANDIDATE_WAIT = DAY
CANDIDATE_UNITS = 2  # as many times its units
Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """What the rules say, and by which look.

    Attributes:
        verdict: What to do.
        abstain_reason: Set exactly where the verdict is `abstain`.
        decided: Whether it is final.
        ended_because: Set exactly where it is final and `abstain`.
        look: The number of the look; −1 before any.
        gated: At which looks a gate holds: they neither fire nor enter the running minimum.
        candidate: The look at which the test fired on the better side; None where it did not.
        unproven: Whether it was kept although harm to a guardrail was not excluded.
    """

    verdict: Verdict
    abstain_reason: AbstainReason | None
    decided: bool
    ended_because: EndedBecause | None
    look: int
    gated: Flags
    candidate: int | None = None
    unproven: bool = False

    @property
    def fired(self) -> int:
        """The look at which the numbers of an answer freeze."""
        return self.look if self.candidate is None else self.candidate


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """Which rule holds at which look."""

    looks: Trace
    policy: Policy
    watches: Sequence[Watch]
    horizon: Flags
    contrast_gone: Flags
    aliased: Flags
    interacting: Flags
    sticky: Flags
    gated: Flags
    crossed: Flags

    @property
    def closing(self) -> Flags:
        return self.horizon | self.contrast_gone

    def ended(self, look: int) -> EndedBecause | None:
        if self.horizon[look]:
            return EndedBecause.HORIZON
        if self.contrast_gone[look]:
            return arms_left(self.looks, look, self.policy)
        return None


def decide(
    looks: Trace,
    *,
    gates: GateReadings,
    watches: Sequence[Watch],
    policy: Policy,
    start: int,
    horizon_end: int,
    closed_at: int | None,
) -> Ruling:
    """The ruling of the first look that decides, else of the last look.

    At each look the first rule that holds speaks:

    1. closing: the horizon, no contrast, or by hand → `abstain`, decided, with the reason it has;
    2. `non_identifiable` → `abstain`, open;
    3. `interacting` → `abstain`, open, unless harm in every stratum is told by strata that differ;
    4. candidate: E(0) ≥ 1/α → `rollback` on the worse side, decided; on the better side
       `iterate` once a guardrail is breached, `keep` once harm to each is excluded, or waited for
       in vain; both decided;
    5. futility → `abstain / power`, decided;
    6. else `abstain / power`, open.

    Args:
        looks: The trace of one experiment.
        gates: What its gates read.
        watches: The watches over its guardrails.
        policy: Its frozen numbers.
        start: When exposure began.
        horizon_end: The end of the last block within the horizon.
        closed_at: When it was closed by hand, if that is known by the last look's time.
    """
    rules = _rules(looks, gates, watches, policy, start=start, horizon_end=horizon_end)
    futile = looks.futile & ~rules.gated
    decisive = np.flatnonzero(rules.closing | rules.crossed | futile)
    seen = _seen_before(looks, closed_at)
    by_hand = EndedBecause.CLOSED if closed_at is not None else None
    if not decisive.size or decisive[0] >= seen:
        return _abstention(rules, seen - 1, by_hand)
    look = int(decisive[0])
    if rules.closing[look]:
        return _abstention(rules, look, rules.ended(look))
    if not rules.crossed[look]:
        return _abstention(rules, look, EndedBecause.FUTILITY)
    if not _is_better(float(looks.totals.S[look]), policy):
        return _answer(rules, Verdict.ROLLBACK, look)
    return _of_candidate(rules, look, seen, by_hand)


def _rules(
    looks: Trace,
    gates: GateReadings,
    watches: Sequence[Watch],
    policy: Policy,
    *,
    start: int,
    horizon_end: int,
) -> _Rules:
    aliased = _non_identifiable(looks, policy)
    by_strata = gates.holds[Cause.INTERACTION]
    reached = looks.log_e >= policy.log_threshold
    worse = (looks.totals.S < 0) == (policy.better == "higher")
    worse_everywhere = gates.strata.falls if policy.better == "higher" else gates.strata.rises
    spared = reached & worse & worse_everywhere
    gated = aliased | gates.sticky | (by_strata & ~spared)
    return _Rules(
        looks=looks,
        policy=policy,
        watches=watches,
        horizon=looks.end == horizon_end,
        contrast_gone=without_contrast(looks, policy=policy, start=start),
        aliased=aliased,
        interacting=gates.sticky | by_strata,
        sticky=gates.sticky,
        gated=gated,
        crossed=reached & ~gated,
    )


def _of_candidate(rules: _Rules, look: int, seen: int, by_hand: EndedBecause | None) -> Ruling:
    """What becomes of a test that fired on the better side.

    It waits for its guardrails until the later of a day and twice its units, at the latest until
    the horizon. A cause of `interacting` that stays holds it back; then alone it is closed for
    lack of contrast.
    """
    at = rules.looks.at
    units = rules.looks.n1 + rules.looks.n0
    breached = _any_since(at, [one.breached_at for one in rules.watches])
    proven = _all_since(at, [one.non_inferior_at for one in rules.watches if one.awaited])
    waited = (at >= at[look] + CANDIDATE_WAIT) & (units >= CANDIDATE_UNITS * units[look])
    ends = breached | proven | waited | rules.horizon
    ends = np.where(rules.sticky, rules.closing, ends)
    ends[:look] = False
    last = np.flatnonzero(ends[:seen])
    if not last.size:
        return _abstention(rules, seen - 1, by_hand, candidate=look)
    end = int(last[0])
    if rules.sticky[end]:
        return _abstention(rules, end, rules.ended(end), candidate=look)
    if breached[end]:
        return _answer(rules, Verdict.ITERATE, end, candidate=look)
    return _answer(rules, Verdict.KEEP, end, candidate=look, unproven=not proven[end])


def _answer(
    rules: _Rules,
    verdict: Verdict,
    look: int,
    *,
    candidate: int | None = None,
    unproven: bool = False,
) -> Ruling:
    return Ruling(
        verdict=verdict,
        abstain_reason=None,
        decided=True,
        ended_because=None,
        look=look,
        gated=rules.gated,
        candidate=candidate,
        unproven=unproven,
    )


def _abstention(
    rules: _Rules, look: int, ended: EndedBecause | None, *, candidate: int | None = None
) -> Ruling:
    return Ruling(
        verdict=Verdict.ABSTAIN,
        abstain_reason=_reason(rules, look, waiting=candidate is not None),
        decided=ended is not None,
        ended_because=ended,
        look=look,
        gated=rules.gated,
        candidate=candidate,
    )


def _reason(rules: _Rules, look: int, *, waiting: bool) -> AbstainReason:
    """Which rule abstains; a waiting candidate is past all gates but those that stay."""
    if look < 0:
        return AbstainReason.POWER
    if rules.aliased[look] and not waiting:
        return AbstainReason.NON_IDENTIFIABLE
    if rules.sticky[look] or (rules.interacting[look] and not waiting):
        return AbstainReason.INTERACTING
    return AbstainReason.POWER


def _seen_before(looks: Trace, closed_at: int | None) -> int:
    if closed_at is None:
        return len(looks)
    return int(np.searchsorted(looks.at, closed_at, side="right"))


def _is_better(score: float, policy: Policy) -> bool:
    return (score > 0) == (policy.better == "higher")


def _non_identifiable(looks: Trace, policy: Policy) -> Flags:
    """Treatment has units enough, but nothing, or too little, to compare them with."""
    return (looks.n1 >= MIN_TREATMENT_UNITS) & (looks.vif > policy.vif_limit)


def _any_since(at: Ints, moments: Sequence[int | None]) -> Flags:
    """Whether one of the moments has come, at each look."""
    known = [moment for moment in moments if moment is not None]
    return at >= min(known) if known else np.zeros(at.size, dtype=np.bool_)


def _all_since(at: Ints, moments: Sequence[int | None]) -> Flags:
    """Whether all of the moments have come, at each look."""
    known = [moment for moment in moments if moment is not None]
    if len(known) < len(moments):
        return np.zeros(at.size, dtype=np.bool_)
    return at >= max(known, default=0)
