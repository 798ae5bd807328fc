"""Members of an evidence document on the builds of users: the moved base, or nothing to compare."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from domain.lineage.control_state import BaseMove, ControlState, control_state
from domain.lineage.history import CommitFact, History
from domain.lineage.serving import MissingControl, ReleaseStep, SeenCommit, Serving
from storage.verdicts.evidence import ExperimentReading


def control_state_at(
    reading: ExperimentReading,
    history: History,
    treatments: Mapping[str, datetime],
    seen: Sequence[SeenCommit],
    *,
    look: datetime,
    compared: bool,
) -> ControlState:
    """Returns the state of the builds beside a treatment at a look.

    Args:
        history: The lineages of its environment, as the look reads them.
        treatments: The commits that experiments compare there, each with its first binding.
        seen: The commits that were seen there in the hour before the look.
        look: The look. Deploys of later, and those recorded later, do not enter.
        compared: Whether units of both arms were compared.
    """
    # Both values of a flag are served by one build; and before the start there is no look.
    if reading.policy["flag"] is not None or look < reading.starts_at:
        return ControlState()
    known_at = max(look, reading.bound_at)
    serving = Serving(
        [
            ReleaseStep(
                commit=deploy.commit, deployed_at=deploy.deployed_at, allocation=deploy.allocation
            )
            for deploy in reading.deploys
            if deploy.recorded_at <= known_at
        ],
        seen,
        history=history,
        at=look,
        treatments=frozenset(commit for commit, at in treatments.items() if at <= known_at),
    )
    return control_state(
        serving,
        history.completed(_facts(reading)),
        treatment=reading.treatment_commit,
        control=reading.control_commit,
        change=frozenset(reading.change),
        compared=compared,
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
        "since": None if move.since is None else move.since.isoformat().replace("+00:00", "Z"),
        "continues": move.continues,
    }


def missing_control_member(missing: MissingControl | None) -> dict[str, Any] | None:
    """Returns that nothing is served beside the treatment, as a member of a document."""
    return (
        None
        if missing is None
        else {"unknown_commit": missing.unknown_commit, "part": missing.part}
    )
