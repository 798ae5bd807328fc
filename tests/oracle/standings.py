"""Standings: in which arm and stratum an event stands, and whether its route exposes."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from domain.lineage.flag import Flag, flag_change, stratum_name
from domain.lineage.history import CommitFact, History
from domain.route import RouteTable, canonical_route
from storage.pipeline.assignments import assign
from storage.pipeline.moments import microseconds, moment_of
from tests.oracle.frozen import FrozenExperiment
from tests.oracle.raw_log import RawDeploy, RawEvent

TREATMENT, CONTROL, PARTIAL = "treatment", "control", "partial"
UNASSIGNED, AMBIGUOUS = "unassigned", "ambiguous"
ARMS = (TREATMENT, CONTROL)
# What providers and clients send of a unit that is not in an experiment, in any case.
_NOTHING = {*("", "false", "null", "none", "nil", "nan", "undefined", "[object object]")} | {
    *("00000000-0000-0000-0000-000000000000", "0" * 32)
}


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where an event stands in the experiment.

    Attributes:
        arm: `treatment`, `control`, `partial`, `unassigned` without the flag under test, or
            `ambiguous` where the commit id begins several commits.
    """

    arm: str
    stratum: str
    carried: frozenset[str]
    commit: str
    lineage: str
    flags: Mapping[str, str]


class Standings:
    """Where the events of an experiment stand, by commit, flags and what was known."""

    def __init__(
        self,
        experiment: FrozenExperiment,
        facts: Sequence[CommitFact],
        ids: Sequence[tuple[str, str, int]],
        flags: Mapping[str, int],
        deploys: Sequence[RawDeploy],
    ) -> None:
        named = experiment.policy["flag"]
        self._change = frozenset(experiment.change)
        self._own = None if named is None else Flag(**named)
        segments: list[str] = experiment.policy["segments"]
        self._segments = segments
        if self._own is not None:
            # Also where the published draw gives it, so that it splits no strata.
            flags = {self._own.name: 0, **flags}
        # A segment is known from the beginning.
        self._flags = {**flags, **{f"properties.{name}": 0 for name in segments}}
        self._facts, self._bound_at = facts, experiment.bound_at
        self._ids = ids
        self._treatment = experiment.treatment_commit
        self._deploys = deploys
        self._histories: dict[int, History] = {}
        recorded = {fact.recorded_at for fact in facts}
        recorded |= {at for fact in facts for _, at in fact.bases}
        self._turns = sorted(
            {microseconds(moment) for moment in recorded}
            | {recorded_at for _, _, recorded_at in ids}
            | set(flags.values())
            | {deploy.recorded_at for deploy in deploys}
        )
        self._standing = cache(self._worked_out)

    def of(self, event: RawEvent, *, known_at: int) -> Standing | None:
        """Returns where an event stands; None while its commit is unknown."""
        if event.commit is None:
            return None
        turns = bisect_right(self._turns, known_at)
        if turns == 0:
            return None
        return self._standing(event.commit, self._served(event), self._turns[turns - 1])

    def carried(self, commit: str, known_at: int) -> frozenset[str]:
        """Returns the changes that a known commit brings besides that under test."""
        turns = bisect_right(self._turns, known_at)
        return self._history(self._turns[turns - 1]).lineage(commit) - self._change

    def _history(self, turn: int) -> History:
        if turn not in self._histories:
            self._histories[turn] = History(
                self._facts, known_at=moment_of(turn), bound_at=self._bound_at
            )
        return self._histories[turn]

    def _served(self, event: RawEvent) -> frozenset[tuple[str, str]]:
        flags = {
            name: _compared(value)
            for name, value in (event.flags or {}).items()
            if value is not None
        }
        return frozenset(
            (name, str(value).lower() if isinstance(value, bool) else str(value))
            for name, value in {**flags, **self._carried(event)}.items()
            if name in self._flags
        )

    def _carried(self, event: RawEvent) -> dict[str, object]:
        """Returns the values of segments: at most 64 characters, and no list or object."""
        carried: dict[str, object] = {}
        for name in self._segments:
            value = (event.properties or {}).get(name)
            if isinstance(value, str) and value and value[0] not in "{[":
                carried[f"properties.{name}"] = value[:64]
            elif isinstance(value, int):
                carried[f"properties.{name}"] = value
        return carried

    def _worked_out(
        self, commit: str, served: frozenset[tuple[str, str]], turn: int
    ) -> Standing | None:
        history = self._history(turn)
        meant = self._meant(commit, turn)
        if len(meant) > 1:
            nothing = frozenset[str]()
            return Standing(
                arm=AMBIGUOUS, stratum="", carried=nothing, commit=commit, lineage="", flags={}
            )
        known = next(iter(meant), None)
        if known is None or known not in history.commits:
            return None
        result = assign(self._change, history.lineage(known) | self._values(served, turn))
        arm = self._arm_by_flag(dict(served)) or result.arm
        apart = frozenset({known} if arm == TREATMENT and self._has_everybody(known, turn) else ())
        return Standing(
            arm=arm,
            stratum=stratum_name(result.stratum | apart),
            carried=result.stratum,
            commit=known,
            lineage=stratum_name((history.lineage(known) - self._change) | apart),
            flags={
                name: value
                for name, value in served
                if self._flags[name] <= turn and not self._is_arm(name, value)
            },
        )

    def _has_everybody(self, commit: str, turn: int) -> bool:
        """Tells whether another build than the treatment's was deployed to everybody by then."""
        posted = [deploy for deploy in self._deploys if deploy.recorded_at <= turn]
        shares = {deploy.allocation for deploy in posted if deploy.commit == commit}
        own = [deploy.allocation or 0 for deploy in posted if deploy.commit == self._treatment]
        if self._own is not None or commit == self._treatment:
            return False
        return 1 in shares or (None in shares and any(0 < share < 1 for share in own))

    def _meant(self, written: str, turn: int) -> set[str]:
        """Returns the commits of which the longest known id begins like the written id."""
        longest: dict[str, str] = {}
        for commit, known, recorded_at in self._ids:
            if recorded_at <= turn and len(known) > len(longest.get(commit, "")):
                longest[commit] = known
        return {
            commit
            for commit, known in longest.items()
            if known[: len(written)] == written[: len(known)]
        }

    def _values(self, served: frozenset[tuple[str, str]], turn: int) -> frozenset[str]:
        own = self._own
        return frozenset(
            flag_change(name, value)
            for name, value in served
            if (own and (name, value) == (own.name, own.treatment))
            or (self._flags[name] <= turn and not self._is_arm(name, value))
        )

    def _is_arm(self, name: str, value: str) -> bool:
        """Tells whether a value says the arm alone: of the own flag, where control's is known.

        Where control is not named, the strata say which value their units have.
        """
        own = self._own
        is_own = own is not None and name == own.name
        return is_own and (own.control is not None or value == own.treatment)

    def _arm_by_flag(self, served: Mapping[str, str]) -> str | None:
        own = self._own
        if own is None:
            return None
        value = served.get(own.name)
        if value is not None and value in (own.treatment, own.control):
            return None
        if value is None or value.lower() in _NOTHING:
            return UNASSIGNED
        return None if own.control is None else PARTIAL


def _compared(value: object) -> str:
    """Returns a flag's value without the spaces around it, true and false in small letters."""
    text = str(value).strip(" \t\r\n")
    return text.lower() if text.lower() in ("true", "false") else text


def route_test(
    routes: Sequence[str] | None, patterns: Iterable[str]
) -> Callable[[str | None], bool | None]:
    """Returns what tells whether a route exposes; None where no pattern is known for it."""
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
