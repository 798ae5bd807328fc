"""Lineage: which changes a commit carries, as known at a time (docs/statistics.md, 'Counts')."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class CommitFact:
    """A commit's changes and base in one environment, as first recorded there."""

    commit: str
    changes: frozenset[str]
    recorded_at: datetime
    base: str | None
    base_recorded_at: datetime | None


class History:
    """The commits of an environment as known at one time."""

    def __init__(self, facts: Iterable[CommitFact], *, known_at: datetime) -> None:
        self._facts: Mapping[str, CommitFact] = {
            fact.commit: fact for fact in facts if fact.recorded_at <= known_at
        }
        self._known_at = known_at
        self._lineages: dict[str, frozenset[str]] = {}

    @cached_property
    def commits(self) -> frozenset[str]:
        """The known commits: those deployed, and those named as a base."""
        bases = (self._base(commit) for commit in self._facts)
        return frozenset(self._facts) | {base for base in bases if base is not None}

    def _base(self, commit: str) -> str | None:
        fact = self._facts.get(commit)
        if fact is None or fact.base_recorded_at is None or fact.base_recorded_at > self._known_at:
            return None
        return fact.base

    def completed(self, facts: Iterable[CommitFact]) -> "History":
        """Returns this history with the facts of commits that it does not know."""
        return History([*facts, *self._facts.values()], known_at=self._known_at)

    def lineage(self, commit: str) -> frozenset[str]:
        """Returns the changes that a commit carries: its own and those of its bases.

        A commit that was never deployed carries itself alone.
        """
        chain: list[str] = []
        current: str | None = commit
        # A chain rather than recursion: histories are longer than Python's stack. A cycle,
        # which two contradictory posts can make, ends where it meets itself.
        while current is not None and current not in self._lineages and current not in chain:
            chain.append(current)
            current = self._base(current)
        carried = self._lineages.get(current, frozenset()) if current is not None else frozenset()
        for link in reversed(chain):
            fact = self._facts.get(link)
            carried = carried | (frozenset({link}) if fact is None else fact.changes)
            self._lineages[link] = carried
        return carried

    def undeployed_root(self, commit: str) -> str | None:
        """Returns the build that a commit's bases go back to, where that was never deployed."""
        root, seen = commit, {commit}
        while (base := self._base(root)) is not None and base not in seen:
            seen.add(base)
            root = base
        return None if root in self._facts else root
