"""The evidence: all numbers behind a verdict, as of the look that it describes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import islice

import numpy as np
from msgspec import structs

from domain.document import moment
from domain.evidence.counts import Arm, Arms, Sessions, TippingPoint, Vouched
from domain.evidence.results import (
    Adjustment,
    Candidate,
    EvidenceDraw,
    EvidenceGates,
    EvidenceGuardrail,
    EvidenceLook,
    FlagUnits,
    Known,
    MetricRow,
    YesNo,
)
from domain.evidence.results import Stand as ServedStand
from domain.evidence.results import Surplus as ServedSurplus
from domain.evidence.results import Totals as ServedTotals
from domain.metric import HISTORY
from domain.policy import Numbers
from domain.words import EndedBecause, Verdict
from stats.counts.cell import Floats, Ints, number_or_none
from stats.counts.mean import mean_terms, mean_totals
from stats.decision.decision import Decision, Interval, cadence_fired
from stats.decision.effect import Effect, effect_at
from stats.decision.fading import fading_log_e
from stats.decision.outlook import NO_OUTLOOK, Outlook, outlooks
from stats.decision.ruling import CANDIDATE_UNITS, CANDIDATE_WAIT, Ruling, decide
from stats.decision.served_looks import served_intervals, served_looks, served_rows
from stats.decision.stand import Stand, stand_of
from stats.decision.surplus import Surplus, beside_line, surpluses
from stats.decision.tipping_point import tipping_point
from stats.decision.vouched import vouched_outcomes
from stats.gates.companions.left_out import LeftOutReading
from stats.gates.interaction import MIN_CONVERSIONS
from stats.gates.readings import BALANCE, DRAW, NO_GATES, TURNOVER, GateReadings, gate_readings
from stats.gates.shortfall import Shortfall
from stats.gates.turnover import is_unseen
from stats.guardrails.guardrail import GuardrailReading, Watch, guardrail_watches, readings
from stats.looks.series import Series
from stats.looks.stratification import Split, Stratification, stratified
from stats.looks.trace import Batch, Trace, target_cells, traced
from stats.sequential.mixture import Mixture, confidence_sequence, e_value, p_value

# Bound the memory; results don't depend on them.
EXPERIMENTS_AT_ONCE, CELLS_AT_ONCE = 128, 100_000
GUARDRAILS_UNPROVEN = "guardrails_unproven"
ALLOCATION_UNDECLARED = "allocation_undeclared"
FADING = "fading"
FEWER_SO_FAR = "fewer_so_far"
TWIN_UNKNOWN = "twin_unknown"
UNVERIFIED = "unverified"
DAY_UNEQUAL = "day_unequal"
SESSIONS_CUT, TURNOVER_UNSEEN = "sessions_cut", "turnover_unseen"
WHO_CAME = "who_came"
# Ends that the tested party can bring about.
CHOSEN_ENDS = (
    EndedBecause.CLOSED,
    EndedBecause.PROMOTED,
    EndedBecause.WITHDRAWN,
    EndedBecause.SUPERSEDED,
)
NO_UNITS = Arm(units=0, conversions=0, rate=None, late=0)
NO_ARMS = Arms(control=NO_UNITS, treatment=NO_UNITS)
NO_TOTALS = ServedTotals(
    S=0.0, W=0.0, V=0.0, lift=None, e_value=1.0, p_value=1.0, p_running_min=1.0, ci=None
)
NOTHING_KNOWN = Known(
    not_worse_than=None, not_better_than=None, smallest_lift_by_horizon=None, sentence=None
)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All numbers behind a verdict, as of a look.

    Attributes:
        as_of: The deciding look, else the last; None before any.
        arms: Counts of both arms; late units are not counted here.
        totals: The sums of the test: V is V₀ of a conversion, V_y of a continuous metric; W of a
            continuous metric is 0 before it can be tested. Where W = 0 there is no lift and no ci;
            of rates the ci is cut to [−1, 1]. The p-value is min(1, 1/E(0)).
        log_e: The logarithm of E(0), of the test and of the line beside it, not capped.
        vif: Variance inflation factor, infinite where W = 0; None before any look.
        known: Excluded relative lifts.
        eligible_per_day: Units a day of both arms over the last 7 days, or since the start.
        closed_until: Exposure time that closed cells reach: the end of the last analysis block of
            the target that has closed; in other strata the last may end earlier.
        guardrails: Test of each guardrail; `arrival` last, where shares are declared.
        shortfall: Treatment's share of arrivals; None unless `arrival` is breached.
        surplus: The test beside units of a single arm; None where none is asked.
        candidate: The test that first held on the better side; None where it did not.
        yes_no: Beside a mean, the test of whether units had the event; None of a conversion, and
            where nothing was compared.
        adjustment: The gain from the users' history; None where none is read.
        effect: The best estimate of the lift; None where nothing was compared.
        flag_values: Units by value of a flag whose control is not named.
        draw: The units that were held against the published draw; None where it gives no arms.
        confounded_by: The flags that depend on the change and do not split the strata.
        units_excluded: Units of control and treatment in lineages that are not compared.
        vouched: The outcomes that cannot be invented; None where that is not read.
        tipping_point: How many invented sessions would explain the lift; None of a mean, and where
            nothing was compared.
    """

    as_of: int | None = None
    arms: Arms = NO_ARMS
    totals: ServedTotals = NO_TOTALS
    log_e: float = 0.0
    vif: float | None = None
    looks: tuple[EvidenceLook, ...]
    sessions: Sessions = NO_OUTLOOK.sessions
    known: Known = NOTHING_KNOWN
    eligible_per_day: float | None = None
    units_in_cells: int = 0
    closed_until: int
    gates: EvidenceGates = NO_GATES
    guardrails: tuple[EvidenceGuardrail, ...]
    guardrail_rows: tuple[MetricRow, ...]
    candidate: Candidate | None = None
    warnings: tuple[str, ...]
    decision: Decision
    left_out: tuple[LeftOutReading, ...] = ()
    shortfall: Shortfall | None = None
    yes_no: YesNo | None = None
    adjustment: Adjustment | None = None
    effect: Effect | None = None
    splits: tuple[Split, ...] = ()
    draw: EvidenceDraw | None = None
    flag_values: tuple[FlagUnits, ...] = ()
    confounded_by: tuple[str, ...] = ()
    units_excluded: tuple[int, int] = (0, 0)
    compared_with_none: tuple[int, int] = (0, 0)
    tipping_point: TippingPoint | None = None
    vouched: Vouched | None = None
    surplus: ServedSurplus | None = None


