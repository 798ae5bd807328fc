"""The builds of users beside an experiment at its look: the moved base, or nothing to compare."""

from collections.abc import Sequence
from datetime import datetime

from domain.lineage.control_state import ControlState, control_state
from domain.lineage.history import CommitFact, History
from domain.lineage.serving import SeenCommit, Serving
from storage.verdicts.evidence import ExperimentReading


def control_state_at(
    reading: ExperimentReading,
    history: History,
    seen: Sequence[SeenCommit],
    *,
    look: datetime,
    compared: bool,
) -> ControlState:
    """Returns the state of the builds beside a treatment at a look.

    Args:
        seen: The commits that were seen there in the hour before the look.
        look: The look. Deploys of later, and those recorded later, do not enter.
    """
    # Both values of a flag are served by a single build; and before the start there is no look.
    if reading.policy.flag is not None or look < reading.starts_at:
        return ControlState()
    known_at = max(look, reading.bound_at)
    serving = Serving(
        [deploy for deploy in reading.deploys if deploy.recorded_at <= known_at],
        seen,
        history=history,
        at=look,
    )
    # Only the commit of a deploy that was withdrawn since is known.
    deployed = [
        CommitFact(
            commit=deploy.commit,
            changes=frozenset({deploy.commit}),
            recorded_at=deploy.recorded_at,
            base=deploy.base,
            base_recorded_at=deploy.recorded_at,
        )
        for deploy in reading.deploys
    ]
    return control_state(
        serving,
        history.completed(deployed),
        treatment=reading.treatment_commit,
        control=reading.control_commit,
        change=frozenset(reading.change),
        compared=compared,
        starts_at=reading.starts_at,
    )
