"""Attribution: what units an experiment counts and what became of them, told event by event.

Written from statistics.md, section 1, for the audit: the pipeline reads the same rules in SQL and
step by step, this reads the whole log at once. They share the algebra of lineages and the matching
of routes; times, blocks, admission, windows, deliveries and joins are worked out here anew.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from typing import Any

from storage.lineage import CommitFact, History, place
from storage.placement import Flag, flag_change, stratum_name
from storage.raw_events import (
    FrozenExperiment,
    RawDeploy,
    RawEvent,
    RawRevenue,
    Sighting,
    microseconds,
    moment_of,
)
from storage.route import RouteTable, canonical_route
from storage.tombstones import Tombstones

SECOND = 1_000_000
BLOCK = 300 * SECOND
IN_FLIGHT = timedelta(minutes=30)
# How far before its exposure a session is searched for the user that it named.
IDENTITY = timedelta(days=28)

TREATMENT, CONTROL, PARTIAL = "treatment", "control", "partial"
ARMS = (TREATMENT, CONTROL)


def block_of(at: int) -> int:
    """Returns the start of the block that a moment is in."""
    return at - at % BLOCK


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """When the blocks of an experiment close; all in microseconds since the epoch.

    Attributes:
        start: When exposure begins.
        bound_at: The binding: the earliest knowledge that counts.
        grace: How long a block waits for what is under way.
        horizon: The last moment of exposure.
        until: How far the log is read.
    """

    start: int
    bound_at: int
    grace: int
    horizon: int
    until: int

    @classmethod
    def of(cls, experiment: FrozenExperiment, *, until: int) -> "Calendar":
        """The calendar of an experiment."""
        start = microseconds(experiment.starts_at)
        return cls(
            start=start,
            bound_at=microseconds(experiment.bound_at),
            grace=experiment.policy["grace_seconds"] * SECOND,
            horizon=start + experiment.policy["horizon_seconds"] * SECOND,
            until=until,
        )

    def closes(self, block: int, window: int = 0) -> int:
        """Returns when a block's exposures close, or its outcomes within a window."""
        return block + BLOCK + window + self.grace

    def has_closed(self, block: int, window: int = 0) -> bool:
        """Tells whether that has happened by the end of the reading."""
        return self.closes(block, window) <= self.until

    def known_at(self, block: int) -> int:
        """Returns up to when what is recorded counts for a block."""
        return max(self.closes(block), self.bound_at)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where an event stands in the experiment.

    Attributes:
        arm: `treatment`, `control` or `partial`.
        stratum: The name of its stratum.
        carried: The changes besides the one under test: what the stratum is.
        commit: The build that served it, as a known commit.
    """

    arm: str
    stratum: str
    carried: frozenset[str]
    commit: str


class Standings:
    """Where the events of an experiment stand, by commit, flags and what was known.

    Args:
        experiment: The experiment.
        facts: What was ever recorded of the environment's commits.
        flags: The flags that its experiments test, and since when each is known.
    """

    def __init__(
        self, experiment: FrozenExperiment, facts: Sequence[CommitFact], flags: Mapping[str, int]
    ) -> None:
        named = experiment.policy["flag"]
        self._change = frozenset(experiment.change)
        self._own = None if named is None else Flag(**named)
        self._flags = flags
        self._facts = facts
        self._histories: dict[int, History] = {}
        recorded = {fact.recorded_at for fact in facts}
        recorded |= {fact.base_recorded_at for fact in facts if fact.base_recorded_at is not None}
        self._turns = sorted({microseconds(moment) for moment in recorded} | set(flags.values()))
        self._found = cache(self._worked_out)

    def of(self, event: RawEvent, *, known_at: int) -> Standing | None:
        """Returns where an event stands; None while its commit is unknown."""
        if event.commit is None:
            return None
        turns = bisect_right(self._turns, known_at)
        if turns == 0:
            return None
        return self._found(event.commit, self._served(event), self._turns[turns - 1])

    def carried(self, commit: str, known_at: int) -> frozenset[str]:
        """Returns the changes that a known commit brings besides the one under test."""
        turns = bisect_right(self._turns, known_at)
        return self._history(self._turns[turns - 1]).lineage(commit) - self._change

    def _history(self, turn: int) -> History:
        if turn not in self._histories:
            self._histories[turn] = History(self._facts, known_at=moment_of(turn))
        return self._histories[turn]

    def _served(self, event: RawEvent) -> frozenset[tuple[str, str]]:
        if not event.flags or not self._flags:
            return frozenset()
        return frozenset(
            (name, str(value).lower() if isinstance(value, bool) else str(value))
            for name, value in event.flags.items()
            if name in self._flags
        )

    def _worked_out(
        self, commit: str, served: frozenset[tuple[str, str]], turn: int
    ) -> Standing | None:
        history = self._history(turn)
        known = history.resolve(commit)
        if known is None:
            return None
        found = place(self._change, history.lineage(known) | self._values(served, turn))
        return Standing(
            arm=PARTIAL if self._is_third(dict(served)) else found.arm,
            stratum=stratum_name(found.stratum),
            carried=found.stratum,
            commit=known,
        )

    def _values(self, served: frozenset[tuple[str, str]], turn: int) -> frozenset[str]:
        own = self._own
        return frozenset(
            flag_change(name, value)
            for name, value in served
            if (value == own.treatment if own and name == own.name else self._flags[name] <= turn)
        )

    def _is_third(self, served: Mapping[str, str]) -> bool:
        own = self._own
        if own is None or own.control is None:
            return False
        return served.get(own.name) not in (own.treatment, own.control)


def route_test(
    routes: Sequence[str] | None, patterns: Iterable[str]
) -> Callable[[str | None], bool | None]:
    """Returns what tells whether a route exposes; None where no pattern is known for it.

    Args:
        routes: The experiment's routes; None for all.
        patterns: Of the frozen graph.
    """
    if routes is None:
        return lambda _: True
    exposing = {canonical_route(route) for route in routes}
    table = RouteTable(patterns)

    @cache
    def exposes(route: str | None) -> bool | None:
        if route is None:
            return False
        if canonical_route(route) in exposing:
            return True
        pattern = table.match(route)
        return None if pattern is None else pattern in exposing

    return exposes


@dataclass(frozen=True, kw_only=True)
class Exposed:
    """A unit's exposure; the arm also says why it is in none."""

    at: int
    block: int
    arm: str
    standing: Standing
    pseudonym: bytes | None

    @property
    def counts(self) -> bool:
        """Whether the unit is admitted to an arm."""
        return self.arm in ARMS


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What a policy freezes of a metric; the window in microseconds."""

    name: str
    sources: frozenset[str]
    window: int
    is_mean: bool
    cap: float | None
    currency: str | None

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> "Metric":
        """The metric of a policy's definition."""
        return cls(
            name=definition["name"],
            sources=frozenset(definition["sources"]),
            window=definition["window_seconds"] * SECOND,
            is_mean=definition["kind"] == "mean",
            cap=definition["cap"],
            currency=definition["currency"],
        )

    def counts(self, paid: RawRevenue) -> bool:
        """Tells whether a revenue event is one of the metric's; of a mean, in its currency."""
        if paid.event not in self.sources:
            return False
        return not self.is_mean or (self.currency is not None and paid.currency == self.currency)


