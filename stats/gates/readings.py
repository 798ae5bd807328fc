"""The gates, and their readings of an experiment at every look."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from domain.cause import Cause, GateCheck
from stats.counts.cell import Ints
from stats.gates.after_window import AfterWindow
from stats.gates.crossover import Crossover
from stats.gates.gate import Flags, Gate, Reading, Units
from stats.gates.guardrail import Watch
from stats.gates.interaction import Interaction
from stats.gates.lateness import Lateness
from stats.gates.left_out import CurrencyLeftOut, LeftOut, LeftOutReading, ValueLeftOut
from stats.gates.sample_ratio import SampleRatio, arrival_watch
from stats.gates.shortfall import Shortfall, shortfall
from stats.gates.vif import Contrast
from stats.looks.series import Series
from stats.looks.trace import Batch, in_turn

CONTRAST, SAMPLE_RATIO = Contrast(), SampleRatio()
GATES: tuple[Gate, ...] = (
    CONTRAST,
    SAMPLE_RATIO,
    Crossover(),
    Lateness(),
    Interaction(),
    AfterWindow(),
    CurrencyLeftOut(),
    ValueLeftOut(),
)


@dataclass(frozen=True, kw_only=True)
class Gates:
    """The gates as of a look; None where there is nothing to read.

    Attributes:
        vif: Variance inflation factor, infinite where W = 0.
        sample_ratio_e: Evidence against the declared shares; alarm at 1000.
        crossover_share: Share of units seen in both arms; alarm above 5 %, of 10 units at least.
        lateness_e: Evidence that outcomes come too late more often in an arm; alarm at 100.
        interaction_e: Evidence that the relative effect differs between strata; alarm at 100.
        after_window_e: Evidence that outcomes come after the window more often in an arm.
        left_out: The outcomes that the target leaves out, by reason; alarm at 100.
        interacting_because: The causes that hold, each also where another gate masks it.
        shortfall: Treatment's share of arrivals; None unless `arrival` is breached.
        checks: Each gate that is asked, as a row.
    """

    vif: float | None = None
    sample_ratio_e: float | None = None
    crossover_share: float | None = None
    lateness_e: float | None = None
    interaction_e: float | None = None
    after_window_e: float | None = None
    left_out: tuple[LeftOutReading, ...] = ()
    interacting_because: tuple[Cause, ...] = ()
    shortfall: Shortfall | None = None
    checks: tuple[GateCheck, ...] = ()


NO_GATES = Gates()


@dataclass(frozen=True, kw_only=True)
class GateReadings:
    """The readings of all gates of an experiment, an entry a look.

    Attributes:
        series: The experiment.
        at: The looks.
        by_gate: What each gate reads.
    """

    series: Series
    at: Ints
    by_gate: Mapping[Gate, Reading]

    @cached_property
    def holds(self) -> dict[Gate, Flags]:
        """Of each gate, at which looks it holds; from its first alarm on, where it is sticky."""
        return {
            gate: np.logical_or.accumulate(reading.alarm) if gate.is_sticky else reading.alarm
            for gate, reading in self.by_gate.items()
        }

    @property
    def aliased(self) -> Flags:
        """Whether treatment cannot be compared with control."""
        return self.holds[CONTRAST]

    @property
    def interacting(self) -> Flags:
        """Whether what differs between the arms is not the change alone."""
        return _any(holds for gate, holds in self.holds.items() if gate.cause is not None)

    @property
    def permanent(self) -> Flags:
        """Whether a gate holds for good."""
        return _any(holds for gate, holds in self.holds.items() if gate.is_sticky)

    def held_back(self, harm: Flags) -> Flags:
        """Whether a gate holds the answer of a look back.

        Args:
            harm: Whether the test shows harm at each look.
        """
        policy = self.series.policy
        return _any(
            holds & ~(harm & gate.spares(self.by_gate[gate], policy))
            for gate, holds in self.holds.items()
        )

    @cached_property
    def arrival(self) -> Watch | None:
        """The watch over the arrivals of treatment, where a share is declared."""
        return arrival_watch(self.series, self.by_gate[SAMPLE_RATIO], self.at)

    def is_declared(self, look: int) -> bool:
        """Whether a share was declared by a look."""
        return bool(~np.isnan(self.by_gate[SAMPLE_RATIO].statistic[look]))

    def shown(self, look: int, units: Units) -> Gates:
        """The gates as of a look, at which there were so many units."""
        members: dict[str, Any] = {
            gate.member: gate.served(float(reading.statistic[look]))
            for gate, reading in self.by_gate.items()
            if not isinstance(gate, LeftOut)
        }
        left_out = [
            gate.shown(reading, look)
            for gate, reading in self.by_gate.items()
            if isinstance(gate, LeftOut)
        ]
        return Gates(
            **members,
            left_out=tuple(outcomes for outcomes in left_out if outcomes is not None),
            interacting_because=tuple(
                gate.cause
                for gate, holds in self.holds.items()
                if gate.cause is not None and holds[look]
            ),
            shortfall=self._shortfall(look),
            checks=tuple(
                gate.check(reading, look, holds=bool(self.holds[gate][look]), units=units)
                for gate, reading in self.by_gate.items()
                if gate.is_asked(self.series)
            ),
        )

    def _shortfall(self, look: int) -> Shortfall | None:
        series, arrival = self.series, self.arrival
        if arrival is None or arrival.breached_at is None or series.arrivals is None:
            return None
        if self.at[look] < arrival.breached_at:
            return None
        return shortfall(
            series.allocation or (),
            series.arrivals,
            at=self.at[: look + 1],
            block_seconds=series.policy.block_seconds,
            grace_seconds=series.policy.grace_seconds,
            breached_at=arrival.breached_at,
        )


def gate_readings(batch: Batch) -> list[GateReadings]:
    """Reads all gates at the looks of each experiment."""
    every = [looks for own in batch.stages for looks in own]
    read = {gate: iter(gate.readings(every)) for gate in GATES}
    return [
        GateReadings(
            series=own[0].strata.series,
            at=batch.trace.at[batch.rows(number)],
            by_gate={
                gate: in_turn(list(islice(each, len(own))), [looks.trace.at for looks in own], own)
                for gate, each in read.items()
            },
        )
        for number, own in enumerate(batch.stages)
    ]


def _any(holds: Iterable[Flags]) -> Flags:
    return np.logical_or.reduce(list(holds))
