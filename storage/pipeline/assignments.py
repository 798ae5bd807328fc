"""Assignments: arm and stratum of each commit and set of flags in an experiment, over time."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from domain.lineage.commit_id import CommitIds
from domain.lineage.flag import (
    Flag,
    flag_change,
    flag_value,
    says_nothing,
    segment_name,
    spellings,
    stratum_name,
)
from domain.lineage.history import CommitFact, History

FlagValues = Mapping[str, str]
FlagItems = tuple[tuple[str, str], ...]
NO_FLAGS: FlagValues = {}
# The arm of an event whose commit id begins several known commits.
AMBIGUOUS = "ambiguous"
# Only this many flags under test, the newest, distinguish strata.
MOST_FLAGS = 64


@dataclass(frozen=True, kw_only=True)
class ContextAssignment:
    """The assignment of a context under a change: its arm, and the stratum to compare it in."""

    arm: str
    stratum: frozenset[str]


def assign(change: frozenset[str], context: frozenset[str]) -> ContextAssignment:
    """Returns the arm and stratum of a context under a change."""
    if change <= context:
        arm = "treatment"
    elif change & context:
        arm = "partial"
    else:
        arm = "control"
    return ContextAssignment(arm=arm, stratum=context - change)


@dataclass(frozen=True, kw_only=True)
class Question:
    """An experiment's question about a context: its arm and its stratum."""

    change: frozenset[str]
    bound_at: datetime
    treatment_commit: str | None = None
    flag: Flag | None = None
    segments: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class PostedStep:
    """A deploy of a commit, as far as it says who gets it."""

    commit: str
    allocation: float | None
    recorded_at: datetime
    withdrawn_at: datetime | None


class Assignment(NamedTuple):
    """The arm and stratum of a commit id with some flags, over a span of knowledge.

    A block is assigned by the knowledge at the later of its close and the binding: the assignment
    holds for known_from <= that time < known_to (None: for ever). `lineage` names the stratum
    without the values of other flags, which `flags` holds.
    """

    resolved: str
    known_from: datetime
    known_to: datetime | None
    arm: str
    stratum: str
    lineage: str
    flags: FlagValues