def evaluate(
    series: Sequence[Series], *, strata: Sequence[Stratification] | None = None
) -> list[Evidence]:
    """The evidence of each experiment as of its last look up to `as_of`, or its deciding look.

    Each result equals, to the bit, that of the experiment alone, and doesn't depend on cells
    that close after that look.
    """
    if strata is None:
        strata = [stratified(experiment) for experiment in series]
    return [evidence for part in _parts(strata) for evidence in _evaluated(part)]


def _parts(strata: Sequence[Stratification]) -> Iterator[Sequence[Stratification]]:
    """The experiments, so many at once as memory allows."""
    part: list[Stratification] = []
    cells = 0
    for each in strata:
        size = each.series.target.block.size * len(each.stages)
        if part and (len(part) == EXPERIMENTS_AT_ONCE or cells + size > CELLS_AT_ONCE):
            yield part
            part, cells = [], 0
        part.append(each)
        cells += size
    if part:
        yield part


def _evaluated(strata: Sequence[Stratification]) -> list[Evidence]:
    batch = traced(strata)
    rails = guardrail_watches(batch, beside_line)
    read = zip(strata, gate_readings(batch), rails, surpluses(batch), strict=True)
    views = [
        _View(
            strata=own,
            trace=batch.trace[batch.rows(i)],
            gates=gates,
            rails=rails,
            surplus=own_surplus,
            stand=stand_of(
                own.series,
                batch.trace[batch.rows(i)],
                batch.mixture[batch.rows(i)].rho,
                own_surplus,
            ),
        )
        for i, (own, gates, rails, own_surplus) in enumerate(read)
    ]
    rows = [served_rows(view.tested, view.ruling, view.series.policy) for view in views]
    intervals = served_intervals(batch, rows, [view.surplus for view in views])
    looks = [
        served_looks(view.tested, view.ruling, own, ci)
        for view, own, ci in zip(views, rows, intervals, strict=True)
    ]
    guardrails, vouched = _guardrail_readings(views), _vouched_outcomes(views)
    readings_at_look = [
        _Readings(
            looks=looks[number],
            outlook=outlook,
            effect=_effect(view, batch, number, looks[number]),
            guardrails=guardrails[number],
            vouched=vouched[number],
            fading=_is_fading(view, batch, number),
        )
        for number, (view, outlook) in enumerate(zip(views, _outlooks(views, batch), strict=True))
    ]
    return [_evidence(view, read) for view, read in zip(views, readings_at_look, strict=True)]


