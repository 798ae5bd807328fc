"""The gates, and their readings of an experiment at every look."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Literal

import numpy as np
from msgspec import structs

from domain.cause import GateCheck
from domain.evidence.results import EvidenceGates, ShareShortfall
from stats.counts.cell import Ints, number_or_none
from stats.gates.companions.after_window import AfterWindow
from stats.gates.companions.balance import Balance
from stats.gates.companions.before_exposure import BeforeExposure
from stats.gates.companions.channels import Channels
from stats.gates.companions.left_out import (
    CurrencyLeftOut,
    EmptyLeftOut,
    LeftOut,
    LeftOutReading,
    NotVouchedLeftOut,
    ValueLeftOut,
)
from stats.gates.control_named import ControlNamed
from stats.gates.crossover import Crossover
from stats.gates.draw import Draw
from stats.gates.gate import Flags, Gate, Reading, Units
from stats.gates.interaction import Interaction
from stats.gates.lateness import Lateness
from stats.gates.sample_ratio import SampleRatio, SampleRatioReading, arrival_watch
from stats.gates.shortfall import Shortfall, shortfall
from stats.gates.turnover import Turnover, is_unseen
from stats.gates.unit import Unit
from stats.gates.user_named import UserNamed
from stats.gates.vif import Contrast
from stats.guardrails.guardrail import Watch
from stats.looks.series import Series
from stats.looks.trace import Batch, in_turn

CONTRAST, SAMPLE_RATIO, UNIT, TURNOVER = Contrast(), SampleRatio(), Unit(), Turnover()
DRAW, BALANCE = Draw(), Balance()
GATES: tuple[Gate, ...] = (
    CONTRAST,
    SAMPLE_RATIO,
    DRAW,
    Crossover(),
    Lateness(),
    Interaction(),
    AfterWindow(),
    CurrencyLeftOut(),
    ValueLeftOut(),
    NotVouchedLeftOut(),
    EmptyLeftOut(),
    UNIT,
    TURNOVER,
    Channels(),
    BeforeExposure(),
    BALANCE,
    ControlNamed(),
    UserNamed(),
)


NO_GATES = EvidenceGates(
    **{gate.member: None for gate in GATES if not isinstance(gate, LeftOut)},  # pyright: ignore[reportArgumentType] - by their names
    aliased_with=(),
    left_out_e={},
    interacting_because=(),
    held_throughout=(),
    shortfall=None,
)


@dataclass(frozen=True, kw_only=True)
class GateReadings:
    """The readings of all gates of an experiment, an entry a look."""

    series: Series
    at: Ints
    by_gate: Mapping[Gate, Reading]

    @cached_property
    def holds(self) -> dict[Gate, Flags]:
        """Returns the looks that each gate holds; a sticky gate holds from its first alarm on."""
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
        """Whether a gate holds the answer of a look back."""
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

    def vif(self, look: int) -> float | None:
        """The variance inflation factor as of a look, infinite where W = 0."""
        return number_or_none(self.by_gate[CONTRAST].statistic[look])

    def left_out(self, look: int) -> tuple[LeftOutReading, ...]:
        """The outcomes that the target leaves out as of a look, by reason."""
        outcomes = [
            gate.shown(reading, look)
            for gate, reading in self.by_gate.items()
            if isinstance(gate, LeftOut)
        ]
        return tuple(each for each in outcomes if each is not None)

    def shown(self, look: int, units: Units) -> EvidenceGates:
        """The gates as of a look, at which there were so many units; aliases are not read here."""
        members: dict[str, Any] = {
            gate.member: _finite(gate.served(float(reading.statistic[look])))
            for gate, reading in self.by_gate.items()
            if not isinstance(gate, LeftOut)
        }
        short = self.shortfall(look)
        return EvidenceGates(
            **members,
            aliased_with=(),
            left_out_e={str(each.reason): each.e_value for each in self.left_out(look)},
            interacting_because=tuple(
                gate.cause
                for gate, holds in self.holds.items()
                if gate.cause is not None and holds[look]
            ),
            held_throughout=tuple(
                gate.cause
                for gate, holds in self.holds.items()
                if gate.cause is not None and holds[: look + 1].all()
            ),
            shortfall=None
            if short is None
            else ShareShortfall(declared=short.declared, seen=short.actual, steady=short.steady),
            checks=tuple(
                self._check(gate, reading, look, units)
                for gate, reading in self.by_gate.items()
                if gate.is_asked(self.series) or self.holds[gate][look]
            ),
        )

    def _check(self, gate: Gate, reading: Reading, look: int, units: Units) -> GateCheck:
        holds = bool(self.holds[gate][look])
        check = gate.check(reading, look, holds=holds, units=units)
        # Too few sessions name a user: of the others nobody can tell who came back.
        if gate is TURNOVER and not holds and is_unseen(self.series, int(self.at[look])):
            return structs.replace(check, state="not_known", number=None)
        return check

    def shortfall(self, look: int) -> Shortfall | None:
        """Treatment's share of arrivals as of a look; None unless `arrival` is breached."""
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
            by_gate=_of_repeated_units(
                {
                    gate: in_turn(
                        list(islice(each, len(own))), [looks.trace.at for looks in own], own
                    )
                    for gate, each in read.items()
                }
            ),
        )
        for number, own in enumerate(batch.stages)
    ]


def _of_repeated_units(by_gate: Mapping[Gate, Reading]) -> Mapping[Gate, Reading]:
    """The readings, in which the shares of arrivals are not judged while `unit` holds.

    Sessions of a visitor who keeps an arm arrive there together, so that arms differ in size by
    more than the test allows for. It is masked before an alarm of it could stay.
    """
    ratio = by_gate[SAMPLE_RATIO]
    if not isinstance(ratio, SampleRatioReading):
        return by_gate
    return {**by_gate, SAMPLE_RATIO: ratio.unless(by_gate[UNIT].alarm)}


def _finite(number: float | None) -> float | Literal["inf"] | None:
    """Returns a number as JSON can say it: infinity is a word."""
    return "inf" if number is not None and math.isinf(number) else number


def _any(holds: Iterable[Flags]) -> Flags:
    return np.logical_or.reduce(list(holds))
