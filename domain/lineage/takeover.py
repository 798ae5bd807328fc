"""A takeover: a deploy to everybody that gives users the change under test, or another build.

A change is its patch: a squash or a rebase has another commit and the same `patch_id`, a merge has
the commits of the change among its own. Patch ids hold the lines around a change, so that a rebase
beside edits of these lines is missed; a pull request alone is no identity.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from domain.lineage.serving import ReleaseStep, Serving
from domain.words import EndedBecause


@dataclass(frozen=True, kw_only=True)
class Takeover:
    """A step after which users have the change all, or none of them.

    Attributes:
        commit: The other commit by which it came; None for the treatment's own step.
        because: `promoted`, `withdrawn` or `superseded`.
    """

    commit: str | None
    at: datetime
    because: EndedBecause
    beside: tuple[str, ...] = ()


def takeovers(
    steps: Sequence[ReleaseStep], *, treatment: str, control: str | None, change: Iterable[str]
) -> list[tuple[ReleaseStep, Takeover | None]]:
    """Returns the steps that took over, in their order; None where the canary goes on anew.

    Args:
        steps: Its deploys, in their order.
    """
    patches = {step.patch_id for step in steps if step.commit == treatment} - {None}
    over: list[tuple[ReleaseStep, Takeover | None]] = []
    is_declared = False
    for step in steps:
        last = over[-1][1] if over else None
        if step.commit == treatment:
            is_declared = step.allocation is not None
            # The end of a canary takes nothing from users who have its change by another commit.
            is_had = last is not None and last.commit and last.because is EndedBecause.PROMOTED
            if step.allocation != 0 or not is_had:
                over.append((step, _own(step)))
        elif step.allocation == 1 or (step.allocation is None and is_declared):
            # Lineage is read as known when the step was recorded; its builder knew the treatment.
            known = [s for s in steps if treatment == s.commit or s.recorded_at <= step.recorded_at]
            fate, beside = _fate(step, known, treatment, {*change}, patches, control=control)
            if fate is EndedBecause.SUPERSEDED:
                # Users who had the change have a build without it now.
                had = last is not None and last.because is EndedBecause.PROMOTED
                fate = EndedBecause.WITHDRAWN if had else None
            is_news = last is None or (fate is not None and last.because is not fate)
            if is_news and (fate is not None or step.commit != control):
                fate, others = fate or EndedBecause.SUPERSEDED, tuple(sorted(beside))
                by, at = step.commit, step.deployed_at
                over.append((step, Takeover(commit=by, at=at, because=fate, beside=others)))
    return over


def is_taken_over(serving: Serving, treatment: str) -> bool:
    """Tells whether users had a canary's change all at last, or all no more."""
    base, lineage = serving.history.base(treatment), serving.history.lineage
    change = lineage(treatment) - (lineage(base) if base else frozenset())
    over = takeovers(serving.steps, treatment=treatment, control=base, change=change)
    return any(last and last.because is not EndedBecause.SUPERSEDED for _, last in over[-1:])


def _own(step: ReleaseStep) -> Takeover | None:
    """Returns the takeover of the treatment's own step; None where it declares a part, or none."""
    if step.allocation not in {0, 1}:
        return None
    because = EndedBecause.PROMOTED if step.allocation else EndedBecause.WITHDRAWN
    return Takeover(commit=None, at=step.deployed_at, because=because)


def _fate(
    step: ReleaseStep,
    known: Sequence[ReleaseStep],
    treatment: str,
    change: set[str],
    patches: set[str | None],
    *,
    control: str | None,
) -> tuple[EndedBecause | None, set[str]]:
    """Returns whether a step brings the change or takes it back, and its further changes.

    It superseded the change where it is known to stand on control without it.
    """
    by_commit: dict[str, ReleaseStep] = {}
    for each in known:
        by_commit.setdefault(each.commit, each)
    taken_back: set[str] = set()
    carried: set[str] = set()
    link: ReleaseStep | None = step
    passed: set[str] = set()
    while link is not None and link.commit not in passed:
        passed.add(link.commit)
        if not _names(taken_back, link.commit):
            taken_back |= {*link.reverts}
        is_same = link.commit == treatment or link.patch_id in patches
        carried |= change if is_same else {*(link.changes or (link.commit,))}
        if all(_names(carried, name) for name in change):
            gone = any(_names(taken_back, name) for name in (*change, link.commit))
            known_by = {*change, step.commit} | taken_back
            beside = {name for name in carried if not _names(known_by, name)}
            return (EndedBecause.WITHDRAWN, set()) if gone else (EndedBecause.PROMOTED, beside)
        if control in {link.commit, link.base}:
            return EndedBecause.SUPERSEDED, set()
        link = None if link.base is None else by_commit.get(link.base)
    return None, set()


def _names(written: Iterable[str], commit: str) -> bool:
    """Tells whether a commit is among some that are written by short or whole ids."""
    return any(name.startswith(commit) or commit.startswith(name) for name in written)
