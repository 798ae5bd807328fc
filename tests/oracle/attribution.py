"""Attribution: what units an experiment counts and what became of them, event by event.

Written from docs/statistics.md, 'Counts': the product states the same rules in SQL, this reads the
whole log in plain Python. They share the algebra of lineages and the matching of routes; times,
blocks, admission, windows, deliveries and joins are worked out anew, here and in the calendar, the
standings and the outcomes beside it.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from domain.draw import bound_of, position_of
from domain.lineage.flag import flag_change
from storage.pipeline.moments import microseconds
from storage.tenants.sample import salt_of
from tests.oracle.calendar import BLOCK, SECOND, Calendar, block_of
from tests.oracle.frozen import FrozenExperiment
from tests.oracle.outcomes import Outcomes, metrics_of
from tests.oracle.picks import Picks, picks_of
from tests.oracle.raw_log import RawDeploy, RawEvent, RawRevenue, Sighting
from tests.oracle.standings import AMBIGUOUS, ARMS, TREATMENT, UNASSIGNED, Standing, Standings
from tests.oracle.tombstones import Tombstones

# The sightings that are noted by the block of the event.
BY_BLOCK = ("unknown_commit", "ambiguous_commit", "unknown_build")
IN_FLIGHT = timedelta(minutes=30)
# How far before its exposure a session is searched for the user that it named.
IDENTITY = timedelta(days=28)
DAY = 86_400 * SECOND
# By unit the order of its first event, where that stands, and what the event is called.
Candidates = dict[str, tuple[tuple[Any, ...], Standing, str]]


@dataclass(frozen=True, kw_only=True)
class Exposed:
    """A unit's exposure; the arm also says why it is in none."""

    at: int
    block: int
    arm: str
    standing: Standing
    pseudonym: bytes | None
    as_drawn: bool | None
    event: str

    @property
    def counts(self) -> bool:
        """Whether the unit is admitted to an arm."""
        return self.arm in ARMS


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """All units that an experiment saw; times in microseconds since the epoch.

    Attributes:
        nameless: The same of no commit, or of zeros alone.
        anonymous: The sessions that a build served, by an event that names no user, and when its
            block closed.
        returned: By the block of a user's second session, the arm of the first, and whether it has
            the second too.
        served: By kind and unit the earliest sighting of units that an arm may have served, and
            the arm, or '~'.
    """

    exposures: dict[str, Exposed] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    ambiguous: dict[str, int] = field(default_factory=dict)
    nameless: dict[str, int] = field(default_factory=dict)
    arrived_by: dict[str, tuple[int, str]] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    unmatched: dict[str, int] = field(default_factory=dict)
    unsigned: dict[str, int] = field(default_factory=dict)
    anonymous: dict[str, int] = field(default_factory=dict)
    crossed: dict[str, int] = field(default_factory=dict)
    returned: dict[int, list[tuple[str, bool]]] = field(default_factory=lambda: defaultdict(list))
    served: dict[str, dict[str, tuple[int, str]]] = field(default_factory=lambda: defaultdict(dict))
    outcomes: Sequence[Outcomes]
    picks: Sequence[Picks]

    @property
    def sightings(self) -> Mapping[str, dict[str, int]]:
        """What was seen of units that is no exposure, by its kind."""
        return {
            "in_flight": self.in_flight,
            "unknown_commit": self.unknown,
            "ambiguous_commit": self.ambiguous,
            "unknown_build": self.nameless,
            "late": self.late,
            "unmatched_route": self.unmatched,
            "crossover": self.crossed,
            "unsigned": self.unsigned,
            "unknown_user": self.anonymous,
        }


