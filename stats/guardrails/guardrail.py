"""A guardrail: a metric that may not get worse, and its test at each of its closings."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import groupby, islice, pairwise
from typing import Self

import numpy as np
from msgspec import structs

from domain.document import Moment, moment
from domain.evidence.results import EvidenceGuardrail, MetricRow, Threshold, shown_threshold
from stats.counts.cell import Floats, Ints, Totals, number_or_none
from stats.counts.columns import Columns
from stats.guardrails.arm_levels import ArmLevels, LevelsAt, intervals
from stats.guardrails.quantile import quantile_levels
from stats.looks.series import Guardrail
from stats.looks.trace import Batch, StageLooks, in_turn
from stats.sequential.harm import log_harm
from stats.sequential.mixture import Mixture, e_value, precisions

DEFAULT_RELATIVE_MARGIN = 0.2
# Floors of a rate's margin: half a point, but no more than the rate itself, nor less than a
# thousandth: half a point alone let errors triple from 0.1 % in most runs.
LARGEST_FLOOR, SMALLEST_FLOOR = 0.005, 0.001
# The evidence that the arms differ in requests per unit by which picks are no longer read.
REQUESTS_DIFFER = 100
# A guardrail as of a look: its test of harm, and its levels in both arms.
GuardrailReading = tuple[EvidenceGuardrail, MetricRow]


@dataclass(frozen=True, kw_only=True)
class Watch(Columns):
    """A guardrail over time, an entry for each of its closings.

    Attributes:
        at: When the closings were, epoch seconds.
        lift: Treatment's rate minus control's; NaN where nothing was compared.
        log_excluded: Logarithm of the evidence that excludes harm beyond the margin; −∞ where a
            candidate doesn't wait for it.
        levels: Levels of both arms at each closing; None of `arrival`, which counts no outcomes,
            and of several thresholds.
        guardrail: As it was registered; None of `arrival`.
        parts: Of a guardrail with thresholds, each of them.
        picked: The same test of an event of each unit that is picked by chance; None where none is.
        by_position: That test within the position of the event among the unit's.
        log_differ: Logarithm of the evidence that the arms differ in how many units' picks are
            beyond their first events, and so in requests per unit.
    """

    metric: str
    threshold: float
    awaited: bool
    at: Ints
    log_e: Floats
    lift: Floats
    log_excluded: Floats
    levels: ArmLevels | None = None
    guardrail: Guardrail | None = None
    parts: tuple["Watch", ...] = ()
    picked: "Watch | None" = None
    by_position: "Harm | None" = None
    log_differ: Floats | None = None

    @property
    def watch_only(self) -> bool:
        """Whether it decides nothing."""
        return self.guardrail is not None and self.guardrail.watch_only

    @cached_property
    def breached_at(self) -> int | None:
        """The first closing at which the evidence reached the threshold."""
        return first_reached(self.at, self.log_e, self.threshold)

    @cached_property
    def non_inferior_at(self) -> int | None:
        """The first closing at which harm beyond the margin was excluded."""
        return first_reached(self.at, self.log_excluded, self.threshold)


def readings(read: Sequence[tuple[Watch, int]]) -> list[GuardrailReading]:
    """Reads guardrails of any experiments, each as of a moment of its own."""
    shown = [(watch, _shown_parts(watch, at)) for watch, at in read]
    each = iter(
        _readings(
            [
                (own, at)
                for (watch, parts), (_, at) in zip(shown, read, strict=True)
                for own in (watch, *parts)
            ]
        )
    )
    return [_with_thresholds(watch, parts, *islice(each, 1 + len(parts))) for watch, parts in shown]


def _shown_parts(watch: Watch, at: int) -> tuple[Watch, ...]:
    """The thresholds of a guardrail: of its picked events where it is breached by these."""
    picked = tuple(part.picked for part in watch.parts if part.picked is not None)
    if not picked or watch.breached_at is None or watch.breached_at > at:
        return watch.parts
    closing = int(np.searchsorted(watch.at, at, side="right")) - 1
    return watch.parts if _mean(watch.parts)[closing] >= watch.log_e[closing] else picked


def _with_thresholds(
    watch: Watch, shown_parts: tuple[Watch, ...], whole: GuardrailReading, *parts: GuardrailReading
) -> GuardrailReading:
    """Returns the reading of a guardrail, with those of each of its thresholds."""
    rails = [own.guardrail for own in shown_parts or (watch,)]
    over = [
        (rail.over, rail.quantile) for rail in rails if rail is not None and rail.over is not None
    ]
    if not over:
        return whole
    own, (test, joined) = parts or (whole,), whole
    levels = quantile_levels(over, [row for _, row in own])
    thresholds = tuple(
        Threshold(
            over=value,
            quantile=quantile,
            control=row.control,
            treatment=row.treatment,
            difference=row.difference,
            interval=row.interval,
            e_value=own_test.e_value,
            levels=own_levels,
        )
        for (value, quantile), (own_test, row), own_levels in zip(over, own, levels, strict=True)
    )
    shown = shown_threshold(thresholds)
    row = structs.replace(
        own[thresholds.index(shown)][1],
        metric=joined.metric,
        state=joined.state,
        thresholds=thresholds,
        picked=shown_parts is not watch.parts,
    )
    return structs.replace(test, lift=shown.difference), row


def _readings(read: Sequence[tuple[Watch, int]]) -> list[GuardrailReading]:
    closings = [int(np.searchsorted(watch.at, at, side="right")) - 1 for watch, at in read]
    levels = [
        None
        if watch.levels is None or closing < 0
        else LevelsAt(levels=watch.levels, closing=closing, threshold=watch.threshold)
        for (watch, _), closing in zip(read, closings, strict=True)
    ]
    every = iter(intervals([own for own in levels if own is not None]))
    return [
        _reading(watch, closing, at, levels=own, interval=None if own is None else next(every))
        for (watch, at), closing, own in zip(read, closings, levels, strict=True)
    ]


def _reading(
    watch: Watch,
    closing: int,
    at: int,
    *,
    levels: LevelsAt | None,
    interval: tuple[float, float] | None,
) -> GuardrailReading:
    closed = closing >= 0
    breached_at, non_inferior_at = _until(watch.breached_at, at), _until(watch.non_inferior_at, at)
    lift = number_or_none(watch.lift[closing]) if closed else None
    unharmed = "not_known" if non_inferior_at is None else "unharmed"
    harmed = "fewer_so_far" if watch.watch_only else "breached"
    test = EvidenceGuardrail(
        metric=watch.metric,
        e_value=float(e_value(watch.log_e[closing : closing + 1])[0]) if closed else 1.0,
        threshold=watch.threshold,
        breached_at=breached_at,
        non_inferior_at=non_inferior_at,
        lift=lift,
    )
    row = MetricRow(
        metric=watch.metric,
        role="so_far" if watch.watch_only else "guardrail",
        control=None if levels is None else number_or_none(levels.levels.control[closing]),
        treatment=None if levels is None else number_or_none(levels.levels.treatment[closing]),
        difference=lift,
        interval=interval,
        state=unharmed if breached_at is None else harmed,
    )
    return test, row


Beside = Callable[[StageLooks, Watch], Watch]


@dataclass(frozen=True, kw_only=True)
class Closings:
    """The closings of several guardrails, in a row.

    Attributes:
        at: When they were, epoch seconds.
        rho: Precisions of the mixture (closings, components).
    """

    at: Ints
    totals: Totals
    control: Floats
    treatment: Floats
    rho: Floats
    first: Ints

    def of(self, streams: Sequence[int]) -> Self:
        """The closings of some of the streams."""
        bounds = [self.first[stream : stream + 2] for stream in streams]
        rows = np.concatenate([np.arange(*own) for own in bounds])
        return type(self)(
            at=self.at[rows],
            totals=self.totals[rows],
            control=self.control[rows],
            treatment=self.treatment[rows],
            rho=self.rho[rows],
            first=np.cumsum([0, *(stop - begin for begin, stop in bounds)]),
        )


@dataclass(frozen=True, kw_only=True)
class Harm(Columns):
    """A test of harm at each closing; see `Watch`."""

    log_e: Floats
    log_excluded: Floats
    lift: Floats
    variance: Floats


# The streams of a guardrail that picks events, after its own; see `Guardrail.streams`.
_PICKED, _BEYOND_FIRST, _BY_POSITION = 1, 2, 3


def watches(
    guardrails: Sequence[Guardrail], closings: Closings, thresholds: Sequence[float]
) -> list[Watch]:
    """The watches over guardrails; many at once cost little more than a single watch.

    Args:
        closings: Of each of the streams of each guardrail.
        thresholds: Of each k/α_g, with k guardrails registered by its experiment (Bonferroni).
    """
    begins = np.cumsum([0, *(len(each.streams) for each in guardrails)])[:-1].tolist()
    own = _watches(guardrails, closings.of(begins), thresholds)
    picking = [number for number, each in enumerate(guardrails) if each.picked]
    if not picking:
        return own
    rails = [guardrails[number] for number in picking]

    def streams(offset: int) -> Closings:
        return closings.of([begins[number] + offset for number in picking])

    picked = _watches(rails, streams(_PICKED), [thresholds[number] for number in picking])
    places = [streams(_BY_POSITION + place) for place in range(len(rails[0].picked))]
    together = replace(places[0], totals=reduce(Totals.plus, [each.totals for each in places]))
    harm, beyond = _harm(rails, together), streams(_BEYOND_FIRST)
    differ = Mixture(rho=beyond.rho, log_threshold=np.zeros(beyond.at.size))
    log_differ = differ.log_e(beyond.totals.S, beyond.totals.V0)
    for number, watch, rows in zip(picking, picked, _rows(together), strict=True):
        own[number] = replace(
            own[number], picked=watch, by_position=harm[rows], log_differ=log_differ[rows]
        )
    return own


def _rows(closings: Closings) -> list[slice]:
    return [slice(*bounds) for bounds in pairwise(closings.first.tolist())]


def _harm(guardrails: Sequence[Guardrail], closings: Closings) -> Harm:
    totals, sizes = closings.totals, np.diff(closings.first)
    harm = np.where(
        np.repeat([guardrail.better == "lower" for guardrail in guardrails], sizes),
        totals.S,
        -totals.S,
    )
    lift = totals.lift
    sato = totals.sato_variance(np.where(totals.W > 0, lift, 0.0))
    variance = np.maximum(totals.V0, np.where(totals.W > 0, sato, 0.0))
    room = _margins(guardrails, totals, sizes) * totals.W - harm
    awaited = np.repeat([guardrail.margin is not None for guardrail in guardrails], sizes)
    excluded = log_harm(room, variance, closings.rho)
    log_excluded = np.where(awaited & (totals.W > 0), excluded, -np.inf)
    log_e = log_harm(harm, variance, closings.rho)
    return Harm(log_e=log_e, log_excluded=log_excluded, lift=lift, variance=variance)


def _watches(
    guardrails: Sequence[Guardrail], closings: Closings, thresholds: Sequence[float]
) -> list[Watch]:
    """The watches over guardrails by a single stream of each."""
    harm = _harm(guardrails, closings)
    levels = ArmLevels(
        control=closings.control,
        treatment=closings.treatment,
        lift=harm.lift,
        weight=closings.totals.W,
        variance=harm.variance,
        rho=closings.rho,
    )
    return [
        Watch(
            metric=guardrail.of or guardrail.name,
            guardrail=guardrail,
            threshold=threshold,
            awaited=guardrail.margin is not None,
            at=closings.at[own],
            log_e=harm.log_e[own],
            lift=harm.lift[own],
            log_excluded=harm.log_excluded[own],
            levels=levels[own],
        )
        for guardrail, threshold, own in zip(guardrails, thresholds, _rows(closings), strict=True)
    ]


def guardrail_watches(batch: Batch, beside: Beside) -> list[tuple[Watch, ...]]:
    """The watches over the guardrails of each experiment, each closing as its own stage sees it.

    Args:
        beside: Puts another test beside that of a guardrail, or of one of its thresholds.
    """
    stages = [looks for own in batch.stages for looks in own]
    guardrails = [guardrail for looks in stages for guardrail in looks.series.guardrails]
    if not guardrails:
        return [()] * len(batch.stages)
    owners = [looks for looks in stages for _ in looks.series.guardrails]
    each = map(beside, owners, watches(guardrails, _closings(stages), _thresholds(stages)))
    read = [
        [tuple(islice(each, len(looks.series.guardrails))) for looks in own] for own in batch.stages
    ]
    return [
        together(
            in_turn(same, [watch.at for watch in same], own) for same in zip(*rails, strict=True)
        )
        for rails, own in zip(read, batch.stages, strict=True)
    ]


def together(watches: Iterable[Watch]) -> tuple[Watch, ...]:
    """Joins the thresholds of each metric to a single guardrail.

    It is breached by the mean of their evidence, which is evidence itself (Vovk & Wang, Annals of
    Statistics 49, 2021), and unharmed where each of them is: by their mean a doubled p99 was.
    Where events are picked too, harm has to show in the picks and within their positions: where a
    change makes more requests of a slower kind, the picks alone are slower at the same speed.
    Where it makes more or fewer requests per unit, other users reach a position: from then on the
    first values stand alone. A bet that ends is worth nothing, so that the mean stays evidence.
    """
    return tuple(_joined(list(own)) for _, own in groupby(watches, lambda watch: watch.metric))


def _joined(watches: list[Watch]) -> Watch:
    picked = [watch.picked for watch in watches if watch.picked is not None]
    if len(watches) == 1 and not picked:
        return watches[0]
    log_e, excluded = _mean(watches), [watch.log_excluded for watch in watches]
    if picked:
        places = [watch.by_position for watch in watches if watch.by_position is not None]
        differ = np.maximum.reduce(
            [own.log_differ for own in watches if own.log_differ is not None]
        )
        same = np.maximum.accumulate(differ) < math.log(REQUESTS_DIFFER)
        both = np.where(same, np.minimum(_mean(picked), _mean(places)), -np.inf)
        log_e = np.logaddexp(log_e, both) - math.log(2)
        excluded += [place.log_excluded for place in places]
    return replace(
        watches[0],
        log_e=log_e,
        log_excluded=np.minimum.reduce(excluded),
        levels=None,
        parts=tuple(watches),
        picked=None,
        by_position=None,
        log_differ=None,
    )


def _mean(tests: Sequence[Watch] | Sequence[Harm]) -> Floats:
    """The logarithm of the mean of their evidence."""
    mean: Floats = np.logaddexp.reduce([test.log_e for test in tests]) - math.log(len(tests))
    return mean


def _closings(stages: Sequence[StageLooks]) -> Closings:
    """The closings of the guardrails of all stages, whose streams follow those of the targets."""
    line, begin = stages[0].line, stages[0].guardrails.start
    first = line.first[begin:]
    rows, sizes = slice(int(first[0]), int(first[-1])), np.diff(first)
    control, treatment = line.compared.levels
    rho = precisions([looks.series.policy.rho for looks in stages for _ in looks.guardrails])
    return Closings(
        at=line.at[rows],
        totals=line.totals[rows],
        control=control[rows],
        treatment=treatment[rows],
        rho=np.repeat(rho, sizes, axis=0) * line.factor[rows, None],
        first=first - first[0],
    )


def _thresholds(stages: Sequence[StageLooks]) -> list[float]:
    """The evidence of each guardrail at which it is breached: k/α_g, with k registered.

    A guardrail that is only watched has the target's level.
    """
    return [
        1 / looks.series.policy.level
        if own.watch_only
        else len({rail.of or rail.name for rail in looks.series.guardrails if not rail.watch_only})
        / looks.series.policy.guardrail_alpha
        for looks in stages
        for own in looks.series.guardrails
    ]


def first_reached(at: Ints, log_e: Floats, threshold: float) -> int | None:
    """When evidence first reached its threshold."""
    reached = np.flatnonzero(log_e >= math.log(threshold))
    return int(at[reached[0]]) if reached.size else None


def _margins(guardrails: Sequence[Guardrail], totals: Totals, sizes: Ints) -> Floats:
    """The loss that is accepted at each closing; 0 where a candidate waits for none."""
    rate = np.where(totals.W > 0, totals.control_rate, 0.0)
    floor = np.minimum(LARGEST_FLOOR, np.maximum(rate, SMALLEST_FLOOR))
    is_default = np.array([guardrail.margin == "default" for guardrail in guardrails])
    is_mean = np.array([guardrail.cells.values is not None for guardrail in guardrails])
    margins = [guardrail.margin for guardrail in guardrails]
    fixed = [margin if isinstance(margin, float | int) else 0.0 for margin in margins]
    relative = DEFAULT_RELATIVE_MARGIN * np.where(np.repeat(is_mean, sizes), totals.level, rate)
    default = np.where(np.repeat(is_mean, sizes), relative, np.maximum(relative, floor))
    return np.where(np.repeat(is_default, sizes), default, np.repeat(fixed, sizes))


def _until(epoch_seconds: int | None, at: int) -> Moment | None:
    return None if epoch_seconds is None or epoch_seconds > at else moment(epoch_seconds)
