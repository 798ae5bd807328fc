"""The base move of an evidence document: the build in the place of the control."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from domain.lineage.base_move import BaseMove, ReleaseStep, base_move, standing_step
from domain.lineage.history import CommitFact, History
from storage.verdicts.evidence import ExperimentReading


def base_move_at(
    reading: ExperimentReading, history: History, tested: Mapping[str, datetime], *, look: datetime
) -> BaseMove | None:
    """Returns the build in the place of the control at a look; None while that was served.

    Args:
        history: The lineages of its environment, as the look reads them.
        tested: The commits that experiments test there, each with its first binding.
        look: The look. Deploys of later, and those recorded later, do not enter.
    """
    if reading.policy["flag"] is not None:
        return None
    known_at = max(look, reading.bound_at)
    steps = [
        ReleaseStep(
            commit=deploy.commit, deployed_at=deploy.deployed_at, allocation=deploy.allocation
        )
        for deploy in reading.deploys
        if deploy.recorded_at <= known_at and deploy.deployed_at <= look
    ]
    known = frozenset(commit for commit, since in tested.items() if since <= known_at)
    standing = standing_step(steps, tested=known, besides=reading.treatment_commit)
    # Most experiments stand on what users have, and then no lineage need be computed.
    if standing is None or standing.commit == reading.control_commit:
        return None
    return base_move(
        steps,
        history.completed(_facts(reading)),
        treatment=reading.treatment_commit,
        change=frozenset(reading.change),
        tested=known,
    )


def _facts(reading: ExperimentReading) -> Iterable[CommitFact]:
    """Yields the commits of the deploys: of one that was withdrawn since nothing else is known."""
    for deploy in reading.deploys:
        yield CommitFact(
            commit=deploy.commit,
            changes=frozenset({deploy.commit}),
            recorded_at=deploy.recorded_at,
            base=deploy.base,
            base_recorded_at=deploy.recorded_at,
        )


def base_move_member(move: BaseMove | None) -> dict[str, Any] | None:
    """Returns a base move as a member of an evidence document (docs/api.md, 'The evidence')."""
    if move is None:
        return None
    return {
        "rebase_on": move.rebase_on,
        "changes": list(move.changes),
        "since": move.since.isoformat().replace("+00:00", "Z"),
        "continues": move.continues,
    }
