"""Commit ids: which known commit an id means, however much of the commit's id it writes."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

# No id is shorter, so that all ids of a commit share as much.
SHORTEST = 7
# A beginning may fit thousands of commits; a sentence names a few.
_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class CommitId:
    """An id under which a commit became known, longer than those before it."""

    commit: str
    id: str
    recorded_at: datetime


class CommitIds:
    """The commits of a project, each known at a time by the longest id that was recorded of it.

    An id means the commit whose longest id it is, or begins, or goes on from. It is ambiguous where
    there are several.
    """

    def __init__(self, ids: Iterable[CommitId]) -> None:
        self._by_beginning: dict[str, list[CommitId]] = defaultdict(list)
        for known in sorted(ids, key=lambda known: len(known.id)):
            self._by_beginning[known.id[:SHORTEST]].append(known)

    def add(self, known: CommitId) -> None:
        """Adds an id, longer than any other of its commit."""
        self._by_beginning[known.id[:SHORTEST]].append(known)

    def meant(self, written: str, *, known_at: datetime) -> Sequence[CommitId]:
        """Returns the longest id of each commit that an id may mean at a time."""
        longest: dict[str, CommitId] = {}
        for known in self._by_beginning.get(written[:SHORTEST], ()):
            if known.recorded_at <= known_at:
                longest[known.commit] = known
        same = [known for known in longest.values() if known.id == written]
        return same or [
            known
            for known in longest.values()
            if known.id.startswith(written) or written.startswith(known.id)
        ]

    def changes(self, written: str) -> set[datetime]:
        """Returns the times at which an id may begin to mean another commit."""
        return {known.recorded_at for known in self._by_beginning.get(written[:SHORTEST], ())}

    def commits(self, written: str) -> set[str]:
        """Returns the commits that an id may ever mean, and others that begin like it."""
        return {known.commit for known in self._by_beginning.get(written[:SHORTEST], ())}


def ambiguous(written: str, meant: Iterable[str]) -> str:
    """Returns the sentence on an id that begins several commits."""
    commits = sorted(meant)
    left = len(commits) - _NAMED
    named = ", ".join(commits[:_NAMED]) + (f" and {left} more" if left > 0 else "")
    return f"{written} begins {len(commits)} commits: {named}. Send more of it"
