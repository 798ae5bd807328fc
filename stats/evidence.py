"""The evidence: everything behind a verdict, as of the look that it was taken at."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stats.decision import Decision, Interval, abstention, answer
from stats.looks import Looks, p_value, served_intervals, served_rows
from stats.outlook import NO_OUTLOOK, Outlook, Sessions, number_or_none, outlooks
from stats.policy import Policy
from stats.series import Series
from stats.trace import Batch, Trace, traced
from stats.verdict import Ruling, Verdict, decide

__all__ = [
    "Arm",
    "Arms",
    "Decision",
    "Evidence",
    "Known",
    "Looks",
    "Series",
    "Sessions",
    "evaluate",
]

EXPERIMENTS_AT_ONCE = 32  # bounds the memory; results don't depend on it


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Units and conversions of one arm."""

    units: int
    conversions: int

    @property
    def rate(self) -> float | None:
        """Conversions per unit; None without units."""
        return self.conversions / self.units if self.units else None


@dataclass(frozen=True, kw_only=True)
class Arms:
    """Both arms."""

    control: Arm
    treatment: Arm


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is already excluded, as relative lifts: signed, divided by control's rate.

    Attributes:
        not_worse_than: The interval's end on the worse side; None while there is no interval.
        not_better_than: The interval's end on the better side.
        smallest_lift_by_horizon: The smallest rise that the sessions expected by the horizon find
            with 80 % power; None where unknown or decided.
    """

    not_worse_than: float | None
    not_better_than: float | None
    smallest_lift_by_horizon: float | None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything behind a verdict, as of one look.

    Attributes:
        as_of: The look: the deciding one, else the last; None before any.
        arms: Counts of both arms.
        S: Score.
        W: Mantel-Haenszel weight.
        V: Variance of the score under no effect, V₀.
        lift: S/W; None where W = 0.
        e_value: E(0), capped at 1e300.
        log_e: Its logarithm, not capped.
        p_value: min(1, 1/E(0)).
        p_running_min: Its running minimum over ungated looks.
        ci: The interval of the lift, cut to [−1, 1]; None where W = 0.
        vif: Variance inflation factor, infinite where W = 0; None before any look.
        looks: The looks up to this one.
        sessions: Traffic, and what the test needs of it.
        known: What is already excluded.
        eligible_per_day: Units a day of both arms over the last 7 days, or since the start.
        units_in_cells: Units in closed cells.
        open_from: Start of the first block that is in no closed analysis block.
        decision: The verdict.
    """

    as_of: int | None
    arms: Arms
    S: float
    W: float
    V: float
    lift: float | None
    e_value: float
    log_e: float
    p_value: float
    p_running_min: float
    ci: Interval | None
    vif: float | None
    looks: Looks
    sessions: Sessions
    known: Known
    eligible_per_day: float | None
    units_in_cells: int
    open_from: int
    decision: Decision


def evaluate(series: Sequence[Series]) -> list[Evidence]:
    """The evidence of each experiment as of its last look up to `as_of`, or its deciding look.

    Each result is, to the bit, what the experiment alone would give, and doesn't depend on cells
    that close after that look.
    """
    found: list[Evidence] = []
    for begin in range(0, len(series), EXPERIMENTS_AT_ONCE):
        found += _evaluated(series[begin : begin + EXPERIMENTS_AT_ONCE])
    return found


def _evaluated(series: Sequence[Series]) -> list[Evidence]:
    batch = traced(series)
    traces = [batch.trace[batch.rows(i)] for i in range(len(series))]
    rulings = list(map(_ruling, series, traces))
    rows = [
        served_rows(trace, ruling, one.policy)
        for trace, ruling, one in zip(traces, rulings, series, strict=True)
    ]
    intervals = served_intervals(batch, rows)
    looks = list(map(Looks.of, traces, rulings, rows, intervals))
    return list(map(_evidence, series, traces, rulings, looks, _outlooks(series, batch, rulings)))


