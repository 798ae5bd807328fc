"""Series: converts an experiment's stored cells into the engine's input."""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domain.lineage.flag import is_segment
from domain.lineage.takeover import Takeover, takeovers
from domain.metric import HISTORY, SO_FAR, WITH_HISTORY, FrozenMetric, picked_cells
from domain.words import EndedBecause
from stats.counts.arrivals import Arrivals, Epoch, UnknownBuilds
from stats.counts.closed_cells import Adjusted, ClosedCells, Pairs, Values
from stats.counts.finding import Findings, LateUnits
from stats.counts.pooled_flag import PooledFlag
from stats.counts.traits import ABSENT, Traits
from stats.counts.unit_counts import UnitCounts
from stats.looks.series import Companion, Guardrail, Series
from storage.verdicts.evidence import ExperimentReading
from storage.verdicts.gates import Allocation
from storage.verdicts.packed_cells import Columns


def seconds(moment: datetime) -> int:
    """Returns whole seconds since the epoch, which the engine counts time in."""
    return int(moment.timestamp())


def series_of(reading: ExperimentReading) -> Series:
    """Returns the series of an experiment."""
    policy, units = reading.policy, _arrays(reading.gates.units)
    grace = policy.grace_seconds
    cells = {
        metric.name: _closed_cells(reading.cells_by_metric[metric.name], kind=metric.kind)
        for metric in (*policy.guardrails, *policy.companions)
    }
    so_far = [companion for companion in policy.companions if companion.role == SO_FAR]
    share_declared = any(span.share for span in reading.allocations)
    return Series(
        # Windows and graces decide when a block closes; `stats` knows a single grace.
        policy=policy.numbers,
        start=seconds(reading.starts_at),
        as_of=seconds(reading.as_of),
        closed_at=None if reading.closed_at is None else seconds(reading.closed_at),
        closed_because=EndedBecause.PLACE_ENDED if reading.place_ended else EndedBecause.CLOSED,
        cuts=tuple(seconds(cut) for cut in reading.cuts),
        target=_target(reading),
        guardrails=tuple(
            Guardrail(
                name=metric.name,
                better=metric.better,
                window_seconds=metric.seconds_open(grace=grace),
                margin=metric.margin,
                over=metric.over,
                quantile=metric.quantile,
                of=metric.of,
                watch_only=metric in so_far,
                cells=cells[metric.name],
                picked=_picked(reading, metric),
            )
            for metric in (*policy.guardrails, *so_far)
        ),
        allocation=_epochs(reading.allocations) if share_declared else None,
        stratum_shares={
            place: _epochs(reading.stratum_shares[lineage])
            for place, lineage in enumerate(reading.lineages)
            if lineage in reading.stratum_shares
        },
        arrivals=_arrivals(reading) if share_declared else None,
        crossings=_crossings(reading),
        late=_late_units(reading),
        units=UnitCounts(block=units.pop("block"), columns=units),
        pooled=tuple(
            PooledFlag(name=name, **_arrays(counts)) for name, counts in reading.gates.pooled
        ),
        companions={
            companion.role: Companion(
                window_seconds=companion.seconds_open(grace=grace), cells=cells[companion.name]
            )
            for companion in policy.companions
            if companion.role not in {WITH_HISTORY, SO_FAR}
        },
        traits=_traits(reading),
        endings=tuple(
            (math.ceil(known.timestamp()), takeover and takeover.because)
            for known, takeover in _takeovers(reading)
        ),
        day_unequal=reading.day_unequal,
        records=tuple(reading.records),
    )


def _arrivals(reading: ExperimentReading) -> Arrivals:
    """Returns the arrivals, with the blocks of events that name no build among theirs."""
    own, names = reading.gates.units, [columns for _, columns in reading.gates.nameless]
    block = np.unique(np.concatenate([_numbers(columns["block"]) for columns in (own, *names)]))

    def spread(columns: Columns, name: str) -> NDArray[np.int64]:
        counts = np.zeros(block.size, dtype=np.int64)
        counts[np.searchsorted(block, _numbers(columns["block"]))] = _numbers(columns[name])
        return counts

    return Arrivals(
        block=block,
        treatment=spread(own, "own"),
        others=spread(own, "others"),
        nameless=UnknownBuilds(
            **{
                each.name: np.stack([spread(columns, each.name) for columns in names], axis=1)
                for each in fields(UnknownBuilds)
            }
        )
        if names
        else None,
    )


def _takeovers(reading: ExperimentReading) -> Iterator[tuple[datetime, Takeover | None]]:
    """Yields the steps by which users got the change all, or none, each since it was known."""
    if reading.policy.flag is not None or reading.policy.portfolio:
        return
    for step, takeover in takeovers(
        reading.deploys,
        treatment=reading.treatment_commit,
        control=reading.control_commit,
        change=reading.change,
    ):
        late = step.recorded_at > reading.bound_at
        yield max(step.deployed_at, step.recorded_at) if late else step.deployed_at, takeover


