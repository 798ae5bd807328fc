"""A randomized canary's traffic, drawn from a seed, with the counts that it truly holds."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from canary_traffic.posting import Delivery
from domain.document import time_text
from storage.tenants.sample import Sample

Arm = Literal["control", "treatment"]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DAY_SECONDS = 86400.0
# The arrival rate is integrated on this grid; within a step it is taken as constant.
GRID_SECONDS = 60.0
# The hour at which a day is busiest, in UTC.
BUSIEST_HOUR = 14.0
# An error shows within a guardrail's window of five minutes.
ERROR_WITHIN_SECONDS = 240.0
# A session's further pages follow within its first minutes.
PAGE_WITHIN_SECONDS = 300.0
# The standard deviation of the logarithm of the time from arrival to conversion.
DELAY_SPREAD = 0.8
# The longest hold of an event that others overtake.
DISORDER_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The parameters of the traffic.

    Attributes:
        start: When the first session can arrive, with an offset.
        end: When the last session can.
        control: Commit that control sessions are served by.
        treatment: Commit that treatment sessions are served by.
        sessions_per_day: Mean arrivals a day.
        baseline: Control's conversion rate, in (0, 1).
        relative_lift: Treatment's rate over control's, minus 1.
        allocation: Treatment's share until the first step of the ramp.
        ramp: Steps (time, share), in order of time.
        rhythm: Amplitude of the day's rhythm of arrivals, relative to their mean, in [0, 1].
        routes: Paths; a session arrives on any of them and sees pages of any.
        pages: Mean pages a session sees, at least 1.
        metric: Name of the converting event.
        delay: Median time from arrival to conversion.
        window: Attribution window: only conversions within it are in the truth.
        control_errors: Share of control sessions with an `error` event.
        treatment_errors: Share of treatment sessions with an error.
        duplicated: Share of events delivered twice.
        disordered: Share of events held back for up to a minute.
        late: Share of events held back for `lateness`.
        lateness: How long those are held.
        environment: Environment named on every event.
        session_prefix: Begins every session's identifier, so that two runs share none.

    Raises:
        ValueError: If a rate or share leaves its range, or the times are out of order.
    """

    start: datetime
    end: datetime
    control: str
    treatment: str
    sessions_per_day: float = 24_000
    baseline: float = 0.05
    relative_lift: float = 0.0
    allocation: float = 0.5
    ramp: tuple[tuple[datetime, float], ...] = ()
    rhythm: float = 0.0
    routes: tuple[str, ...] = ("/",)
    pages: float = 1.0
    metric: str = "activation"
    delay: timedelta = timedelta(minutes=4)
    window: timedelta = timedelta(minutes=30)
    control_errors: float = 0.0
    treatment_errors: float = 0.0
    duplicated: float = 0.0
    disordered: float = 0.0
    late: float = 0.0
    lateness: timedelta = timedelta(hours=36)
    environment: str = "production"
    session_prefix: str = "s"

    def __post_init__(self) -> None:
        """Refuse what would draw other traffic than it says."""
        shares = {
            "allocation": self.allocation,
            "rhythm": self.rhythm,
            "control_errors": self.control_errors,
            "treatment_errors": self.treatment_errors,
            "duplicated": self.duplicated,
            "disordered": self.disordered,
            "late": self.late,
        } | {f"ramp step {at}": share for at, share in self.ramp}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name} is {share}; it must lie in [0, 1]")
        lifted = self.baseline * (1 + self.relative_lift)
        for name, rate in (("the baseline", self.baseline), ("the treatment's rate", lifted)):
            if not 0 < rate < 1:
                raise ValueError(f"{name} is {rate}; it must lie in (0, 1)")
        times = [at for at, _ in self.ramp]
        if times != sorted(times) or not self.start < self.end:
            raise ValueError("start and end, and the ramp's steps, must be in order of time")
        if self.sessions_per_day <= 0 or self.pages < 1 or not self.routes:
            raise ValueError("there must be sessions, with at least a page each, on some route")


@dataclass(frozen=True, kw_only=True)
class ArmTruth:
    """An arm's true counts, each session counted once, however its events are delivered.

    Attributes:
        units: Sessions.
        conversions: Sessions that converted within the window.
        errors: Sessions with an error.
        late: Sessions whose conversion within the window was delivered late.
    """

    units: int
    conversions: int
    errors: int
    late: int

    @property
    def rate(self) -> float:
        """Conversions per unit; NaN without units."""
        return self.conversions / self.units if self.units else float("nan")


