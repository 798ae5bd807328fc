"""Placement: where each commit's units stand in each experiment, by what was known when."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from storage.lineage import CommitFact, History, place


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The arm and stratum of a commit id in an experiment, over a span of knowledge.

    A block is placed by what was known at the later of its close and the binding: the placement
    holds for known_from <= that time < known_to (None: for ever).
    """

    commit: str
    resolved: str
    known_from: datetime
    known_to: datetime | None
    arm: str
    stratum: str


def stratum_name(changes: Iterable[str]) -> str:
    """Returns the name of a stratum: a digest, because a lineage can be thousands of changes."""
    return hashlib.sha256("\n".join(sorted(changes)).encode()).hexdigest()[:16]


class Histories:
    """The knowledge of one environment at any time; each time is worked out once."""

    def __init__(self, facts: Sequence[CommitFact]) -> None:
        self._facts = facts
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
        self, change: frozenset[str], commit: str, *, bound_at: datetime
    ) -> list[Placement]:
        """Returns the placements of a commit id, none while it is unknown.

        Args:
            change: D, the change under test.
            commit: A commit id as an event named it, perhaps short.
            bound_at: The binding: the earliest knowledge that counts.
        """
        turns = sorted({bound_at, *(turn for turn in self.turns(commit) if turn > bound_at)})
        placements: list[Placement] = []
        for known_from, known_to in zip(turns, [*turns[1:], None], strict=True):
            history = self.at(known_from)
            resolved = history.resolve(commit)
            if resolved is None:
                continue
            found = place(change, history.lineage(resolved))
            new = Placement(
                commit=commit,
                resolved=resolved,
                known_from=known_from,
                known_to=known_to,
                arm=found.arm,
                stratum=stratum_name(found.stratum),
            )
            if placements and _continues(placements[-1], new):
                new = replace(new, known_from=placements.pop().known_from)
            placements.append(new)
        return placements


def _continues(before: Placement, after: Placement) -> bool:
    """Tells whether what became known in between changed nothing."""
    return before.known_to == after.known_from and (
        before.resolved,
        before.arm,
        before.stratum,
    ) == (
        after.resolved,
        after.arm,
        after.stratum,
    )