def _traits(reading: ExperimentReading) -> Traits:
    tested = reading.policy.flag
    own = [flags.get(tested.name) if tested else None for flags in reading.flags]
    names = sorted({name for flags in reading.flags for name in flags} - {tested and tested.name})
    return Traits(
        lineage=_ranks(reading.lineages),
        names=tuple(names),
        segments=frozenset(filter(is_segment, names)),
        values=np.array(
            [_ranks([flags.get(name) for flags in reading.flags]) for name in names], dtype=np.int64
        ).reshape(len(names), len(reading.strata)),
        tested=tested.treatment if tested else "",
        own_values=tuple(sorted({value for value in own if value is not None})),
        own=_ranks(own),
    )


def _ranks(texts: Sequence[str | None]) -> NDArray[np.int64]:
    """Returns the place of each text among all of them, in order; of none `ABSENT`."""
    ranks = {
        text: rank for rank, text in enumerate(sorted({text for text in texts if text is not None}))
    }
    return _integers(ABSENT if text is None else ranks[text] for text in texts)


def _integers(numbers: Iterable[int]) -> NDArray[np.int64]:
    return np.array(list(numbers), dtype=np.int64)


def _target(reading: ExperimentReading) -> ClosedCells:
    """Returns the target's cells, of a mean that is adjusted with the history of its users."""
    target, policy = reading.cells, reading.policy
    others = {each.role: each.name for each in policy.companions}
    if WITH_HISTORY not in others:
        return _closed_cells(target, kind=policy.target.kind)
    history, both = (reading.cells_by_metric[others[role]] for role in (HISTORY, WITH_HISTORY))
    sums = {
        f"{name}{arm}": _numbers(target[f"{name}{arm}"]) for name in ("y", "yy") for arm in "10"
    }
    for arm in "10":
        squares = _numbers(history[f"yy{arm}"])
        sums |= {f"d{arm}": _numbers(history[f"y{arm}"]), f"dd{arm}": squares}
        sums[f"h{arm}"] = _numbers(history[f"x{arm}"]).astype(np.float64)
        sums[f"yd{arm}"] = (_numbers(both[f"yy{arm}"]) - sums[f"yy{arm}"] - squares) / 2
    return replace(_closed_cells(target, kind="mean"), values=Adjusted(**sums))


# The columns of the cells of picks that count those of either arm beyond each threshold.
_BEYOND = (("x1", "x0"), ("y1", "y0"), ("yy1", "yy0"), ("d1", "d0"))


def _picked(reading: ExperimentReading, guardrail: FrozenMetric) -> tuple[ClosedCells, ...]:
    """Returns the cells of a guardrail's picks beyond its threshold, by position."""
    if not guardrail.picked:
        return ()
    family = [each for each in reading.policy.guardrails if each.family == guardrail.family]
    columns = _BEYOND[family.index(guardrail)]
    every = (reading.cells_by_metric[name] for name in picked_cells(guardrail.family))
    return tuple(
        replace(
            _closed_cells(cells, kind="conversion"),
            **{
                name: _numbers(cells[column]).astype(np.int64)
                for name, column in zip(("x1", "x0"), columns, strict=True)
            },
        )
        for cells in every
    )


def _closed_cells(cells: Columns, *, kind: str) -> ClosedCells:
    counts = {name: _numbers(cells[name]) for name in ("block", "stratum", "n1", "x1", "n0", "x0")}
    sums = Pairs if kind == "ratio" else Values
    own = {each.name: _numbers(cells[each.name]) for each in fields(sums)}
    return ClosedCells(**counts, values=None if kind == "conversion" else sums(**own))


def _numbers(column: "array[Any]") -> NDArray[Any]:
    return np.frombuffer(column, dtype=column.typecode)


def _epochs(spans: Sequence[Allocation]) -> tuple[Epoch, ...]:
    return tuple(
        Epoch(
            start=seconds(span.begin),
            end=None if span.end is None else seconds(span.end),
            share=span.share,
        )
        for span in spans
    )


def _arrays(counts: Columns) -> dict[str, NDArray[Any]]:
    return {name: _numbers(column) for name, column in counts.items()}


def _crossings(reading: ExperimentReading) -> Findings:
    places = {name: place for place, name in enumerate(reading.strata)}
    crossings = reading.gates.crossings
    return Findings(
        block=_integers(seconds(crossing.block) for crossing in crossings),
        # No cell is in a stratum that is not known, so that none of its units counts.
        stratum=_integers(places.get(crossing.stratum, len(places)) for crossing in crossings),
        # A fraction of a second after a look is after it.
        at=_integers(math.ceil(crossing.at.timestamp()) for crossing in crossings),
    )


def _late_units(reading: ExperimentReading) -> LateUnits:
    places = {name: place for place, name in enumerate(reading.strata)}
    late = reading.gates.late
    return LateUnits(
        block=_integers(seconds(unit.block) for unit in late),
        stratum=_integers(places[unit.stratum] for unit in late),
        arm=_integers(int(unit.treated) for unit in late),
        at=_integers(math.ceil(unit.received_at.timestamp()) for unit in late),
    )