@dataclass(frozen=True, kw_only=True)
class _Events:
    """Columns of the log, a row an event, before duplication; sorted by nothing."""

    kind: NDArray[np.str_]
    session: NDArray[np.int64]
    occurred: Floats
    held: Floats
    route: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.session)


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Drawn traffic: sessions, their events, and the counts that they truly hold.

    Attributes:
        scenario: The parameters it was drawn with.
        arrived: Arrival of each session, seconds after the scenario's start, ascending.
        treated: Whether a session is in the treatment arm; for good, as a sticky router has it.
        converted_after: Seconds from arrival to conversion; NaN without a conversion.
    """

    scenario: Scenario
    arrived: Floats
    treated: Bools
    converted_after: Floats
    _failed: Bools
    _tokens: NDArray[np.uint64]
    _events: _Events
    _delivered: Floats
    _order: NDArray[np.int64]

    def __len__(self) -> int:
        """Deliveries, duplicates included."""
        return len(self._order)

    @property
    def sessions(self) -> int:
        """Sessions of both arms."""
        return len(self.arrived)

    def truth(self, sample: Sample | None = None) -> dict[Arm, ArmTruth]:
        """Returns the true counts of each arm, or of its units in a project's sample."""
        within = np.ones(self.sessions, dtype=np.bool_)
        if sample is not None:
            ids = map(self._session_id, range(self.sessions))
            within = np.array([sample.takes(each, None) for each in ids], dtype=np.bool_)
        # NaN compares false: a session without a conversion is in no window.
        converted = self.converted_after <= self.scenario.window.total_seconds()
        late = np.zeros(self.sessions, dtype=np.bool_)
        late_conversions = (self._events.kind == "conversion") & (
            self._events.held >= self.scenario.lateness.total_seconds()
        )
        late[self._events.session[late_conversions]] = True

        def arm(members: Bools) -> ArmTruth:
            return ArmTruth(
                units=int(np.sum(members)),
                conversions=int(np.sum(members & converted)),
                errors=int(np.sum(members & self._failed)),
                late=int(np.sum(members & converted & late)),
            )

        return {"control": arm(within & ~self.treated), "treatment": arm(within & self.treated)}

    def deliveries(self) -> Iterator[Delivery]:
        """The events in the order in which they reach the service."""
        for place in self._order.tolist():
            at = self._time(float(self._delivered[place]))
            yield Delivery(at=at, body=self._body(place % len(self._events)))

    def _body(self, row: int) -> dict[str, Any]:
        scenario, session = self.scenario, int(self._events.session[row])
        kind = str(self._events.kind[row])
        return {
            "event": scenario.metric if kind == "conversion" else kind,
            "session_id": self._session_id(session),
            "occurred_at": time_text(self._time(float(self._events.occurred[row]))),
            "commit": scenario.treatment if self.treated[session] else scenario.control,
            "route": scenario.routes[int(self._events.route[row])],
            "environment": scenario.environment,
            "event_id": f"{self._session_id(session)}-{row}",
        }

    def _session_id(self, session: int) -> str:
        return f"{self.scenario.session_prefix}{int(self._tokens[session]):016x}"

    def _time(self, seconds: float) -> datetime:
        return (self.scenario.start + timedelta(seconds=seconds)).astimezone(UTC)


def traffic(scenario: Scenario, generator: np.random.Generator) -> Traffic:
    """Traffic drawn from a scenario.

    Args:
        scenario: The parameters of the traffic.
        generator: The only source of randomness: the same state draws the same traffic.

    Returns:
        The traffic; its deliveries are made lazily.
    """
    arrived = _arrivals(scenario, generator)
    treated = generator.random(len(arrived)) < _shares(scenario, arrived)
    converted_after = _conversion_delays(scenario, treated, generator)
    tokens = generator.integers(0, 2**64, size=len(arrived), dtype=np.uint64)
    failed = generator.random(len(arrived)) < np.where(
        treated, scenario.treatment_errors, scenario.control_errors
    )
    events = _log(scenario, arrived, converted_after, failed, generator)
    delivered, order = _delivery_order(scenario, events, generator)
    return Traffic(
        scenario=scenario,
        arrived=arrived,
        treated=treated,
        converted_after=converted_after,
        _failed=failed,
        _tokens=tokens,
        _events=events,
        _delivered=delivered,
        _order=order,
    )


