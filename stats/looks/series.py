"""A series: an experiment's stored cells over time, the input of the engine."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
from msgspec import structs

from domain.policy import Numbers
from domain.words import EndedBecause
from stats.counts.arrivals import Arrivals, Epoch
from stats.counts.cell import Ints
from stats.counts.closed_cells import ClosedCells
from stats.counts.drawn_units import DrawnUnits, PooledFlag
from stats.counts.finding import Findings, LateUnits
from stats.counts.returning_users import NamedUsers, ReturningUsers
from stats.counts.traits import Traits

Margin = float | Literal["default"] | None


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
        over: What a unit's first value has to exceed; None where events count.

    Raises:
        ValueError: A member is outside its range; the message states the value and the rule.
    """

    name: str
    better: str
    margin: Margin = "default"
    over: float | None = None
    quantile: str | None = None
    of: str | None = None

    def __post_init__(self) -> None:
        if self.better not in {"higher", "lower"}:
            raise ValueError(f"better is {self.better!r}, but it is 'higher' or 'lower'")
        if self.window_seconds < 0:
            raise ValueError(f"window_seconds is {self.window_seconds}, but it is not negative")
        if isinstance(self.margin, float | int) and not 0 < self.margin < math.inf:
            raise ValueError(f"margin is {self.margin!r}, but it is positive and finite")


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
        returning: Users who come back, where sessions are the units; None where none has.
        draws: Units held against the published draw; None where it gives no arms.
        named: Users beside sessions that name none; None where each names a user, or none has to.
        traits: The traits that the strata differ by; None where strata are never pooled.
        endings: The ends of the canary by its deploys, each since it was known; None where the
            treatment has a share again.
        day_unequal: Whether a day of the cells is known to differ from the log: the test decides
            nothing then.

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
    returning: ReturningUsers | None = None
    draws: DrawnUnits | None = None
    named: NamedUsers | None = None
    pooled: tuple[PooledFlag, ...] = ()
    companions: Mapping[str, Companion] = field(default_factory=dict[str, Companion])
    traits: Traits | None = None
    closed_because: EndedBecause = EndedBecause.CLOSED
    endings: tuple[tuple[int, EndedBecause | None], ...] = ()
    day_unequal: bool = False

    def __post_init__(self) -> None:
        for cells in (self.target, *(guardrail.cells for guardrail in self.guardrails)):
            self._check_blocks(cells.block)
        names = [guardrail.name for guardrail in self.guardrails]
        if len(set(names)) < len(names):
            raise ValueError(f"the guardrails are {names}, but each may occur only once")
        if self.allocation is not None and self.arrivals is None:
            raise ValueError(
                "a declared allocation is compared with arrivals: pass both or neither"
            )

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
            returning=None if self.returning is None else self.returning.between(begin, end),
            draws=None if self.draws is None else self.draws.between(begin, end),
            named=None if self.named is None else self.named.between(begin, end),
            companions={
                role: companion.between(begin, end) for role, companion in self.companions.items()
            },
        )

    def regrouped(self, stratum: Ints) -> Self:
        """The same experiment in coarser strata.

        Args:
            stratum: The new code of each old code; units of a negative code are left out.
        """
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