@dataclass(frozen=True, kw_only=True)
class _View:
    """An experiment's series with its trace, gates, guardrails and ruling."""

    strata: Stratification
    trace: Trace
    gates: GateReadings
    rails: tuple[Watch, ...]
    surplus: Surplus
    stand: Stand | None

    @property
    def series(self) -> Series:
        """The experiment."""
        return self.strata.series

    @cached_property
    def watches(self) -> tuple[Watch, ...]:
        """The guardrails, `arrival` last."""
        rails, arrival = (rail for rail in self.rails if not rail.watch_only), self.gates.arrival
        return tuple(rails) if arrival is None else (*rails, arrival)

    def _so_far(self, at: int) -> Iterator[Watch]:
        """Yields the early reading, until the whole window of the same units has passed."""
        for rail in self.rails:
            if rail.watch_only and rail.guardrail is not None:
                rest = self.series.policy.window_seconds - rail.guardrail.window_seconds
                if rail.breached_at is None or at < rail.breached_at + rest:
                    yield rail

    @cached_property
    def ruling(self) -> Ruling:
        """The verdict by the rules."""
        series, closed_at = self.series, self.series.closed_at
        return decide(
            self.trace,
            gates=self.gates,
            watches=self.watches,
            policy=series.policy,
            horizon_end=series.horizon_end,
            closed_at=None if closed_at is None or closed_at > series.as_of else closed_at,
            closed_because=series.closed_because,
            day_unequal=series.day_unequal,
            surplus=self.surplus,
            stand=self.stand,
        )

    @cached_property
    def tested(self) -> Trace:
        """The trace with the line in its E."""
        return replace(self.trace, log_e=self.surplus.guarded(self.trace.log_e))

    @cached_property
    def now(self) -> Trace:
        """The trace at the ruling's look alone."""
        return self.tested[self.ruling.look : self.ruling.look + 1]

    @property
    def guardrails(self) -> tuple[tuple[Watch, int], ...]:
        """The guardrails, each with the time that it is read at; before them the early reading."""
        look, watches = self.ruling.look, self.watches
        if self.gates.arrival is not None and look >= 0 and not self.gates.is_declared(look):
            watches = watches[:-1]  # it comes last, and no share was declared yet
        at = self.series.start if look < 0 else int(self.trace.at[look])
        return tuple((watch, at) for watch in (*self._so_far(at), *watches))


@dataclass(frozen=True, kw_only=True)
class _Readings:
    """The readings of an experiment at its ruling's look, computed with those of others."""

    looks: tuple[EvidenceLook, ...]
    outlook: Outlook
    effect: Effect | None
    guardrails: tuple[GuardrailReading, ...]
    vouched: Vouched | None
    fading: bool

    @property
    def tests(self) -> tuple[EvidenceGuardrail, ...]:
        """The guardrails' tests of harm."""
        return tuple(test for test, row in self.guardrails if row.role == "guardrail")

    @property
    def rows(self) -> tuple[MetricRow, ...]:
        """The row of each metric but the target."""
        return tuple(row for _, row in self.guardrails)


def _guardrail_readings(views: Sequence[_View]) -> list[tuple[GuardrailReading, ...]]:
    each = [view.guardrails for view in views]
    read = iter(readings([rail for rails in each for rail in rails]))
    return [tuple(islice(read, len(rails))) for rails in each]


def _vouched_outcomes(views: Sequence[_View]) -> list[Vouched | None]:
    """Each experiment's at its ruling's look; None where there is none, or it is not read."""
    looked = [number for number, view in enumerate(views) if view.ruling.look >= 0]
    read = vouched_outcomes([(views[number].strata, views[number].now) for number in looked])
    vouched = dict(zip(looked, read, strict=True))
    return [vouched.get(number) for number in range(len(views))]


def _outlooks(views: Sequence[_View], batch: Batch) -> list[Outlook]:
    """Each experiment's outlook at its ruling's look; none before a block of its target closed."""
    outlooks_by_view = [NO_OUTLOOK] * len(views)
    started = [
        i
        for i, view in enumerate(views)
        if view.ruling.look >= 0 and view.trace.end[view.ruling.look] > view.series.start
    ]
    rows = np.array([batch.first[i] + views[i].ruling.look for i in started], dtype=np.int64)
    series = [
        views[i].strata.stage_at(int(at)).population.series
        for i, at in zip(started, batch.trace.at[rows], strict=True)
    ]
    lines = [views[i].surplus[views[i].ruling.look : views[i].ruling.look + 1] for i in started]
    if not started:
        return outlooks_by_view
    own = outlooks(series, batch.trace[rows], batch.mixture[rows], reduce(Surplus.then, lines))
    for i, outlook in zip(started, own, strict=True):
        outlooks_by_view[i] = outlook.once_decided() if views[i].ruling.decided else outlook
    return outlooks_by_view


