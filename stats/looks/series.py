"""A series: an experiment's stored cells over time, the input of the engine."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
from msgspec import structs

from domain.policy import KeepRecord, Numbers
from domain.words import EndedBecause
from stats.counts.arrivals import Arrivals, Epoch
from stats.counts.cell import Floats, Ints
from stats.counts.closed_cells import ClosedCells
from stats.counts.finding import Findings, LateUnits
from stats.counts.pooled_flag import PooledFlag
from stats.counts.traits import Traits
from stats.counts.unit_counts import UnitCounts

Margin = float | Literal["default"] | None


# Another build for everybody is no such end: the canary may go on rebased.
_FOR_ALL_OR_NONE = (EndedBecause.PROMOTED, EndedBecause.WITHDRAWN)
# Units of the arms of a flag that is drawn, by whether they have the arm that is drawn for them.
DRAWN = ("as_drawn", "off_draw")


@dataclass(frozen=True, kw_only=True)
class Companion:
    """Another metric of the target's units, with closed cells of its own.

    Attributes:
        window_seconds: Attribution window of the metric, with what its own grace exceeds the
            policy's by.
        cells: Its closed cells; those that close after `as_of` don't enter.
    """

    window_seconds: int
    cells: ClosedCells

    def between(self, begin: int, end: int) -> Self:
        """The cells of the blocks from a given block on, up to before another."""
        return replace(self, cells=self.cells.between(begin, end))

    def regrouped(self, stratum: Ints) -> Self:
        """The same units in coarser strata; see `ClosedCells.regrouped`."""
        return replace(self, cells=self.cells.regrouped(stratum))


@dataclass(frozen=True, kw_only=True)
class Guardrail(Companion):
    """A guardrail as it was registered.

    Attributes:
        better: The direction that is an improvement, `higher` or `lower`.
        margin: The loss that is accepted: an absolute number; `default`, which is the larger of
            20 % of control's rate r and min(0.5 point, max(r, 0.1 point)), and 20 % of control's
            mean where the metric is continuous; None where a candidate doesn't wait for this
            guardrail.
        over: The bound that a unit's first value has to exceed; None where events count.
        watch_only: Whether it decides nothing: the target after a part of its window.
        picked: The same of an event of each unit that is picked by chance, by its position among
            the unit's events; empty where the first value alone is read.

    Raises:
        ValueError: A member is outside its range; the message states the value and the rule.
    """

    name: str
    better: str
    margin: Margin = "default"
    over: float | None = None
    quantile: str | None = None
    of: str | None = None
    watch_only: bool = False
    picked: tuple[ClosedCells, ...] = ()

    def __post_init__(self) -> None:
        if self.better not in {"higher", "lower"}:
            raise ValueError(f"better is {self.better!r}, but it is 'higher' or 'lower'")
        if self.window_seconds < 0:
            raise ValueError(f"window_seconds is {self.window_seconds}, but it is not negative")
        if isinstance(self.margin, float | int) and not 0 < self.margin < math.inf:
            raise ValueError(f"margin is {self.margin!r}, but it is positive and finite")

    @property
    def streams(self) -> tuple[ClosedCells, ...]:
        """Its cells; where events are picked, those of the picks too.

        These are of all picks, of units with a pick beyond the first position, and by position.
        """
        if not self.picked:
            return (self.cells,)
        beyond = [replace(cells, x1=cells.n1, x0=cells.n0) for cells in self.picked[1:]]
        return (
            self.cells,
            *(self.cells.with_conversions_of(parts) for parts in (self.picked, beyond)),
            *self.picked,
        )

    def regrouped(self, stratum: Ints) -> Self:
        """The same units in coarser strata; see `ClosedCells.regrouped`."""
        picked = tuple(cells.regrouped(stratum) for cells in self.picked)
        return replace(super().regrouped(stratum), picked=picked)


@dataclass(frozen=True, kw_only=True)
class Series:
    """An experiment's closed cells and the gates' input.

    Times are whole seconds since the Unix epoch. Cells that close and findings that are received
    after `as_of` may be passed: they don't count.

    Attributes:
        guardrails: The registered guardrails; each block and stratum has the same units as the
            target's.
        allocation: The declared shares of the treatment commit, epoch after epoch; None where
            that is not read.
        stratum_shares: Of a stratum the declared share of treatment among its own units, epoch
            after epoch; a stratum of which nothing is declared has none.
        arrivals: Units of the eligible routes by who served them first; None likewise.
        crossings: Units exposed to both arms; None likewise.
        late: Units whose outcome on the target came too late; None likewise.
        units: What gates ask of its units, by block.
        traits: The traits that the strata differ by; None where strata are never pooled.
        endings: The ends of the canary by its deploys, each since it was known; None where the
            treatment has a share again.
        day_unequal: Whether a day of the cells is known to differ from the log: the test decides
            nothing then.
        records: Of the project's keeps, by day, in order; empty where no keep has to stand.

    Raises:
        ValueError: The arrays contradict each other; the message states the rule.
    """

    policy: Numbers
    start: int
    as_of: int
    closed_at: int | None
    cuts: tuple[int, ...]
    target: ClosedCells
    guardrails: tuple[Guardrail, ...] = ()
    allocation: tuple[Epoch, ...] | None = None
    stratum_shares: Mapping[int, tuple[Epoch, ...]] = field(
        default_factory=dict[int, tuple[Epoch, ...]]
    )
    arrivals: Arrivals | None = None
    crossings: Findings | None = None
    late: LateUnits | None = None
    units: UnitCounts | None = None
    pooled: tuple[PooledFlag, ...] = ()
    companions: Mapping[str, Companion] = field(default_factory=dict[str, Companion])
    traits: Traits | None = None
    closed_because: EndedBecause = EndedBecause.CLOSED
    endings: tuple[tuple[int, EndedBecause | None], ...] = ()
    day_unequal: bool = False
    records: tuple[KeepRecord, ...] = ()

    def __post_init__(self) -> None:
        watched = (cells for rail in self.guardrails for cells in (rail.cells, *rail.picked))
        for cells in (self.target, *watched):
            self._check_blocks(cells.block)
        names = [guardrail.name for guardrail in self.guardrails]
        if len(set(names)) < len(names):
            raise ValueError(f"the guardrails are {names}, but each may occur only once")
        if self.allocation is not None and self.arrivals is None:
            raise ValueError(
                "a declared allocation is compared with arrivals: pass both or neither"
            )

    def counted(self, *names: str) -> UnitCounts | None:
        """The counts of its units; None where none is in one of these columns."""
        columns = {} if self.units is None else self.units.columns
        return self.units if any(columns[each].any() for each in names if each in columns) else None

    def between(self, begin: int, end: int) -> Self:
        """The same target over a span of exposure alone, as an experiment that ends with it.

        Args:
            begin: The first block, not before that of the start, epoch seconds.
        """
        size = self.policy.block_seconds
        return replace(
            self,
            policy=structs.replace(self.policy, horizon_seconds=max(end - begin, size)),
            start=begin,
            closed_at=None,
            target=self.target.between(begin, end),
            guardrails=(),
            allocation=None
            if self.allocation is None
            else tuple(
                epoch for epoch in self.allocation if epoch.end is None or epoch.end > begin
            ),
            arrivals=None if self.arrivals is None else self.arrivals.between(begin, end),
            crossings=None if self.crossings is None else self.crossings.between(begin, end),
            late=None if self.late is None else self.late.between(begin, end),
            units=None if self.units is None else self.units.between(begin, end),
            companions={
                role: companion.between(begin, end) for role, companion in self.companions.items()
            },
        )

    def regrouped(self, stratum: Ints) -> Self:
        """The experiment, regrouped by a code for each old code; negative codes leave units out."""
        # The code of a stratum that no unit is in.
        codes = np.append(stratum, -1)
        unknown = int(stratum.max(initial=-1)) + 1
        known = np.where(codes < 0, unknown, codes)
        return replace(
            self,
            target=self.target.regrouped(stratum),
            guardrails=tuple(guardrail.regrouped(stratum) for guardrail in self.guardrails),
            # Strata that are pooled differ by flags alone: their shares are those of their lineage.
            stratum_shares={
                int(stratum[code]): epochs
                for code, epochs in self.stratum_shares.items()
                if stratum[code] >= 0
            },
            crossings=None
            if self.crossings is None
            else replace(self.crossings, stratum=known[self.crossings.stratum]),
            late=None
            if self.late is None
            else replace(self.late, stratum=known[self.late.stratum]),
            companions={
                role: companion.regrouped(stratum) for role, companion in self.companions.items()
            },
            traits=None,
        )

    def ending(self, look: int) -> EndedBecause | None:
        """The end of the canary by its deploys, as known at a look."""
        return next((why for since, why in reversed(self.endings) if since <= look), None)

    def ended_since(self, at: Ints) -> Floats:
        """Since when, at some times, all or none are known to have the change; else infinity."""
        since = np.full(at.shape, math.inf)
        for known, why in self.endings:
            after = at >= known
            ended = np.minimum(since[after], known)
            since[after] = ended if why in _FOR_ALL_OR_NONE else math.inf
        return since

    @property
    def contrast_ends(self) -> Ints:
        """The blocks from its first before which a contrast time of all or none is over."""
        span = self.policy.contrast_seconds
        ends = np.array([known + span for known, _ in self.endings], dtype=np.int64)
        over = ends[self.ended_since(ends) == ends - span]
        return -((self.begin - over) // self.policy.block_seconds)

    @property
    def begin(self) -> int:
        """The start of the block that contains the start: where the first analysis block begins."""
        return self.start - self.start % self.policy.block_seconds

    @property
    def horizon_end(self) -> int:
        """The end of the last block that lies within the horizon."""
        end = self.start + self.policy.horizon_seconds
        return end - end % self.policy.block_seconds

    @property
    def shortest_window(self) -> int:
        """The shortest attribution window of target and guardrails."""
        windows = [guardrail.window_seconds for guardrail in self.guardrails]
        return min([self.policy.window_seconds, *windows])

    @property
    def first_closed(self) -> ClosedCells:
        """The cells of the metric that closes first: they reach furthest."""
        if self.policy.window_seconds == self.shortest_window:
            return self.target
        return min(self.guardrails, key=lambda guardrail: guardrail.window_seconds).cells

    def _check_blocks(self, block: Ints) -> None:
        size = self.policy.block_seconds
        if block.size and (block[0] < self.begin or np.any(block % size)):
            raise ValueError(
                f"a block begins at {block[0]}, but blocks begin at multiples of "
                f"{size} seconds from {self.begin} on"
            )