def _arrivals(scenario: Scenario, generator: np.random.Generator) -> Floats:
    """Seconds after the start: a Poisson process whose rate follows the hour of the day."""
    length = (scenario.end - scenario.start).total_seconds()
    grid = np.append(np.arange(0.0, length, GRID_SECONDS), length)
    midnight = scenario.start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    clock = (scenario.start - midnight).total_seconds() + grid[:-1]
    phase = 2 * np.pi * (clock / DAY_SECONDS - BUSIEST_HOUR / 24)
    rate = scenario.sessions_per_day / DAY_SECONDS * (1 + scenario.rhythm * np.cos(phase))
    cumulative = np.append(0.0, np.cumsum(rate * np.diff(grid)))
    count = generator.poisson(cumulative[-1])
    return np.sort(np.interp(generator.random(count) * cumulative[-1], cumulative, grid))


def _shares(scenario: Scenario, arrived: Floats) -> Floats:
    """Treatment's share at each arrival."""
    steps = [(at - scenario.start).total_seconds() for at, _ in scenario.ramp]
    shares = np.array([scenario.allocation, *(share for _, share in scenario.ramp)])
    return shares[np.searchsorted(np.array(steps), arrived, side="right")]


def _conversion_delays(
    scenario: Scenario, treated: Bools, generator: np.random.Generator
) -> Floats:
    """Seconds from arrival to conversion, log-normal; NaN for a session that does not convert."""
    rate = scenario.baseline * np.where(treated, 1 + scenario.relative_lift, 1.0)
    converts = generator.random(len(treated)) < rate
    spread = np.exp(DELAY_SPREAD * generator.standard_normal(len(treated)))
    return np.where(converts, scenario.delay.total_seconds() * spread, np.nan)


def _log(
    scenario: Scenario,
    arrived: Floats,
    converted_after: Floats,
    failed: Bools,
    generator: np.random.Generator,
) -> _Events:
    """Every event of every session, and how long its delivery is held back."""
    sessions = np.arange(len(arrived))
    further = np.repeat(sessions, generator.poisson(scenario.pages - 1, len(arrived)))
    converting = np.flatnonzero(~np.isnan(converted_after))
    failing = np.flatnonzero(failed)
    parts = [
        ("page_view", sessions, np.zeros(len(sessions))),
        ("page_view", further, PAGE_WITHIN_SECONDS * generator.random(len(further))),
        ("error", failing, ERROR_WITHIN_SECONDS * generator.random(len(failing))),
        ("conversion", converting, converted_after[converting]),
    ]
    session = np.concatenate([of for _, of, _ in parts])
    after = np.concatenate([seconds for _, _, seconds in parts])
    return _Events(
        kind=np.repeat([kind for kind, _, _ in parts], [len(of) for _, of, _ in parts]),
        session=session,
        occurred=arrived[session] + after,
        held=_holds(scenario, len(session), generator),
        route=generator.integers(0, len(scenario.routes), len(session)),
    )


def _holds(scenario: Scenario, count: int, generator: np.random.Generator) -> Floats:
    """Seconds between an event and its delivery."""
    disordered = generator.random(count) < scenario.disordered
    disorder = disordered * generator.random(count) * DISORDER_SECONDS
    late = generator.random(count) < scenario.late
    return np.where(late, scenario.lateness.total_seconds(), disorder)


def _delivery_order(
    scenario: Scenario, events: _Events, generator: np.random.Generator
) -> tuple[Floats, NDArray[np.int64]]:
    """Times of delivery for events and then their copies, and the places in order of time."""
    times = events.occurred + events.held
    copies = generator.random(len(events)) < scenario.duplicated
    again = times + generator.random(len(events)) * DISORDER_SECONDS
    delivered = np.concatenate([times, again])
    sent = np.flatnonzero(np.concatenate([np.ones(len(events), dtype=np.bool_), copies]))
    return delivered, sent[np.argsort(delivered[sent], kind="stable")]