def _ruling(series: Series, trace: Trace) -> Ruling:
    closed_at = series.closed_at
    if closed_at is not None and closed_at > series.as_of:
        closed_at = None
    return decide(
        trace,
        policy=series.policy,
        start=series.start,
        horizon_end=series.horizon_end,
        closed_at=closed_at,
    )


def _outlooks(series: Sequence[Series], batch: Batch, rulings: Sequence[Ruling]) -> list[Outlook]:
    """Each experiment's outlook at its ruling's look."""
    seen = [i for i, ruling in enumerate(rulings) if ruling.look >= 0]
    rows = np.array([batch.first[i] + rulings[i].look for i in seen], dtype=np.int64)
    found = [NO_OUTLOOK] * len(series)
    views = outlooks([series[i] for i in seen], batch.trace[rows], batch.mixture[rows])
    for i, view in zip(seen, views, strict=True):
        found[i] = view.once_decided() if rulings[i].decided else view
    return found


def _evidence(
    series: Series, trace: Trace, ruling: Ruling, looks: Looks, outlook: Outlook
) -> Evidence:
    if ruling.look < 0:
        return _evidence_before_looks(series, ruling, looks)
    now = trace[ruling.look : ruling.look + 1]
    lift = number_or_none(now.totals.lift[0])
    ci = None if lift is None else (float(looks.ci[-1, 0]), float(looks.ci[-1, 1]))
    running = float(looks.p_running_min[-1])
    if lift is None or ci is None or ruling.verdict is Verdict.ABSTAIN:
        decision = abstention(ruling, at=int(now.at[0]), cadence=outlook.cadence)
    else:
        decision = answer(
            ruling,
            trace,
            policy=series.policy,
            outlook=outlook,
            lift=lift,
            ci=ci,
            p_running_min=running,
        )
    return Evidence(
        as_of=int(now.at[0]),
        arms=Arms(
            control=Arm(units=int(now.n0[0]), conversions=int(now.x0[0])),
            treatment=Arm(units=int(now.n1[0]), conversions=int(now.x1[0])),
        ),
        S=float(now.totals.S[0]),
        W=float(now.totals.W[0]),
        V=float(now.totals.V0[0]),
        lift=lift,
        e_value=float(looks.e_value[-1]),
        log_e=float(now.log_e[0]),
        p_value=float(p_value(now.log_e)[0]),
        p_running_min=running,
        ci=ci,
        vif=float(now.vif[0]),
        looks=looks,
        sessions=outlook.sessions,
        known=_known(series.policy, ci, float(now.totals.control_rate[0]), outlook),
        eligible_per_day=outlook.eligible_per_day,
        units_in_cells=int(now.n0[0] + now.n1[0]),
        open_from=int(now.end[0]),
        decision=decision,
    )


def _evidence_before_looks(series: Series, ruling: Ruling, looks: Looks) -> Evidence:
    return Evidence(
        as_of=None,
        arms=Arms(control=Arm(units=0, conversions=0), treatment=Arm(units=0, conversions=0)),
        S=0.0,
        W=0.0,
        V=0.0,
        lift=None,
        e_value=1.0,
        log_e=0.0,
        p_value=1.0,
        p_running_min=1.0,
        ci=None,
        vif=None,
        looks=looks,
        sessions=NO_OUTLOOK.sessions,
        known=Known(not_worse_than=None, not_better_than=None, smallest_lift_by_horizon=None),
        eligible_per_day=None,
        units_in_cells=0,
        open_from=series.begin,
        decision=abstention(ruling, at=series.closed_at if ruling.decided else None, cadence=None),
    )


def _known(policy: Policy, ci: Interval | None, rate: float, outlook: Outlook) -> Known:
    if ci is None or not rate > 0:
        worse, better = None, None
    else:
        low, high = ci[0] / rate, ci[1] / rate
        worse, better = (low, high) if policy.better == "higher" else (high, low)
    return Known(
        not_worse_than=worse,
        not_better_than=better,
        smallest_lift_by_horizon=outlook.smallest_lift,
    )