def _effect(
    view: _View, batch: Batch, number: int, looks: tuple[EvidenceLook, ...]
) -> Effect | None:
    """The effect at the ruling's look.

    Whoever ends an experiment after the effect was due does not choose its moment: it is then that
    of the last fair look before.
    """
    look, trace, policy = view.ruling.look, view.trace, view.series.policy
    if look < 0:
        return None
    due = view.series.start + policy.reward_seconds
    fair = np.flatnonzero((trace.at <= due) & ~view.ruling.gated & (trace.totals.W > 0))
    moved = (
        view.ruling.ended_because in CHOSEN_ENDS
        and trace.at[look] > due
        and fair.size > 0
        # An arm that was gone before is noticed days later, and its moment was chosen.
        and trace.weight[look] > trace.weight[fair[-1]]
    )
    row = int(fair[-1]) if moved else look
    effect = effect_at(
        batch,
        int(batch.first[number]) + row,
        policy,
        is_rate=view.series.target.values is None,
        surplus=view.surplus[row : row + 1],
        interval=None if moved else looks[-1].ci,
    )
    return effect and replace(effect, moved=moved)


def _is_fading(view: _View, batch: Batch, number: int) -> bool:
    """Whether the effect at the ruling's look is not the first effect."""
    look = view.ruling.look
    if look < 0:
        return False
    # Each half needs so many conversions of each arm: fewer in all can't be compared.
    if min(view.trace.x1[look], view.trace.x0[look]) < 2 * MIN_CONVERSIONS:
        return False
    row = batch.first[number] + look
    cells = target_cells(view.strata, int(view.trace.at[look]))
    return fading_log_e(cells, mixture=batch.mixture[row : row + 1]) >= math.log(
        view.series.policy.fading_at
    )


def _evidence(view: _View, read: _Readings) -> Evidence:
    series, ruling, looks, outlook = view.series, view.ruling, read.looks, read.outlook
    if ruling.look < 0:
        return _evidence_before_looks(view, read)
    now = view.now
    units = int(now.n1[0]), int(now.n1[0] + now.n0[0])
    gates = view.gates.shown(ruling.look, units)
    ci, candidate = looks[-1].ci, _candidate(view, looks, read.tests)
    return Evidence(
        as_of=int(now.at[0]),
        arms=_arms(view),
        totals=ServedTotals(
            S=float(now.totals.S[0]),
            W=float(now.totals.W[0]),
            V=float(now.totals.V0[0]),
            lift=number_or_none(now.totals.lift[0]),
            e_value=looks[-1].e_value,
            p_value=float(p_value(now.log_e)[0]),
            p_running_min=looks[-1].p_running_min,
            ci=ci,
        ),
        log_e=float(now.log_e[0]),
        vif=view.gates.vif(ruling.look),
        looks=looks,
        sessions=_sessions(view, candidate, outlook),
        known=_known(series.policy, ci, float(now.totals.control_rate[0]), outlook),
        eligible_per_day=outlook.eligible_per_day,
        units_in_cells=int(now.compared.units[0]),
        compared_with_none=(
            int(now.n0[0] - now.compared.n0[0]),
            int(now.n1[0] - now.compared.n1[0]),
        ),
        closed_until=int(now.end[0]),
        gates=gates,
        guardrails=read.tests,
        guardrail_rows=read.rows,
        candidate=candidate,
        surplus=_surplus(view),
        warnings=_warnings(view, read),
        decision=_decision(view, looks[-1], outlook, read.tests),
        left_out=view.gates.left_out(ruling.look),
        shortfall=view.gates.shortfall(ruling.look),
        yes_no=_yes_no(series, now),
        adjustment=_adjustment(view),
        effect=read.effect,
        splits=view.strata.splits(int(now.at[0])),
        draw=DRAW.shown(view.gates.by_gate[DRAW], ruling.look),
        flag_values=view.strata.flag_values(int(now.at[0])),
        confounded_by=view.strata.confounded_by(int(now.at[0])),
        units_excluded=view.strata.excluded_units(int(now.at[0])),
        tipping_point=tipping_point(series, now, is_declared=gates.sample_ratio_e is not None),
        vouched=read.vouched,
    )


