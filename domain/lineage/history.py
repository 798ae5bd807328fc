"""Lineage: which changes a commit carries, as known at a time (docs/statistics.md, 'Counts')."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class CommitFact:
    """A commit's changes and base in an environment, as first recorded there."""

    commit: str
    changes: frozenset[str]
    recorded_at: datetime
    base: str | None
    base_recorded_at: datetime | None
    assumed_base: str | None = None
    assumed_at: datetime | None = None

    @property
    def bases(self) -> Sequence[tuple[str, datetime]]:
        """The bases that it was ever given, each with the time from which on it is known."""
        given = ((self.base, self.base_recorded_at), (self.assumed_base, self.assumed_at))
        return [(base, at) for base, at in given if base is not None and at is not None]

    def base_at(self, known_at: datetime, *, bound_at: datetime | None = None) -> str | None:
        """Returns the base as known at a time: the named base, else the assumed base.

        Args:
            bound_at: The binding of the experiment that asks: a base that was named after it takes
                the place of an assumed base for later experiments alone.
        """
        assumed = self.assumed_base
        if self.assumed_at is None or self.assumed_at > known_at:
            assumed = None
        if self.base_recorded_at is None or self.base_recorded_at > known_at:
            return assumed
        if assumed is not None and bound_at is not None and self.base_recorded_at > bound_at:
            return assumed
        return self.base


class History:
    """The commits of an environment as known at a time.

    Args:
        bound_at: The binding of the experiment that asks; None for none.
    """

    def __init__(
        self, facts: Iterable[CommitFact], *, known_at: datetime, bound_at: datetime | None = None
    ) -> None:
        self._facts: Mapping[str, CommitFact] = {
            fact.commit: fact for fact in facts if fact.recorded_at <= known_at
        }
        self._known_at = known_at
        self._bound_at = bound_at
        self._lineages: dict[str, frozenset[str]] = {}

    @cached_property
    def commits(self) -> frozenset[str]:
        """The known commits: those deployed, and those named as a base."""
        bases = (self.base(commit) for commit in self._facts)
        return frozenset(self._facts) | {base for base in bases if base is not None}

    def base(self, commit: str) -> str | None:
        """Returns the base that a commit stands on, named or assumed; None where none is known."""
        fact = self._facts.get(commit)
        return None if fact is None else fact.base_at(self._known_at, bound_at=self._bound_at)

    def is_recorded(self, commit: str) -> bool:
        """Tells whether a deploy of a commit was recorded."""
        return commit in self._facts

    def named_base(self, commit: str) -> str | None:
        """Returns the base that a post named for a commit; None where none is known."""
        fact = self._facts.get(commit)
        if fact is None or fact.base_recorded_at is None or fact.base_recorded_at > self._known_at:
            return None
        return fact.base

    def chain(self, commit: str, base_of: Callable[[str], str | None]) -> Iterator[str]:
        """Yields the bases under a commit, the nearest first; each once, where they go round."""
        passed = {commit}
        while (base := base_of(commit)) is not None and base not in passed:
            yield base
            passed.add(base)
            commit = base

    def stands_on(self, commit: str, base: str) -> bool:
        """Tells whether a commit was built on another, perhaps over others in between."""
        return base in self.chain(commit, self.base)

    def with_base(self, commit: str, base: str, *, assumed: bool) -> "History":
        """Returns this history where a recorded commit that lacked a base has it by now."""
        fact, at = self._facts.get(commit), self._known_at
        if fact is None:
            return self
        given = (
            replace(fact, assumed_base=base, assumed_at=at)
            if assumed
            else replace(fact, base=base, base_recorded_at=at)
        )
        return History([*self._facts.values(), given], known_at=at, bound_at=self._bound_at)

    def completed(self, facts: Iterable[CommitFact]) -> "History":
        """Returns this history with the facts of commits that it does not know."""
        every = [*facts, *self._facts.values()]
        return History(every, known_at=self._known_at, bound_at=self._bound_at)

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
            current = self.base(current)
        carried = self._lineages.get(current, frozenset()) if current is not None else frozenset()
        for link in reversed(chain):
            fact = self._facts.get(link)
            carried = carried | (frozenset({link}) if fact is None else fact.changes)
            self._lineages[link] = carried
        return carried
