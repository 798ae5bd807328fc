"""Shares of strata: treatment's part of each stratum's units, by the declared shares over time."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from storage.pipeline.assignments import KnownHistory, Question
from storage.verdicts.gates import Allocation, CountedDeploy, block_close

# Shares that add up to everything may exceed it in floats.
ROUNDING = 1e-9


def stratum_shares(
    deploys: Sequence[CountedDeploy],
    lineages: Iterable[str],
    *,
    commits: Sequence[str],
    question: Question,
    history: KnownHistory,
    starts_at: datetime,
    grace_seconds: int,
) -> dict[str, list[Allocation]]:
    """Returns treatment's declared share within each lineage, over the spans of a declaration.

    It is the shares of the commits of the lineage's treatment arm over those of all its commits. A
    commit that declares 1 or nothing has the rest of the environment's canaries' shares; where
    two of a lineage do, or the canaries declare more than everything, there is none.

    Args:
        deploys: Of the environment, as far as they count, in order of time.
    """
    before = [deploy for deploy in deploys if deploy.at <= starts_at]
    asked = {*commits, *(deploy.commit for deploy in deploys if deploy.at > starts_at)}
    asked |= {deploy.commit for deploy in before if deploy.allocation}
    known = {commit: history.assignments(question, commit) for commit in asked}
    spans: dict[str, list[Allocation]] = {lineage: [] for lineage in lineages}
    # A control that is only named declares nothing.
    declared = dict.fromkeys(commits) | {deploy.commit: deploy.allocation for deploy in before}
    later = [deploy for deploy in deploys if deploy.at > starts_at]
    times = sorted({starts_at, *(deploy.at for deploy in later)})
    for begin, end in zip(times, [*times[1:], None], strict=True):
        declared |= {deploy.commit: deploy.allocation for deploy in later if deploy.at == begin}
        known_at = max(block_close(begin, grace_seconds), question.bound_at)
        arms: dict[str, list[tuple[str, float | None]]] = {}
        for commit in asked & declared.keys():
            for assigned in known[commit]:
                if assigned.known_from <= known_at and (
                    assigned.known_to is None or known_at < assigned.known_to
                ):
                    arms.setdefault(assigned.lineage, []).append((assigned.arm, declared[commit]))
        canaries = sum(share for share in declared.values() if share and share < 1)
        for lineage, of_lineage in spans.items():
            share = _share(arms.get(lineage, ()), rest=1 - canaries)
            # Where the share is the same, the last span becomes longer.
            same = bool(of_lineage) and of_lineage[-1].share == share
            since = of_lineage.pop().begin if same else begin
            of_lineage.append(Allocation(begin=since, end=end, share=share))
    return spans


def _share(arms: Iterable[tuple[str, float | None]], *, rest: float) -> float | None:
    """Returns treatment's part of the declared shares of a lineage's commits."""
    sums = {"treatment": 0.0, "control": 0.0}
    undeclared = 0
    for arm, declared in arms:
        whole = declared is None or declared == 1
        undeclared += whole
        if arm in sums:
            sums[arm] += rest if whole else declared or 0.0
    treatment, control = sums["treatment"], sums["control"]
    if undeclared > 1 or rest < -ROUNDING or not (treatment > 0 and control > 0):
        return None
    return treatment / (treatment + control)