def _adjustment(view: _View) -> Adjustment | None:
    now, history = view.now, view.series.companions.get(HISTORY)
    cells = target_cells(view.strata, int(now.at[0]))
    is_adjusted = view.series.target.kind == "adjusted" and now.totals.W[0] > 0
    if history is None or cells.values is None or not is_adjusted:
        return None
    plain, _ = mean_totals(mean_terms(cells.n1, cells.n0, cells.values).sum(axis=1, keepdims=True))
    left = float(now.totals.V0[0] / plain[2, 0])
    known = history.cells.between(0, int(now.end[0]))
    users = int((known.n1 + known.n0).sum())
    return Adjustment(
        with_history=int((known.x1 + known.x0).sum()) / users,
        explained=1 - left,
        narrower=1 - math.sqrt(left),
        is_read=now.history is not None and bool(now.history.is_asked[0]),
    )


def _yes_no(series: Series, now: Trace) -> YesNo | None:
    if series.target.values is None or not now.events.W[0] > 0:
        return None
    policy, events = series.policy, now.events
    mixture = Mixture(rho=np.array([policy.rho]), log_threshold=np.array([policy.log_threshold]))
    low, high = np.clip(confidence_sequence(events, mixture)[0], -1.0, 1.0).tolist()
    return YesNo(
        lift=float(events.lift[0]),
        e_value=float(e_value(mixture.log_e(events.S, events.V0))[0]),
        ci=(low, high),
    )


def _decision(
    view: _View, last: EvidenceLook, outlook: Outlook, guardrails: Sequence[EvidenceGuardrail]
) -> Decision:
    ruling, trace = view.ruling, view.trace
    breaches = tuple(
        guardrail.metric for guardrail in guardrails if guardrail.breached_at is not None
    )
    ci, lift, at = last.ci, last.lift, int(trace.at[ruling.look])
    if ci is None or lift is None or ruling.verdict is Verdict.ABSTAIN:
        return Decision.of(ruling, at=at, cadence=outlook.cadence, guardrail_breaches=breaches)
    policy, traffic = view.series.policy, outlook.eligible_per_day
    value = policy.value_per_conversion
    return Decision.of(
        ruling,
        at=at,
        cadence=cadence_fired(trace, ruling.fired),
        lift=lift,
        confidence=1.0 - last.p_running_min,
        ci=ci,
        # Value of all units, not only of the measured ones.
        value_at_risk=None
        if value is None or traffic is None
        else lift * (traffic / policy.sample_rate) * value,
        guardrail_breaches=breaches,
    )


def _candidate(
    view: _View, looks: Sequence[EvidenceLook], guardrails: Sequence[EvidenceGuardrail]
) -> Candidate | None:
    look = view.ruling.candidate
    if look is None:
        return None
    at = moment(int(view.trace.at[look]))
    fired = next(served for served in looks if served.at == at)
    if fired.ci is None or fired.lift is None:
        raise ArithmeticError("a test fired where nothing was compared")
    awaited = {watch.metric for watch in view.watches if watch.awaited}
    return Candidate(
        at=at,
        lift=fired.lift,
        confidence=1.0 - fired.p_running_min,
        ci=fired.ci,
        cadence=cadence_fired(view.trace, look),
        holds=bool(view.trace.log_e[view.ruling.look] >= view.series.policy.log_threshold),
        waits_for=tuple(
            guardrail.metric
            for guardrail in guardrails
            if guardrail.metric in awaited and guardrail.non_inferior_at is None
        ),
        stand=_stand(view, look),
    )


def _stand(view: _View, candidate: int) -> ServedStand | None:
    """The stand of a candidate at the ruling's look."""
    look, stand, series = view.ruling.look, view.stand, view.series
    if stand is None:
        return None
    read = int(stand.record[look])
    record = None if read < 0 else stand.records[read]
    return ServedStand(
        e_value=float(e_value(stand.log_e[look : look + 1])[0]),
        needed=record.needed if record is not None and record.judged else None,
        record=record,
        holds=bool(stand.holds[look]),
        until=moment(int(view.trace.at[candidate]) + series.policy.patience_seconds),
    )


