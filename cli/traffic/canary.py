"""A randomized canary's traffic, drawn from a seed, with the counts that it truly holds."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from domain.document import time_text
from storage.tenants.sample import Sample

Arm = Literal["control", "treatment"]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DAY_SECONDS = 86400.0
WEEK_SECONDS = 7 * DAY_SECONDS
# The arrival rate is integrated on this grid; within a step it is taken as constant.
GRID_SECONDS = 60.0
# The hour at which a day is busiest, in UTC.
BUSIEST_HOUR = 14.0
# An error shows within a guardrail's window of five minutes.
ERROR_WITHIN_SECONDS = 240.0
# A session's further pages follow within its first minutes.
PAGE_WITHIN_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The parameters of the traffic.

    Attributes:
        start: When the first session can arrive, with an offset.
        end: When the last session can.
        control: Commit that control sessions are served by.
        treatment: Commit that treatment sessions are served by.
        sessions_per_day: Mean arrivals a day.
        baseline: Control's conversion rate at the start, in (0, 1).
        relative_lift: Treatment's rate over control's, minus 1.
        allocation: Treatment's share until the first step of the ramp.
        ramp: Steps (time, share), in order of time.
        rhythm: Amplitude of the day's rhythm of arrivals, relative to their mean, in [0, 1].
        drift: Relative change of the baseline in a week, linear in time.
        routes: Paths; a session arrives on any of them and sees pages of any.
        pages: Mean pages a session sees, at least 1.
        metric: Name of the converting event.
        delay: Median time from arrival to conversion.
        delay_spread: Standard deviation of the logarithm of that time.
        window: Attribution window: only conversions within it are in the truth.
        control_errors: Share of control sessions with an `error` event.
        treatment_errors: Share of treatment sessions with an error.
        duplicated: Share of events delivered twice.
        disordered: Share of events held back for up to `disorder`.
        disorder: The longest such hold.
        late: Share of events held back for `lateness`.
        lateness: How long those are held.
        revenue: Share of conversions that a revenue event follows.
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
    drift: float = 0.0
    routes: tuple[str, ...] = ("/",)
    pages: float = 1.0
    metric: str = "activation"
    delay: timedelta = timedelta(minutes=4)
    delay_spread: float = 0.8
    window: timedelta = timedelta(minutes=30)
    control_errors: float = 0.0
    treatment_errors: float = 0.0
    duplicated: float = 0.0
    disordered: float = 0.0
    disorder: timedelta = timedelta(seconds=60)
    late: float = 0.0
    lateness: timedelta = timedelta(hours=36)
    revenue: float = 0.0
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
            "revenue": self.revenue,
        } | {f"ramp step {at}": share for at, share in self.ramp}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name} is {share}; it must lie in [0, 1]")
        for name, rate in self._rates().items():
            if not 0 < rate < 1:
                raise ValueError(f"{name} is {rate}; it must lie in (0, 1)")
        times = [at for at, _ in self.ramp]
        if times != sorted(times) or not self.start < self.end:
            raise ValueError("start and end, and the ramp's steps, must be in order of time")
        if self.sessions_per_day <= 0 or self.pages < 1 or not self.routes:
            raise ValueError("there must be sessions, with at least one page each, on some route")

    def _rates(self) -> dict[str, float]:
        weeks = (self.end - self.start).total_seconds() / WEEK_SECONDS
        last = self.baseline * (1 + self.drift * weeks)
        lifted = 1 + self.relative_lift
        return {
            "the baseline at the start": self.baseline,
            "the baseline at the end": last,
            "the treatment's rate at the start": self.baseline * lifted,
            "the treatment's rate at the end": last * lifted,
        }


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A request body, and when it reaches the service.

    Attributes:
        at: Time of delivery.
        path: The endpoint: `/v1/events` or `/v1/revenue/events`.
        body: The JSON object.
    """

    at: datetime
    path: str
    body: dict[str, Any]


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
        truth: The true counts of each arm.
    """

    scenario: Scenario
    arrived: Floats
    treated: Bools
    converted_after: Floats
    truth: dict[Arm, ArmTruth]
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

    def truth_within(self, sample: Sample) -> dict[Arm, ArmTruth]:
        """Returns the true counts of each arm within a project's sample."""
        taken = [sample.takes(self._session_id(session), None) for session in range(self.sessions)]
        return _truth(
            self.scenario,
            self.treated,
            self.converted_after,
            self._failed,
            self._events,
            within=np.array(taken, dtype=np.bool_),
        )

    def deliveries(self) -> Iterator[Delivery]:
        """The events in the order in which they reach the service."""
        for place in self._order.tolist():
            row = place % len(self._events)
            yield Delivery(
                at=self._time(float(self._delivered[place])),
                path="/v1/revenue/events" if self._is_revenue(row) else "/v1/events",
                body=self._revenue_body(row) if self._is_revenue(row) else self._event_body(row),
            )

    def _is_revenue(self, row: int) -> bool:
        return self._events.kind[row] == "revenue"

    def _event_body(self, row: int) -> dict[str, Any]:
        scenario, session = self.scenario, int(self._events.session[row])
        kind = str(self._events.kind[row])
        return {
            "event": scenario.metric if kind == "conversion" else kind,
            "session_id": self._session_id(session),
            "occurred_at": self._occurred_at(row),
            "commit": scenario.treatment if self.treated[session] else scenario.control,
            "route": scenario.routes[int(self._events.route[row])],
            "environment": scenario.environment,
            "event_id": f"{self._session_id(session)}-{row}",
        }

    def _revenue_body(self, row: int) -> dict[str, Any]:
        session_id = self._session_id(int(self._events.session[row]))
        return {
            "event": "trial_to_paid",
            "occurred_at": self._occurred_at(row),
            "amount": {"value": 4900, "currency": "USD"},
            "user_ref": f"user-{session_id}",
            "idempotency_key": f"{session_id}-{row}",
            "attributes": {"session_id": session_id, "environment": self.scenario.environment},
        }

    def _session_id(self, session: int) -> str:
        return f"{self.scenario.session_prefix}{int(self._tokens[session]):016x}"

    def _occurred_at(self, row: int) -> str:
        return time_text(self._time(float(self._events.occurred[row])))

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
    converted_after = _conversion_delays(scenario, arrived, treated, generator)
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
        truth=_truth(
            scenario,
            treated,
            converted_after,
            failed,
            events,
            within=np.ones(len(arrived), dtype=np.bool_),
        ),
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
    scenario: Scenario, arrived: Floats, treated: Bools, generator: np.random.Generator
) -> Floats:
    """Seconds from arrival to conversion, log-normal; NaN for a session that does not convert."""
    baseline = scenario.baseline * (1 + scenario.drift * arrived / WEEK_SECONDS)
    rate = baseline * np.where(treated, 1 + scenario.relative_lift, 1.0)
    converts = generator.random(len(arrived)) < rate
    delay = scenario.delay.total_seconds() * np.exp(
        scenario.delay_spread * generator.standard_normal(len(arrived))
    )
    return np.where(converts, delay, np.nan)


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
    paying = converting[generator.random(len(converting)) < scenario.revenue]
    parts = [
        ("page_view", sessions, np.zeros(len(sessions))),
        ("page_view", further, PAGE_WITHIN_SECONDS * generator.random(len(further))),
        ("error", failing, ERROR_WITHIN_SECONDS * generator.random(len(failing))),
        ("conversion", converting, converted_after[converting]),
        ("revenue", paying, converted_after[paying] + 1.0),
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
    disorder = disordered * generator.random(count) * scenario.disorder.total_seconds()
    late = generator.random(count) < scenario.late
    return np.where(late, scenario.lateness.total_seconds(), disorder)


def _delivery_order(
    scenario: Scenario, events: _Events, generator: np.random.Generator
) -> tuple[Floats, NDArray[np.int64]]:
    """Times of delivery for events and then their copies, and the places in order of time."""
    times = events.occurred + events.held
    copies = generator.random(len(events)) < scenario.duplicated
    again = times + generator.random(len(events)) * scenario.disorder.total_seconds()
    delivered = np.concatenate([times, again])
    sent = np.flatnonzero(np.concatenate([np.ones(len(events), dtype=np.bool_), copies]))
    return delivered, sent[np.argsort(delivered[sent], kind="stable")]


def _truth(
    scenario: Scenario,
    treated: Bools,
    converted_after: Floats,
    failed: Bools,
    events: _Events,
    *,
    within: Bools,
) -> dict[Arm, ArmTruth]:
    # NaN compares false: a session without a conversion is in no window.
    converted = converted_after <= scenario.window.total_seconds()
    late = np.zeros(len(treated), dtype=np.bool_)
    late_conversions = (events.kind == "conversion") & (
        events.held >= scenario.lateness.total_seconds()
    )
    late[events.session[late_conversions]] = True

    def arm(members: Bools) -> ArmTruth:
        return ArmTruth(
            units=int(np.sum(members)),
            conversions=int(np.sum(members & converted)),
            errors=int(np.sum(members & failed)),
            late=int(np.sum(members & converted & late)),
        )

    return {"control": arm(within & ~treated), "treatment": arm(within & treated)}
