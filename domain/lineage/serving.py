"""Serving: the builds that users of an environment have, by its deploys and by the sessions seen.

The only definition, that of docs/statistics.md: the assumed base, the default control,
`standing=true`, base moves, gates and sentences all ask it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import takewhile
from typing import Annotated, Self

from msgspec import Meta

from domain.document import Document
from domain.lineage.history import History

_ALWAYS = datetime.min.replace(tzinfo=UTC)
# Traffic is read from the newest closed blocks until they hold this many sessions, and no further
# back than LOOK_BACK.
_SESSIONS = 20
LOOK_BACK = timedelta(hours=1)
# The least part of the sessions: of a served build, of the build that most users have, and of a
# build that has replaced all others without a declared share.
_SERVED, _MOST, _NEARLY_ALL = 0.01, 0.5, 0.9
# Two shares that routers declare may add up to 1 only nearly.
_WHOLE = (0.99, 1.01)


@dataclass(frozen=True, kw_only=True)
class ReleaseStep:
    """A deploy of a commit: the share of units that it declares, None for none."""

    commit: str
    deployed_at: datetime
    allocation: float | None
    recorded_at: datetime = _ALWAYS
    base: str | None = None
    patch_id: str | None = None
    changes: Sequence[str] = ()
    reverts: Sequence[str] = ()

    @property
    def word(self) -> str:
        """The step after a decision in a word, for a person."""
        return "withdrawn" if self.allocation == 0 else "promoted"

    @property
    def is_partial(self) -> bool:
        """Whether it declares a share between 0 and 1: the step of a canary or of a hold-back."""
        return self.allocation is not None and 0 < self.allocation < 1


@dataclass(frozen=True, kw_only=True)
class SeenCommit:
    """The sessions of a closed block whose first event there names a commit."""

    block: datetime
    commit: str
    sessions: int


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The build that users have.

    Attributes:
        since: When it was deployed last; None where its deploy was never recorded.
    """

    commit: str
    since: datetime | None
    differs: bool = False


class MissingControl(Document, frozen=True, kw_only=True):
    """That no build without the change is served beside the treatment."""

    unknown_commit: Annotated[
        str | None,
        Meta(description="The commit of no recorded deploy that was seen most, if any was."),
    ]
    part: Annotated[float | None, Meta(description="Its part of the sessions that were seen last.")]


