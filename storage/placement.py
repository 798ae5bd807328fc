"""Placement: where each commit's units stand in each experiment, by what was known when."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from storage.lineage import CommitFact, History, place


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A change behind a feature flag: the value under test, and the one it is compared with.

    Where no control value is named, every unit without the value under test is control.
    """

    name: str
    treatment: str
    control: str | None = None

    @property
    def change(self) -> str:
        """The flag's value as a change; no commit id holds an equals sign."""
        return flag_change(self.name, self.treatment)


def flag_change(name: str, value: str) -> str:
    """Returns a flag's value as a change."""
    return f"{name}={value}"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What an experiment asks of a context.

    Attributes:
        change: D, the change under test.
        bound_at: The binding: the earliest knowledge that counts.
        flag: The flag under test, if the change is one.
    """

    change: frozenset[str]
    bound_at: datetime
    flag: Flag | None = None


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The arm and stratum of a commit id in an experiment, over a span of knowledge.

    A block is placed by what was known at the later of its close and the binding: the placement
    holds for known_from <= that time < known_to (None: for ever).
    """

    commit: str
    served: str
    resolved: str
    known_from: datetime
    known_to: datetime | None
    arm: str
    stratum: str


def stratum_name(changes: Iterable[str]) -> str:
    """Returns the name of a stratum: a digest, because a lineage can be thousands of changes."""
    return hashlib.sha256("\n".join(sorted(changes)).encode()).hexdigest()[:16]


class Histories:
    """The knowledge of one environment at any time; each time is worked out once.

    Args:
        facts: What was recorded of its commits.
        flags: The flags that its experiments test, and since when each is known.
    """

    def __init__(
        self, facts: Sequence[CommitFact], *, flags: Mapping[str, datetime] | None = None
    ) -> None:
        self._facts = facts
        self._flags = flags or {}
        self._by_commit = {fact.commit: fact for fact in facts}
        self._known: dict[datetime, History] = {}
        self._named_as_base: dict[str, set[datetime]] = {}
        for fact in facts:
            if fact.base is not None and fact.base_recorded_at is not None:
                self._named_as_base.setdefault(fact.base, set()).add(fact.base_recorded_at)
        self._names = self._by_commit.keys() | self._named_as_base.keys()

    def at(self, known_at: datetime) -> History:
        """Returns what was known at a time."""
        if known_at not in self._known:
            self._known[known_at] = History(self._facts, known_at=known_at)
        return self._known[known_at]

    def turns(self, commit: str) -> set[datetime]:
        """Returns the times at which the knowledge of a commit id's lineage can change."""
        times: set[datetime] = set()
        for name in self._begun(commit):
            walked: set[str] = set()
            current: str | None = name
            while current is not None and current not in walked:
                walked.add(current)
                fact = self._by_commit.get(current)
                if fact is None:
                    break
                times.add(fact.recorded_at)
                if fact.base_recorded_at is not None:
                    times.add(fact.base_recorded_at)
                current = fact.base
            times |= self._named_as_base.get(name, set())
        return times

    def _begun(self, commit: str) -> list[str]:
        return [name for name in self._names if name.startswith(commit)]

    def placements(
        self,
        question: Question,
        commit: str,
        *,
        served: str = "{}",
        until: datetime | None = None,
    ) -> list[Placement]:
        """Returns the placements of a commit id, none while it is unknown.

        Args:
            question: What the experiment asks.
            commit: A commit id as an event named it, perhaps short.
            served: The values of tested flags that the event names, as a JSON object.
            until: When the last block closes that is asked about; what became known after it
                and after the binding changes no placement. None for all that is known.
        """
        values: dict[str, str] = json.loads(served)
        known_since = {self._flags[name] for name in values if name in self._flags}
        later = (
            turn
            for turn in self.turns(commit) | known_since
            if turn > question.bound_at and (until is None or turn <= until)
        )
        turns = sorted({question.bound_at, *later})
        placements: list[Placement] = []
        for known_from, known_to in zip(turns, [*turns[1:], None], strict=True):
            history = self.at(known_from)
            resolved = history.resolve(commit)
            if resolved is None:
                continue
            flags = self._flag_changes(question, values, known_at=known_from)
            found = place(question.change, history.lineage(resolved) | flags)
            new = Placement(
                commit=commit,
                served=served,
                resolved=resolved,
                known_from=known_from,
                known_to=known_to,
                arm="partial" if _is_third_value(question.flag, values) else found.arm,
                stratum=stratum_name(found.stratum),
            )
            if placements and _continues(placements[-1], new):
                new = replace(new, known_from=placements.pop().known_from)
            placements.append(new)
        return placements

    def _flag_changes(
        self, question: Question, values: Mapping[str, str], *, known_at: datetime
    ) -> frozenset[str]:
        """Returns the flag values that belong to a context.

        Those of flags that experiments test; of the flag under test only the value under test,
        since any other value is what control is.
        """
        flag = question.flag
        own = flag is not None and values.get(flag.name) == flag.treatment
        others = {
            flag_change(name, value)
            for name, value in values.items()
            if (flag is None or name != flag.name)
            and name in self._flags
            and self._flags[name] <= known_at
        }
        return frozenset(others | ({flag.change} if flag is not None and own else set()))


def _is_third_value(flag: Flag | None, values: Mapping[str, str]) -> bool:
    """Tells a value that is neither the one under test nor the one it is compared with."""
    if flag is None or flag.control is None:
        return False
    return values.get(flag.name) not in (flag.treatment, flag.control)


def _continues(before: Placement, after: Placement) -> bool:
    """Tells whether what became known in between changed nothing."""
    return before.known_to == after.known_from and (
        before.resolved,
        before.arm,
        before.stratum,
    ) == (after.resolved, after.arm, after.stratum)