def metrics_of(policy: Mapping[str, Any]) -> list[Metric]:
    """Returns the target, then each guardrail."""
    return [Metric.of(definition) for definition in (policy["target"], *policy["guardrails"])]


# Of a unit, what each delivery of an event says: by the event's key, (received, value).
Values = dict[Any, tuple[int, float]]


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What became of the units, in one metric: the earliest receipt, and the values of means."""

    metric: Metric
    received: dict[str, int] = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=lambda: defaultdict(dict))

    def note(self, unit: str, received: int, key: object, value: float | None) -> None:
        """Counts a delivery: the first one of an event speaks for it."""
        self.received[unit] = min(received, self.received.get(unit, received))
        if self.metric.is_mean and value is not None:
            capped = value if self.metric.cap is None else min(value, self.metric.cap)
            own = self.values[unit]
            own[key] = min((received, capped), own.get(key, (received, capped)))


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """All units that an experiment saw; times in microseconds since the epoch.

    Attributes:
        exposures: Of each unit with one.
        in_flight: The units seen before the start, and when the block closed.
        unknown: The units with an event of an unknown commit, and the earliest such block.
        late: The units with an event after its block's close, and the earliest receipt.
        unmatched: The units on routes of no pattern, and when that was first known.
        unsigned: The units with an event that nobody vouches for, and when that was first known.
        crossed: The units in both arms, and when that was first known.
        outcomes: The target's, then each guardrail's.
    """

    exposures: dict[str, Exposed] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    unmatched: dict[str, int] = field(default_factory=dict)
    unsigned: dict[str, int] = field(default_factory=dict)
    crossed: dict[str, int] = field(default_factory=dict)
    outcomes: Sequence[Outcomes]

    @property
    def sightings(self) -> Mapping[str, dict[str, int]]:
        """What was seen of units that is no exposure, by its kind."""
        return {
            "in_flight": self.in_flight,
            "unknown_commit": self.unknown,
            "late": self.late,
            "unmatched_route": self.unmatched,
            "crossover": self.crossed,
            "unsigned": self.unsigned,
        }


class Attributor:
    """Works an experiment's attribution out.

    Args:
        experiment: The experiment.
        calendar: When its blocks close.
        standings: Where events stand.
        exposes: Whether a route exposes.
        deploys: Of the environment.
    """

    def __init__(
        self,
        experiment: FrozenExperiment,
        calendar: Calendar,
        *,
        standings: Standings,
        exposes: Callable[[str | None], bool | None],
        deploys: Sequence[RawDeploy],
    ) -> None:
        policy = experiment.policy
        self._calendar = calendar
        self._standings = standings
        self._exposes = exposes
        self._deploys = deploys
        self._by_user: bool = policy["unit"] == "user"
        self._trusted_only: bool = policy["trusted_identity"]
        self._signed_only: bool = policy.get("signed_assignments", False)
        self._metrics = metrics_of(policy)
        self._candidates: dict[str, tuple[tuple[Any, ...], Standing]] = {}
        self._told = Attribution(outcomes=[Outcomes(metric=metric) for metric in self._metrics])

    def attribution(
        self,
        events: Sequence[RawEvent],
        revenue: Iterable[RawRevenue],
        sightings: Iterable[Sighting],
        tombstones: Tombstones,
    ) -> Attribution:
        """Returns the attribution of what was received.

        Args:
            events: In any order, as often as they were delivered.
            revenue: Likewise.
            sightings: The users that sessions named.
            tombstones: What the log told before people were forgotten.
        """
        for event in events:
            self._admit(event)
        self._expose(sightings)
        self._unearth(tombstones)
        for event in events:
            self._follow(event)
        by_pseudonym = self._by_pseudonym()
        for paid in revenue:
            self._credit(paid, by_pseudonym)
        return self._told

    # --- Exposure --------------------------------------------------------------------------

    def _unit(self, event: RawEvent) -> str | None:
        if not self._by_user:
            return event.session_id
        named = event.pseudonym if event.trusted or not self._trusted_only else None
        return None if named is None else named.hex()

    def _admit(self, event: RawEvent) -> None:
        unit, block = self._unit(event), block_of(event.occurred_at)
        if unit is None or not self._calendar.has_closed(block):
            return
        in_time = event.received_at <= self._calendar.closes(block)
        if event.occurred_at < self._calendar.start:
            if in_time:
                _earliest(self._told.in_flight, unit, self._calendar.closes(block))
        elif (exposes := self._exposes(event.route)) is None:
            known = max(self._calendar.closes(block), event.received_at)
            _earliest(self._told.unmatched, unit, known)
        elif exposes and not self._is_vouched_for(event):
            known = max(self._calendar.closes(block), event.received_at)
            _earliest(self._told.unsigned, unit, known)
        elif exposes and in_time:
            self._consider(event, unit, block)
        elif exposes:
            _earliest(self._told.late, unit, event.received_at)

    def _is_vouched_for(self, event: RawEvent) -> bool:
        """Tells whether the event may say which arm served its session."""
        return not self._signed_only or event.trusted or event.signed

    def _consider(self, event: RawEvent, unit: str, block: int) -> None:
        standing = self._standings.of(event, known_at=self._calendar.known_at(block))
        if standing is None:
            _earliest(self._told.unknown, unit, block)
            return
        order = (
            event.occurred_at,
            event.commit,
            event.route is None,
            event.route or "",
            standing.arm,
            standing.stratum,
        )
        if unit not in self._candidates or order < self._candidates[unit][0]:
            self._candidates[unit] = (order, standing)

    def _expose(self, sightings: Iterable[Sighting]) -> None:
        users: dict[str, list[Sighting]] = defaultdict(list)
        for seen in () if self._by_user else sightings:
            if seen.session_id in self._candidates:
                users[seen.session_id].append(seen)
        for unit, (order, standing) in self._candidates.items():
            at = order[0]
            exposed = Exposed(
                at=at,
                block=block_of(at),
                arm=standing.arm,
                standing=standing,
                pseudonym=self._user(users.get(unit, ()), block_of(at)),
            )
            if unit in self._told.in_flight:
                exposed = replace(exposed, arm="in_flight")
            elif exposed.block + BLOCK > self._calendar.horizon:
                exposed = replace(exposed, arm="excluded")
            self._told.exposures[unit] = exposed

    def _user(self, seen: Iterable[Sighting], block: int) -> bytes | None:
        closes = self._calendar.closes(block)
        opens = closes - IDENTITY // timedelta(microseconds=1)
        named = [
            (one.occurred_at, one.pseudonym) for one in seen if opens < one.received_at <= closes
        ]
        return min(named)[1] if named else None

    def _unearth(self, tombstones: Tombstones) -> None:
        """Takes what was told before for told: what the log still tells of it is a part."""
        strata = {one.standing.stratum: one.standing for one in self._told.exposures.values()}
        for row in tombstones.exposures:
            block = microseconds(row.block)
            carried = (
                strata[row.stratum].carried
                if row.stratum in strata
                else self._standings.carried(row.commit_sha, self._calendar.known_at(block))
            )
            self._told.exposures[row.unit] = Exposed(
                at=microseconds(row.exposed_at),
                block=block,
                arm=row.arm,
                standing=Standing(
                    arm=row.arm, stratum=row.stratum, carried=carried, commit=row.commit_sha
                ),
                pseudonym=row.pseudonym,
            )
        known = self._told.sightings
        for row in tombstones.sightings:
            at = microseconds(row.at)
            # A unit of an unknown commit is known by its block.
            told = at - self._calendar.closes(0) if row.kind == "unknown_commit" else at
            _earliest(known[row.kind], row.unit, told)
        outcomes = {one.metric.name: one for one in self._told.outcomes}
        for row in tombstones.conversions:
            _earliest(outcomes[row.metric].received, row.unit, microseconds(row.received_at))
        for row in tombstones.amounts:
            values = outcomes[row.metric].values[row.unit]
            values[row.key] = microseconds(row.received_at), row.value

    # --- What became of the units -------------------------------------------------------------

    def _follow(self, event: RawEvent) -> None:
        unit = self._unit(event)
        exposed = None if unit is None else self._told.exposures.get(unit)
        if unit is None or exposed is None or not exposed.counts:
            return
        since = event.occurred_at - exposed.at
        for outcomes in self._told.outcomes:
            metric = outcomes.metric
            if event.event in metric.sources and 0 <= since <= metric.window:
                key = event.event_id or (event.event, event.occurred_at, event.value)
                outcomes.note(unit, event.received_at, key, event.value)
        if 0 < since <= self._metrics[0].window:
            self._watch(event, unit, exposed)

    def _watch(self, event: RawEvent, unit: str, exposed: Exposed) -> None:
        """Notes a unit that is now seen in the other arm, unless a deploy explains it."""
        block = block_of(event.occurred_at)
        known_at = self._calendar.known_at(block)
        if not self._calendar.has_closed(block) or not self._is_vouched_for(event):
            return
        standing = self._standings.of(event, known_at=known_at)
        if standing is None or standing.arm not in ARMS or standing.arm == exposed.arm:
            return
        explained = any(
            exposed.at < deploy.deployed_at <= event.occurred_at and deploy.recorded_at <= known_at
            for deploy in self._deploys
        )
        if not explained:
            known = max(event.received_at, self._calendar.closes(block))
            _earliest(self._told.crossed, unit, known)

    # --- Revenue --------------------------------------------------------------------------------

    def _by_pseudonym(self) -> dict[bytes, list[tuple[int, str]]]:
        """Returns the admitted exposures of each user, the earliest first."""
        found: dict[bytes, list[tuple[int, str]]] = defaultdict(list)
        for unit, exposed in self._told.exposures.items():
            if exposed.counts and exposed.pseudonym is not None:
                found[exposed.pseudonym].append((exposed.at, unit))
        return {pseudonym: sorted(exposures) for pseudonym, exposures in found.items()}

    def _credit(
        self, paid: RawRevenue, by_pseudonym: Mapping[bytes, Sequence[tuple[int, str]]]
    ) -> None:
        exposures = self._payers(paid, by_pseudonym)
        for outcomes in self._told.outcomes:
            metric = outcomes.metric
            if not metric.counts(paid):
                continue
            unit = next(
                (unit for at, unit in exposures if 0 <= paid.occurred_at - at <= metric.window),
                None,
            )
            if unit is not None:
                outcomes.note(unit, paid.received_at, ("revenue", paid.key), paid.amount)

    def _payers(
        self, paid: RawRevenue, by_pseudonym: Mapping[bytes, Sequence[tuple[int, str]]]
    ) -> Sequence[tuple[int, str]]:
        """Returns the exposures that a revenue event may count for, the earliest first."""
        if not self._by_user and paid.session_id is None:
            return by_pseudonym.get(paid.pseudonym, ())
        unit = paid.pseudonym.hex() if self._by_user else paid.session_id
        exposed = None if unit is None else self._told.exposures.get(unit)
        return () if unit is None or exposed is None or not exposed.counts else [(exposed.at, unit)]


def _earliest(known: dict[str, int], unit: str, at: int) -> None:
    known[unit] = min(at, known.get(unit, at))