class KnownHistory:
    """The knowledge of an environment at any time; nothing is worked out twice."""

    def __init__(
        self,
        facts: Sequence[CommitFact],
        *,
        ids: CommitIds,
        flags: Mapping[str, datetime] | None = None,
        steps: Mapping[str, Sequence[PostedStep]] | None = None,
    ) -> None:
        self._facts = facts
        self._ids = ids
        self._flags = flags or {}
        self._steps = steps or {}
        self._by_commit = {fact.commit: fact for fact in facts}
        self._histories: dict[tuple[datetime, datetime | None], History] = {}
        # A base that was named after an experiment's binding replaces no assumed base for it.
        self._by_binding = any(fact.base and fact.assumed_base for fact in facts)
        self._named_as_base: dict[str, set[datetime]] = {}
        for fact in facts:
            for base, at in fact.bases:
                self._named_as_base.setdefault(base, set()).add(at)
        self._changes: dict[str, Sequence[datetime]] = {}
        self._meant: dict[tuple[str, datetime, datetime | None], Sequence[str]] = {}
        # An object for each lineage, so that sets that hold the same are compared at once.
        self._lineages: dict[frozenset[str], frozenset[str]] = {}
        self._assigned: dict[tuple[frozenset[str], frozenset[str], bool], ContextAssignment] = {}
        self._strata: dict[tuple[frozenset[str], FlagItems], str] = {}
        self._newest: dict[datetime, frozenset[str]] = {}

    def _knowledge_changes(self, commit: str) -> Sequence[datetime]:
        """Returns the times at which the knowledge of a commit id's lineage can change."""
        if commit not in self._changes:
            times = self._ids.changes(commit)
            for name in self._ids.commits(commit):
                times |= self._changes_of(name)
                times |= {step.recorded_at for step in self._steps.get(name, ())}
            self._changes[commit] = sorted(times)
        return self._changes[commit]

    def _changes_of(self, name: str) -> set[datetime]:
        times = set(self._named_as_base.get(name, ()))
        passed: set[str] = set()
        ahead = [name]
        while ahead:
            current = ahead.pop()
            fact = self._by_commit.get(current)
            if current in passed or fact is None:
                continue
            passed.add(current)
            times.add(fact.recorded_at)
            for base, at in fact.bases:
                times.add(at)
                ahead.append(base)
        return times

    def _history(self, known_at: datetime, *, bound_at: datetime) -> History:
        asked = known_at, bound_at if self._by_binding else None
        if asked not in self._histories:
            self._histories[asked] = History(self._facts, known_at=asked[0], bound_at=asked[1])
        return self._histories[asked]

    def _commits(self, question: Question, written: str, known_at: datetime) -> Sequence[str]:
        """Returns the known commits that an id may mean: none while it is unknown."""
        bound_at = question.bound_at if self._by_binding else None
        key = written, known_at, bound_at
        if key not in self._meant:
            meant = self._ids.meant(written, known_at=known_at)
            commits = [known.commit for known in meant]
            # Known elsewhere in the project, it may be unknown in this environment.
            history = self._history(known_at, bound_at=question.bound_at)
            unknown = len(commits) == 1 and commits[0] not in history.commits
            self._meant[key] = () if unknown else commits
        return self._meant[key]

    def _lineage(self, question: Question, commit: str, known_at: datetime) -> frozenset[str]:
        lineage = self._history(known_at, bound_at=question.bound_at).lineage(commit)
        return self._lineages.setdefault(lineage, lineage)

    def assignments(
        self,
        question: Question,
        commit: str,
        *,
        values: FlagValues = NO_FLAGS,
        until: datetime | None = None,
    ) -> list[Assignment]:
        """Returns the assignments of a commit id in order of time, none while it is unknown.

        Args:
            until: When the last block closes that is asked about; what became known after it
                and after the binding changes no assignment. None for all that is known.
        """
        times = self._times(question, commit, values, until)
        assignments: list[Assignment] = []
        for known_from, known_to in zip(times, [*times[1:], None], strict=True):
            commits = self._commits(question, commit, known_from)
            if not commits:
                continue
            assigned = self._assignment(question, commits, values, (known_from, known_to))
            before = assignments[-1] if assignments else None
            if before is not None and _continues(before, assigned):
                assigned = assigned._replace(known_from=assignments.pop().known_from)
            assignments.append(assigned)
        return assignments

    def _assignment(
        self,
        question: Question,
        commits: Sequence[str],
        values: FlagValues,
        span: tuple[datetime, datetime | None],
    ) -> Assignment:
        """Returns the assignment of a single commit with flags, or of an id that means several."""
        arm, stratum, others = AMBIGUOUS, frozenset[str](), ()
        known_from, known_to = span
        if len(commits) == 1:
            others = self._other_values(question, values, known_at=known_from)
            of_context = self._assign(
                question, self._lineage(question, commits[0], known_from), values
            )
            arm = _arm_by_flag(question.flag, values) or of_context.arm
            stratum = of_context.stratum
            # Everybody has it by now, so that its units are compared with nobody's.
            if arm == "treatment" and self._is_promotion(question, commits[0], known_from):
                stratum |= {commits[0]}
        return Assignment(
            resolved=commits[0],
            known_from=known_from,
            known_to=known_to,
            arm=arm,
            stratum=self._stratum(stratum, others),
            lineage=self._stratum(stratum, ()),
            flags=dict(others),
        )

    def _is_promotion(self, question: Question, commit: str, known_at: datetime) -> bool:
        """Tells whether another commit than the treatment was deployed to everybody by a time.

        Beside a canary that declares a share, a deploy without a share is to everybody.
        """
        own = question.treatment_commit
        if question.flag is not None or own is None or commit == own:
            return False
        known = [
            step
            for name in (own, commit)
            for step in self._steps.get(name, ())
            if step.recorded_at <= known_at
            and (step.withdrawn_at is None or step.withdrawn_at > question.bound_at)
        ]
        declared = any(0 < (step.allocation or 0) < 1 for step in known if step.commit == own)
        full = {1, None} if declared else {1}
        return any(step.allocation in full for step in known if step.commit == commit)

    def _times(
        self, question: Question, commit: str, values: FlagValues, until: datetime | None
    ) -> list[datetime]:
        """Returns the times from which on something else may be known, the binding first."""
        bound_at = question.bound_at
        known = self._knowledge_changes(commit)
        times = {
            *known[bisect_right(known, bound_at) :],
            *(self._flags[name] for name in values if name in self._flags),
        }
        later = (at for at in times if at > bound_at and (until is None or at <= until))
        return [bound_at, *sorted(later)]

    def _other_values(
        self, question: Question, values: FlagValues, *, known_at: datetime
    ) -> FlagItems:
        """Returns the values of segments, and of the other flags that were tested by a time.

        Of a flag whose control is not named, the values that may be control's are among them.
        """
        if not values:
            return ()
        if known_at not in self._newest:
            known = sorted(
                (-at.timestamp(), name) for name, at in self._flags.items() if at <= known_at
            )
            self._newest[known_at] = frozenset(name for _, name in known[:MOST_FLAGS])
        newest = self._newest[known_at].union(map(segment_name, question.segments))
        own = question.flag
        return tuple(
            (name, value)
            for name, value in values.items()
            if (
                own.control is None and value != own.treatment
                if own is not None and name == own.name
                else name in newest
            )
        )

    def _assign(
        self, question: Question, lineage: frozenset[str], values: FlagValues
    ) -> ContextAssignment:
        """Returns the arm of a context, and its build's other changes."""
        flag = question.flag
        treated = flag is not None and values.get(flag.name) in spellings(flag.treatment)
        key = question.change, lineage, treated
        if key not in self._assigned:
            own = frozenset({flag.change}) if flag is not None and treated else frozenset[str]()
            self._assigned[key] = assign(question.change, lineage | own)
        return self._assigned[key]

    def _stratum(self, lineage: frozenset[str], flags: FlagItems) -> str:
        key = lineage, flags
        if key not in self._strata:
            served = {flag_change(name, value) for name, value in flags}
            self._strata[key] = stratum_name(lineage | served)
        return self._strata[key]


def _arm_by_flag(flag: Flag | None, values: FlagValues) -> str | None:
    """Returns the arm of an event whose values of the flag are in neither arm; else None."""
    if flag is None:
        return None
    value = values.get(flag.name)
    if value in (*spellings(flag.treatment), *spellings(flag.control or flag.treatment)):
        return None
    if value is None or says_nothing(value):
        return "unassigned"
    return None if flag.control is None else "partial"


def _continues(before: Assignment, after: Assignment) -> bool:
    """Tells whether what became known in between changed nothing."""
    return (before.known_to, before.resolved, before.arm, before.stratum) == (
        after.known_from,
        after.resolved,
        after.arm,
        after.stratum,
    )


def tested_values(served: Mapping[str, object], tested: Iterable[str]) -> dict[str, str]:
    """Returns the values of flags under test that an event names, as text, in order of names."""
    return {
        name: flag_value(served[name]) for name in sorted(tested) if served.get(name) is not None
    }