class Serving:
    """The builds of an environment at a time.

    Args:
        steps: Its deploys up to that time, in their order.
        seen: The closed blocks of the last hour that had any.
    """

    def __init__(
        self,
        steps: Iterable[ReleaseStep],
        seen: Iterable[SeenCommit],
        *,
        history: History,
        at: datetime,
    ) -> None:
        self.steps = [step for step in steps if step.deployed_at <= at]
        self.last = {step.commit: step for step in self.steps}
        known = list(seen)
        self._seen = [block for block in known if at - LOOK_BACK <= block.block < at]
        self._stale = known if not self._seen else []
        self.history = history
        self.at = at

    def under(self, history: History) -> Self:
        """Returns the same builds with other lineages."""
        return type(self)(self.steps, [*self._seen, *self._stale], history=history, at=self.at)

    @cached_property
    def parts(self) -> Mapping[str, float]:
        """Each commit's part of the sessions that were seen last; empty where there are too few."""
        return _parts(self._seen)

    def _parts_since(self, since: datetime | None) -> Mapping[str, float]:
        """Returns the parts in the blocks that began at a time or later."""
        return _parts([seen for seen in self._seen if since is None or seen.block >= since])

    def is_last_step(self, commit: str, deployed_at: datetime, recorded_at: datetime) -> bool:
        """Tells whether a step is the last step of its commit."""
        step = self.last.get(commit)
        return step is None or (step.deployed_at, step.recorded_at) <= (deployed_at, recorded_at)

    def declared_since(self, commit: str, deployed_at: datetime, recorded_at: datetime) -> datetime:
        """Returns when the unbroken declaration of a commit began that a step belongs to.

        It goes on from step to step of the commit's ramp. It is broken by a share of 0, 1 or none,
        and by another commit that takes over: deployed to everybody, or with no share declared.
        """
        since = deployed_at
        for step in reversed(self.steps):
            if (step.deployed_at, step.recorded_at) >= (deployed_at, recorded_at):
                continue
            if step.commit == commit and step.is_partial:
                since = step.deployed_at
            elif step.commit == commit or step.allocation in {None, 1}:
                break
        return since

    def held_back_since(self, commit: str) -> datetime | None:
        """Returns since when a share of units is declared for a build; None while none is."""
        own = [step for step in self.steps if step.commit == commit]
        held_back = list(takewhile(lambda step: step.is_partial, reversed(own)))
        return held_back[-1].deployed_at if held_back else None

    # --- The build that users have ----------------------------------------------------------------

    @cached_property
    def _standing(self) -> Standing | None:
        return self.standing()

    def standing(self, *, besides: str | None = None) -> Standing | None:
        """Returns the build that users have; None where nothing tells.

        Args:
            besides: A commit that is not asked for: that of a canary that needs a control.
        """
        declared = self._declared_standing(besides)
        seen = self._seen_standing(declared, besides)
        commit = seen or declared
        if commit is None:
            return None
        step = self.last.get(commit)
        return Standing(
            commit=commit,
            since=None if step is None else step.deployed_at,
            differs=seen is not None and declared is not None,
        )

    def _declared_standing(self, besides: str | None) -> str | None:
        partial = [step for step in self.last.values() if step.is_partial]
        others = [step for step in partial if step.commit != besides]
        if others and _WHOLE[0] <= sum(step.allocation or 0 for step in partial) <= _WHOLE[1]:
            return max(others, key=lambda step: step.allocation or 0).commit
        standing: ReleaseStep | None = None
        for step in sorted(self.last.values(), key=lambda step: step.deployed_at):
            if step.commit == besides or step.allocation not in {None, 1}:
                continue
            if standing is None or self._takes_over(step, standing):
                standing = step
        return None if standing is None else standing.commit

    def _takes_over(self, step: ReleaseStep, standing: ReleaseStep) -> bool:
        """Tells whether users have a later build in place of the build that stood so far."""
        # At night, what carried the last sessions goes on as the build of users.
        parts = self.parts or _parts(self._stale)
        both = parts.get(step.commit, 0.0) + parts.get(standing.commit, 0.0)
        if step.allocation == 1 or (parts and parts.get(step.commit, 0.0) >= _NEARLY_ALL * both):
            return True
        seen = [s for s in [*self._seen, *self._stale] if s.block >= step.deployed_at]
        return not self.parts and all(s.commit != standing.commit for s in seen)

    def _seen_standing(self, declared: str | None, besides: str | None) -> str | None:
        """Returns the commit that carries the traffic where the declared commit was never seen.

        Blocks from before a deploy say nothing of it: only those that began since are asked.
        """
        step = None if declared is None else self.last.get(declared)
        parts = self._parts_since(None if step is None else step.deployed_at)
        if not parts or declared in parts:
            return None
        commit = max(parts, key=lambda name: parts[name])
        own = self.last.get(commit)
        # A registration may name any commit: what users have is a deploy's, or a deploy's base.
        known = own is not None or any(step.base == commit for step in self.steps)
        if not known or commit == besides or (own is not None and own.allocation == 0):
            return None
        # A canary's own units do not make it the build of all, while others are merely unknown.
        is_canary = own is not None and own.is_partial
        return commit if parts[commit] >= (_NEARLY_ALL if is_canary else _MOST) else None

    # --- The builds that are served ---------------------------------------------------------------

    def is_served(self, commit: str, *, named: bool = False) -> bool:
        """Tells whether users get a commit.

        Args:
            named: Whether it is named as a base: then it counts as served until the contrary is
                known.
        """
        step = self.last.get(commit)
        share = None if step is None else step.allocation
        if share == 0:
            return False
        if self._standing is not None and self._standing.commit == commit:
            return True
        # Another commit has succeeded a commit that everybody was to get.
        if share == 1:
            return False
        return self._is_seen(commit, step) or (named and not self._is_known_gone(commit, step))

    def _is_seen(self, commit: str, step: ReleaseStep | None) -> bool:
        """Tells whether a commit was seen; of a canary its declaration is enough at first."""
        succeeded_at = self._succeeded_at(commit)
        parts = self.parts if succeeded_at is None else self._parts_since(succeeded_at)
        if parts.get(commit, 0.0) >= _SERVED:
            return True
        if step is None or not step.is_partial:
            return False
        if not self.parts:
            return True
        return self.at - step.deployed_at < LOOK_BACK and any(
            seen.commit == commit for seen in self._seen
        )

    def _is_known_gone(self, commit: str, step: ReleaseStep | None) -> bool:
        """Tells whether another build took a base's place, by its deploy or by its sessions."""
        parts = self._parts_since(None if step is None else step.deployed_at)
        return self._succeeded_at(commit) is not None or (bool(parts) and commit not in parts)

    def _succeeded_at(self, commit: str) -> datetime | None:
        """Returns when another commit was last deployed to everybody after this commit."""
        own = self.last.get(commit)
        return max(
            (
                step.deployed_at
                for step in self.last.values()
                if step.allocation == 1
                and step.commit != commit
                and (own is None or step.deployed_at >= own.deployed_at)
            ),
            default=None,
        )

    def served(self, *, named: Iterable[str] = ()) -> set[str]:
        """Returns the commits that users get."""
        served = {commit for commit in self.last if self.is_served(commit)}
        return served | {commit for commit in named if self.is_served(commit, named=True)}

    # --- What a canary is compared with -----------------------------------------------------------

    def control_of(self, treatment: str) -> str | None:
        """Returns the control that a commit has by default; None where there is none.

        That is the nearest of its named bases that is served, else the build that users have. Where
        that stands on the treatment, it is the treatment's base: nobody has the build without the
        other.
        """
        for base in self.bases_of(treatment):
            if self.is_served(base, named=True):
                return base
        standing = self.standing(besides=treatment)
        if standing is None or self.history.stands_on(standing.commit, treatment):
            return self.history.base(treatment)
        return standing.commit

    def bases_of(self, commit: str) -> Iterator[str]:
        """Yields the builds that a commit stands on, the nearest first."""
        return self.history.chain(commit, self.history.named_base)

    def missing_control(
        self, treatment: str, *, control: str | None, change: frozenset[str]
    ) -> MissingControl | None:
        """Returns that only builds with the change are served; None where a build without it is.

        Args:
            control: The commit it is compared with; None where none was known.
        """
        own = self.last.get(treatment)
        # Before its first session, an undeployed base is known by the canary's share alone.
        is_known = control in self.last or (own is not None and own.is_partial)
        others = self.served() - {treatment}
        if control is not None and self.is_served(control, named=is_known):
            others.add(control)
        if any(not change & self.history.lineage(commit) for commit in others):
            return None
        known = self.history.commits | self.last.keys()
        unknown = {commit: part for commit, part in self.parts.items() if commit not in known}
        commit = max(unknown, key=lambda name: unknown[name], default=None)
        is_rest = control is not None and not self.is_taken_out(control)
        if commit is None and is_rest and own is not None and own.is_partial:
            # Its control is known and its share declared: the router sends the rest nowhere.
            return None
        return MissingControl(unknown_commit=commit, part=unknown.get(commit or ""))

    def is_taken_out(self, commit: str | None) -> bool:
        """Tells whether the last deploy of a commit has allocation 0."""
        step = None if commit is None else self.last.get(commit)
        return step is not None and step.allocation == 0


def _parts(blocks: Sequence[SeenCommit]) -> Mapping[str, float]:
    """Returns each commit's part of the newest blocks that hold enough sessions together."""
    sessions: Counter[str] = Counter()
    for block in sorted({seen.block for seen in blocks}, reverse=True):
        if sum(sessions.values()) >= _SESSIONS:
            break
        for seen in blocks:
            if seen.block == block:
                sessions[seen.commit] += seen.sessions
    total = sum(sessions.values())
    return {c: n / total for c, n in sessions.items()} if total >= _SESSIONS else {}