class Attributor:
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
        self._by_user: bool = policy["unit"] != "session"
        self._experiment = experiment
        self._trusted_only: bool = policy["trusted_identity"]
        self._signed_only: bool = policy["signed_assignments"]
        self._metrics = metrics_of(policy)
        self._warm_at: int = calendar.start + policy["warmup_seconds"] * SECOND
        # Of units, by what they name and by what their sessions lend them.
        self._candidates: Candidates = {}
        self._lent: Candidates = {}
        self._users: dict[str, list[Sighting]] = defaultdict(list)
        self._buried: set[str] = set()
        self._facts = Attribution(
            outcomes=[Outcomes(metric=metric) for metric in self._metrics],
            picks=picks_of(policy, experiment.experiment_id, experiment.pick_secret),
        )

    def attribution(
        self,
        events: Sequence[RawEvent],
        revenue: Iterable[RawRevenue],
        sightings: Iterable[Sighting],
        tombstones: Tombstones,
        history: tuple[Sequence[RawEvent], Sequence[RawRevenue]],
    ) -> Attribution:
        """Returns the attribution of what was received, the history before the start too."""
        self._meet(sightings)
        for event in events:
            self._admit(event)
        # Before exposure: a unit in flight stays so after its event is erased.
        self._recall(tombstones)
        self._expose()
        self._unearth(tombstones)
        if self._calendar.has_closed(block_of(self._calendar.start)):
            self._remember(*history)
        for event in events:
            self._follow(event)
        for outcomes in self._facts.outcomes:
            for unit in outcomes.values if outcomes.metric.over is not None else ():
                exposed = self._facts.exposures[unit]
                closes = self._calendar.closes(exposed.block, outcomes.metric.open_for)
                outcomes.note_late(unit, closes)
        by_pseudonym = self._by_pseudonym()
        for sessions in by_pseudonym.values():
            self._turn_over(sessions)
            self._return([self._facts.exposures[unit] for _, unit in sessions])
        for paid in revenue:
            self._credit(paid, by_pseudonym)
        return self._facts

    # --- Exposure --------------------------------------------------------------------------

    def _unit(self, event: RawEvent) -> str | None:
        if not self._by_user:
            return event.session_id
        named = event.pseudonym if event.trusted or not self._trusted_only else None
        return None if named is None else named.hex()

    def _meet(self, sightings: Iterable[Sighting]) -> None:
        for seen in sightings:
            self._users[seen.session_id].append(seen)

    def _session_user(self, session_id: str | None, occurred_at: int) -> str | None:
        """Returns the user that a session names first by the close of a block."""
        closes = self._calendar.closes(block_of(occurred_at))
        named = [
            (each.received_at, each.pseudonym.hex())
            for each in self._users.get(session_id or "", ())
            if closes - closes % DAY - 27 * DAY <= each.received_at <= closes
        ]
        has_closed = closes <= self._calendar.until
        return min(named)[1] if self._by_user and named and has_closed else None

    def _unit_or_lent(self, event: RawEvent) -> str | None:
        if (named := self._unit(event)) is not None:
            return named
        return self._session_user(event.session_id, event.occurred_at)

    def _admit(self, event: RawEvent) -> None:
        unit = self._unit_or_lent(event)
        if unit is None:
            self._admit_anonymous(event)
        else:
            self._admit_unit(event, unit)

    def _admit_unit(self, event: RawEvent, unit: str) -> None:
        block = block_of(event.occurred_at)
        # Nothing stands for somebody who is forgotten.
        if not unit or not self._calendar.has_closed(block) or not self._samples(unit):
            return
        in_time = event.received_at <= self._calendar.closes(block)
        if event.occurred_at < self._calendar.start:
            if in_time:
                _earliest(self._facts.in_flight, unit, self._calendar.closes(block))
        elif (exposes := self._exposes(event.route)) is None:
            self._sight("unmatched_route", unit, event)
        elif exposes and not self._is_vouched_for(event):
            self._sight("unsigned", unit, event)
        elif exposes and not self._is_unassigned(event, block):
            if in_time:
                self._consider(event, unit, block)
            else:
                self._sight("late", unit, event)

    def _admit_anonymous(self, event: RawEvent) -> None:
        """Notes the session of an event that would expose a user, if it named any."""
        block = block_of(event.occurred_at)
        standing = self._standings.of(event, known_at=self._calendar.known_at(block))
        if (
            self._calendar.start <= event.occurred_at
            and self._calendar.has_closed(block)
            and event.received_at <= self._calendar.closes(block)
            and self._samples(event.session_id)
            and self._exposes(event.route)
            and self._is_vouched_for(event)
            and standing is not None
            and standing.arm in ARMS
        ):
            self._sight("unknown_user", event.session_id, event)

    def _sight(self, kind: str, unit: str, event: RawEvent) -> None:
        block = block_of(event.occurred_at)
        known = max(self._calendar.closes(block), event.received_at)
        standing = self._standings.of(event, known_at=self._calendar.known_at(block))
        served = standing is not None and standing.arm in ARMS and self._is_vouched_for(event)
        arm = standing.arm if standing is not None and served else "~"
        _earliest(self._facts.sightings[kind], unit, known)
        _earliest(self._facts.served[kind], unit, (known, arm))

    def _is_unassigned(self, event: RawEvent, block: int) -> bool:
        """Tells whether the event does not carry the flag under test."""
        if self._unit(event) is None and self._experiment.policy.get("drawn"):
            return True
        standing = self._standings.of(event, known_at=self._calendar.known_at(block))
        return standing is not None and standing.arm == UNASSIGNED

    def _samples(self, unit: str) -> bool:
        """Tells whether a unit is in the sample that the policy froze, if any."""
        bound = bound_of(self._experiment.policy["sample_rate"])
        salt = salt_of(self._experiment.project_id)
        return bound is None or position_of(unit, salt=salt) < bound

    def _is_vouched_for(self, event: RawEvent) -> bool:
        """Tells whether the event may say which arm served its session."""
        return not self._signed_only or event.trusted or event.signed

    def _consider(self, event: RawEvent, unit: str, block: int) -> None:
        standing = self._standings.of(event, known_at=self._calendar.known_at(block))
        if standing is None and not (event.commit or "").strip("0"):
            _earliest(self._facts.nameless, unit, block)
            _earliest(self._facts.arrived_by, unit, (block, event.event))
            return
        if standing is None or standing.arm == AMBIGUOUS:
            answer = self._facts.unknown if standing is None else self._facts.ambiguous
            _earliest(answer, unit, block)
            return
        order = (
            event.occurred_at,
            event.commit,
            event.route is None,
            event.route or "",
            standing.arm,
            standing.stratum,
        )
        candidates = self._lent if self._unit(event) is None else self._candidates
        known = candidates.get(unit, (order, standing, event.event))
        name = min((known[0][0], known[2]), (event.occurred_at, event.event))[1]
        first = min(known, (order, standing), key=lambda each: each[0])
        candidates[unit] = (first[0], first[1], name)

    def _expose(self) -> None:
        for unit, lent in self._lent.items():
            own = self._candidates.get(unit)
            if own is None or block_of(lent[0][0]) < block_of(own[0][0]):
                self._candidates[unit] = lent
        for unit, (order, standing, name) in self._candidates.items():
            at = order[0]
            exposed = Exposed(
                at=at,
                block=block_of(at),
                arm=standing.arm,
                standing=standing,
                pseudonym=None if self._by_user else self._user(unit, block_of(at)),
                as_drawn=self._as_drawn(unit, standing),
                event=name,
            )
            if unit in self._facts.in_flight:
                exposed = replace(exposed, arm=f"in_flight_{standing.arm}")
            elif exposed.block + BLOCK > self._calendar.horizon:
                exposed = replace(exposed, arm=f"excluded_{standing.arm}")
            elif at < self._warm_at:
                exposed = replace(exposed, arm=f"warming_{standing.arm}")
            self._facts.exposures[unit] = exposed

    def _as_drawn(self, unit: str, standing: Standing) -> bool | None:
        """Tells whether the unit is in the arm that is drawn for it; None where none is."""
        policy = self._experiment.policy
        if not policy.get("drawn") or standing.arm not in ARMS:
            return None
        salt = f"{policy['flag']['name']}={policy['flag']['treatment']}"
        place = hashlib.sha256(f"{salt}:{unit}".encode()).digest()
        return (place[0] < 128) == (standing.arm == TREATMENT)

    def _user(self, session_id: str, block: int) -> bytes | None:
        closes = self._calendar.closes(block)
        opens = closes - IDENTITY // timedelta(microseconds=1)
        named = [
            (each.occurred_at, each.pseudonym)
            for each in self._users.get(session_id, ())
            if each.pseudonym and opens < each.received_at <= closes
        ]
        return min(named)[1] if named else None

    def _recall(self, tombstones: Tombstones) -> None:
        """Notes what was seen of units before their events were erased."""
        known = self._facts.sightings
        for row in tombstones.sightings:
            at = microseconds(row.at)
            # A unit of an unknown commit is known by its block.
            answer = at - self._calendar.closes(0) if row.kind in BY_BLOCK else at
            _earliest(known[row.kind], row.unit, answer)
            if row.event is not None:
                _earliest(self._facts.arrived_by, row.unit, (answer, row.event))
            _earliest(self._facts.served[row.kind], row.unit, (at, row.arm or "~"))

    def _unearth(self, tombstones: Tombstones) -> None:
        """Takes what was known before as it is: the log still holds a part of it."""
        strata = {each.standing.stratum: each.standing for each in self._facts.exposures.values()}
        for row in tombstones.exposures:
            block = microseconds(row.block)
            carried = (
                strata[row.stratum].carried
                if row.stratum in strata
                else self._standings.carried(row.commit_sha, self._calendar.known_at(block))
                | {flag_change(name, value) for name, value in row.flags.items()}
            )
            self._buried.add(row.unit)
            self._facts.exposures[row.unit] = Exposed(
                at=microseconds(row.exposed_at),
                block=block,
                arm=row.arm,
                standing=Standing(
                    arm=row.arm,
                    stratum=row.stratum,
                    carried=carried,
                    commit=row.commit_sha,
                    lineage=row.lineage,
                    flags=row.flags,
                ),
                pseudonym=row.pseudonym,
                as_drawn=None if row.as_drawn is None else bool(row.as_drawn),
                event=row.event,
            )
        outcomes = {each.metric.name: each for each in self._facts.outcomes}
        for row in tombstones.conversions:
            _earliest(outcomes[row.metric].received, row.unit, microseconds(row.received_at))
        self._unearth_amounts(tombstones)

    def _unearth_amounts(self, tombstones: Tombstones) -> None:
        for row in tombstones.amounts:
            for each in self._facts.outcomes:
                if row.metric in (each.metric.kept_as, each.metric.also_of):
                    first = each.metric.over is not None
                    key: Any = int(row.key) if first else (row.metric, row.key)
                    each.values[row.unit][key] = microseconds(row.received_at), row.value
            for picks in self._facts.picks:
                if row.metric == picks.name:
                    at = microseconds(row.received_at)
                    picks.bury(row.unit, key=row.key, received=at, value=row.value)

    def _remember(self, events: Sequence[RawEvent], revenue: Sequence[RawRevenue]) -> None:
        """Notes what users did before, exposed or not."""
        for metric in self._metrics:
            for sent in (*events, *revenue) if metric.received else ():
                if not metric.received[0] <= sent.received_at < metric.received[1]:
                    continue
                if isinstance(sent, RawEvent):
                    reads, unit, value = metric.reads(sent), self._unit(sent), sent.value
                    key: Any = sent.event_id or (sent.event, sent.stamped_at, sent.value)
                else:
                    user = sent.pseudonym
                    reads, unit = metric.counts(sent), user and user.hex()
                    key, value = ("revenue", sent.key), metric.worth(sent)
                for outcomes in self._facts.outcomes if reads and unit is not None else ():
                    if metric.name in (outcomes.metric.name, outcomes.metric.also_of):
                        outcomes.note(unit or "", sent.received_at, ("before", key), value)

    # --- What became of the units -------------------------------------------------------------

    def _follow(self, event: RawEvent) -> None:
        unit = self._unit_or_lent(event)
        exposed = None if unit is None else self._facts.exposures.get(unit)
        has_closed = self._calendar.has_closed(block_of(event.occurred_at))
        if unit is None or exposed is None or not (exposed.counts and has_closed):
            return
        since = event.occurred_at - exposed.at
        for outcomes in self._facts.outcomes:
            metric = outcomes.metric
            if metric.reads(event) and metric.holds(
                event.occurred_at, exposed_at=exposed.at, start=self._calendar.start
            ):
                sent = event.event, event.stamped_at, event.value
                # As a tombstone has it: another delivery may be left of what was erased.
                key: Any = metric.kept_as, event.event_id or " ".join(map(_text, sent))
                if metric.over is not None:
                    key = event.occurred_at
                value = metric.pair(event.event, event.properties) if metric.per else event.value
                outcomes.note(unit, event.received_at, key, value)
        for picks in self._facts.picks:
            metric, value = picks.metric, event.value
            closes = self._calendar.closes(exposed.block, metric.open_for)
            if (
                metric.reads(event)
                and value is not None
                and event.received_at <= closes
                and metric.holds(
                    event.occurred_at, exposed_at=exposed.at, start=self._calendar.start
                )
            ):
                words = " ".join(map(_text, (event.event, event.stamped_at, value)))
                picks.note(
                    unit,
                    received=event.received_at,
                    occurred=event.occurred_at,
                    key=event.event_id or words,
                    value=value,
                )
        if 0 < since <= self._metrics[0].window and self._unit(event) is not None:
            self._watch(event, unit, exposed)

    def _watch(self, event: RawEvent, unit: str, exposed: Exposed) -> None:
        """Notes a unit that is now seen in the other arm, unless a deploy explains it."""
        block = block_of(event.occurred_at)
        known_at = self._calendar.known_at(block)
        if not self._is_vouched_for(event):
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
            _earliest(self._facts.crossed, unit, known)

    # --- Revenue --------------------------------------------------------------------------------

    def _by_pseudonym(self) -> dict[bytes, list[tuple[int, str]]]:
        """Returns the admitted exposures of each user, the earliest first."""
        result: dict[bytes, list[tuple[int, str]]] = defaultdict(list)
        for unit, exposed in self._facts.exposures.items():
            if exposed.counts and exposed.pseudonym is not None:
                result[exposed.pseudonym].append((exposed.at, unit))
        return {pseudonym: sorted(exposures) for pseudonym, exposures in result.items()}

    def _turn_over(self, sessions: Sequence[tuple[int, str]]) -> None:
        """Notes which of a user's sessions have another after them, within the window."""
        for outcomes in self._facts.outcomes:
            if not outcomes.metric.is_turnover:
                continue
            for number, (at, unit) in enumerate(sessions):
                for later, other in sessions[number + 1 :]:
                    known = {unit, other} <= self._buried
                    if not known and 0 < later - at <= outcomes.metric.window:
                        outcomes.note(unit, self._calendar.closes(block_of(later)), None, None)

    def _return(self, sessions: Sequence[Exposed]) -> None:
        """Notes a user's second session, unless a deploy lies between it and the first."""
        blocks = sorted({each.block for each in sessions})
        if len(blocks) < 2:
            return
        first, second = blocks[:2]
        arms = [{each.arm for each in sessions if each.block == block} for block in blocks[:2]]
        explained = any(
            first < deploy.deployed_at < second + BLOCK
            and deploy.recorded_at <= self._calendar.known_at(second)
            for deploy in self._deploys
        )
        if len(arms[0]) == 1 and not explained:
            self._facts.returned[second].append((min(arms[0]), arms[0] == arms[1]))

    def _credit(
        self, paid: RawRevenue, by_pseudonym: Mapping[bytes, Sequence[tuple[int, str]]]
    ) -> None:
        exposures = self._payers(paid, by_pseudonym)
        for outcomes in self._facts.outcomes:
            metric = outcomes.metric
            if not (metric.counts(paid) and self._calendar.has_closed(block_of(paid.occurred_at))):
                continue
            # Before which of its user's sessions a payment came, only its session could say.
            unit = next(
                (
                    unit
                    for at, unit in exposures
                    if (at <= paid.occurred_at or self._by_user or paid.session_id is not None)
                    and metric.holds(paid.occurred_at, exposed_at=at, start=self._calendar.start)
                ),
                None,
            )
            if unit is not None:
                outcomes.note(unit, paid.received_at, ("revenue", paid.key), metric.worth(paid))

    def _payers(
        self, paid: RawRevenue, by_pseudonym: Mapping[bytes, Sequence[tuple[int, str]]]
    ) -> Sequence[tuple[int, str]]:
        """Returns the exposures that a revenue event may count for, the earliest first."""
        user = paid.pseudonym
        if not self._by_user and paid.session_id is None:
            return () if user is None else by_pseudonym.get(user, ())
        unit = paid.session_id
        if self._by_user:
            unit = user.hex() if user else self._session_user(paid.session_id, paid.occurred_at)
        exposed = None if unit is None else self._facts.exposures.get(unit)
        return () if unit is None or exposed is None or not exposed.counts else [(exposed.at, unit)]


def _earliest(known: dict[str, Any], unit: str, at: Any) -> None:
    known[unit] = min(at, known.get(unit, at))


def _text(member: object) -> str:
    return "" if member is None else str(member)
