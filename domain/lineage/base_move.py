"""Base moves: another build takes the place of the one that open canaries stand on.

A canary is compared with units of a build that carries all that it carries but its change. Once
another build takes that one's place, nothing new can be compared until the canary stands on it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from domain.lineage.history import History


@dataclass(frozen=True, kw_only=True)
class ReleaseStep:
    """A deploy of a commit: the share of units that it declares, None for none."""

    commit: str
    deployed_at: datetime
    allocation: float | None


@dataclass(frozen=True, kw_only=True)
class BaseMove:
    """The build that took the place of an open experiment's control.

    Attributes:
        rebase_on: The commit that users have now.
        changes: What to post as the changes of the rebased commit.
        since: When that commit was deployed.
        continues: Whether the rebased commit goes on in the same experiment: not where users have
            a part of its change already.
    """

    rebase_on: str
    changes: Sequence[str]
    since: datetime
    continues: bool


def standing_step(
    steps: Iterable[ReleaseStep], *, tested: frozenset[str], besides: str
) -> ReleaseStep | None:
    """Returns the step that gave users the build that most of them have; None where none did.

    That is the newest commit whose last step declares everybody, or declares nothing and is no
    canary: one that experiments test is a canary until a share of it was declared and ended.

    Args:
        steps: An environment's deploys in order of time.
        tested: The commits that experiments test.
        besides: A commit that is not asked for: a canary whose own share is not declared.
    """
    steps = list(steps)
    declared = {step.commit for step in steps if step.allocation is not None}
    standing = [
        step
        for step in _last_steps(steps).values()
        if step.allocation == 1
        or (
            step.allocation is None
            and (step.commit in declared or step.commit not in tested | {besides})
        )
    ]
    return max(standing, key=lambda step: step.deployed_at, default=None)


def base_move(
    steps: Sequence[ReleaseStep],
    history: History,
    *,
    treatment: str,
    change: frozenset[str],
    tested: frozenset[str],
) -> BaseMove | None:
    """Returns the build in the place of a canary's control; None while that is served.

    Args:
        steps: The environment's deploys in order of time.
        history: The lineages of its commits.
        treatment: The commit under test.
        change: The change under test.
        tested: The commits that experiments test.
    """
    standing = standing_step(steps, tested=tested, besides=treatment)
    if standing is None or change <= history.lineage(standing.commit):
        return None
    last = _last_steps(steps)
    served = {standing.commit} | {
        step.commit for step in last.values() if _is_canary(step, tested | {treatment})
    }
    carried = {commit: history.lineage(commit) for commit in served}
    strata = [lineage - change for lineage in carried.values() if change <= lineage]
    controls = [lineage for lineage in carried.values() if not change & lineage]
    if not strata or any(stratum in controls for stratum in strata):
        return None
    return BaseMove(
        rebase_on=standing.commit,
        changes=sorted(change - carried[standing.commit]),
        since=standing.deployed_at,
        continues=not change & carried[standing.commit],
    )


def _last_steps(steps: Iterable[ReleaseStep]) -> Mapping[str, ReleaseStep]:
    return {step.commit: step for step in steps}


def _is_canary(step: ReleaseStep, tested: frozenset[str]) -> bool:
    if step.allocation is None:
        return step.commit in tested
    return 0 < step.allocation < 1