def _sessions(view: _View, candidate: Candidate | None, outlook: Outlook) -> Sessions:
    """The sessions so far, and those needed: a waiting keep needs those of its guardrails.

    A keep that waits for something else has no date: nobody knows when it is shown.
    """
    look = view.ruling.candidate
    if candidate is None or look is None or view.ruling.decided:
        return outlook.sessions
    units, at = int(view.trace.n1[look] + view.trace.n0[look]), int(view.trace.at[look])
    waits = bool(candidate.waits_for)
    return structs.replace(
        outlook.sessions,
        required=float(CANDIDATE_UNITS * units) if waits else None,
        required_fast=None,
        projected_decision_at=moment(at + CANDIDATE_WAIT) if waits else None,
    )


def _arms(view: _View) -> Arms:
    now, kind = view.now.compared, view.series.target.kind
    control, treatment = now.levels
    return Arms(
        control=_arm(kind, now.n0, now.x0, (now.y0, now.d0), control),
        treatment=_arm(kind, now.n1, now.x1, (now.y1, now.d1), treatment),
    )


def _arm(
    kind: str, units: Ints, conversions: Ints, sums: tuple[Floats, Floats], levels: Floats
) -> Arm:
    """The counts of an arm at a look, and its level: the rate beside another is of its event."""
    n, x, level = int(units[0]), int(conversions[0]), number_or_none(levels[0])
    if kind == "conversion":
        return Arm(units=n, conversions=x, rate=level, late=0)
    total, per = (float(own[0]) for own in sums)
    rate, over = x / n if n else None, per if kind == "ratio" else None
    return Arm(units=n, conversions=x, rate=rate, total=total, per=over, mean=level, late=0)


def _surplus(view: _View) -> ServedSurplus | None:
    """The line beside units of a single arm at the ruling's look; None where none is asked."""
    look, surplus = view.ruling.look, view.surplus
    if not surplus.is_asked[look]:
        return None
    return ServedSurplus(
        e_value=float(e_value(surplus.log_e[look : look + 1])[0]),
        holds=bool(surplus.log_e[look] >= view.series.policy.log_threshold),
        suspected=view.ruling.suspected,
        declared=float(surplus.declared[look]),
        served=float(surplus.served[look]),
        units=int(surplus.units[look]),
    )


def _warnings(view: _View, read: _Readings) -> tuple[str, ...]:
    series, ruling, look, vouched = view.series, view.ruling, view.ruling.look, read.vouched
    shares = [epoch.share for epoch in series.allocation or ()]
    undeclared = bool(series.allocation) and not any(share is not None for share in shares)
    asked = look >= 0 and bool(view.surplus.is_asked[look])
    warnings = {
        DAY_UNEQUAL: series.day_unequal,
        TWIN_UNKNOWN: ruling.verdict is Verdict.KEEP
        and not asked
        and any(share and share < 1 for share in shares),
        GUARDRAILS_UNPROVEN: ruling.unproven,
        ALLOCATION_UNDECLARED: undeclared,
        FADING: read.fading,
        UNVERIFIED: ruling.verdict is Verdict.KEEP
        and vouched is not None
        and vouched.in_part
        and not vouched.holds,
        SESSIONS_CUT: ruling.verdict is Verdict.ROLLBACK
        and TURNOVER.cuts_sessions(view.gates.by_gate[TURNOVER], look)
        and bool(view.now.totals.S[0] < 0),
        WHO_CAME: look >= 0 and BALANCE.differs(view.gates.by_gate[BALANCE], look),
        FEWER_SO_FAR: not ruling.decided and any(row.state == FEWER_SO_FAR for row in read.rows),
        TURNOVER_UNSEEN: ruling.look >= 0 and is_unseen(series, int(view.now.at[0])),
    }
    return tuple(word for word, holds in warnings.items() if holds)


def _evidence_before_looks(view: _View, read: _Readings) -> Evidence:
    series, ruling = view.series, view.ruling
    return Evidence(
        looks=read.looks,
        closed_until=series.begin,
        guardrails=read.tests,
        guardrail_rows=read.rows,
        warnings=_warnings(view, read),
        decision=Decision.of(ruling, at=series.closed_at if ruling.decided else None),
    )


def _known(policy: Numbers, ci: Interval | None, rate: float, outlook: Outlook) -> Known:
    if ci is None or not abs(rate) > 0:
        worse, better = None, None
    else:
        low, high = ci[0] / abs(rate), ci[1] / abs(rate)
        worse, better = (low, high) if policy.better == "higher" else (high, low)
    return Known(
        not_worse_than=worse,
        not_better_than=better,
        smallest_lift_by_horizon=outlook.smallest_lift,
        sentence=None,
    )
