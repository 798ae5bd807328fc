"""Actions of an owner: a change is registered anew, an experiment closed, and a note kept."""

from dataclasses import replace

from sqlalchemy import Connection, select, text, update

from domain.registration import Registration
from storage.experiments.commit_ids import whole_id
from storage.experiments.experiments import Registered, register
from storage.postgres.refusal import Conflict, Missing
from storage.schema.clock import RECEIVED
from storage.schema.tables import experiments, verdicts
from storage.tenants.audit_trail import PROGRAM, Actor, record_action


def register_anew(
    connection: Connection, project_id: int, experiment_id: str, *, actor: str
) -> Registered:
    """Registers the change of an experiment again, as it was registered: the next attempt at it.

    Raises:
        Missing: The project has no such experiment.
        Conflict: The experiment is open: it goes on.
        Invalid: Its change is no change any more.
    """
    row = connection.execute(
        select(experiments, verdicts.c.decided)
        .join_from(experiments, verdicts)
        .where(experiments.c.project_id == project_id, experiments.c.experiment_id == experiment_id)
    ).one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    if not row.decided:
        raise Conflict("experiment_open", "the experiment is open: it goes on, so close it first")
    before = Registration.of_stored(row.request)
    return register(
        connection,
        project_id,
        replace(
            before,
            # A flag is tested in the build that most users have by now.
            treatment_commit=None
            if before.treatment_flag is not None
            else whole_id(connection, project_id, row.treatment_commit),
            target_metric=row.target_metric,
            actor=actor,
            environment=row.environment,
        ),
    )


def close(
    connection: Connection, project_id: int, experiment_id: str, *, by: Actor = PROGRAM
) -> None:
    """Ends an experiment by hand: it is decided `abstain` at its last look, never a verdict.

    Raises:
        Missing: The project has no such experiment.
    """
    row = connection.execute(
        select(experiments.c.closed_at)
        .where(experiments.c.project_id == project_id, experiments.c.experiment_id == experiment_id)
        .with_for_update()
    ).one_or_none()
    if row is None:
        raise Missing("unknown_experiment", "there is no such experiment")
    if row.closed_at is not None:
        return
    record_action(connection, project_id, "experiment_closed", by=by, subject=experiment_id)
    connection.execute(_CLOSE, {"project_id": project_id, "experiment_id": experiment_id})


_CLOSE = text(f"""
UPDATE experiments SET closed_at = at FROM {RECEIVED}
WHERE project_id = :project_id AND experiment_id = :experiment_id
""")


def keep_note(
    connection: Connection, project_id: int, experiment_id: str, note: str | None
) -> None:
    """Keeps the team's note on an experiment; None removes it. No verdict reads it.

    Raises:
        Missing: The project has no such experiment.
    """
    kept = connection.execute(
        update(experiments)
        .where(experiments.c.project_id == project_id, experiments.c.experiment_id == experiment_id)
        .values(note=note)
        .returning(experiments.c.experiment_id)
    ).one_or_none()
    if kept is None:
        raise Missing("unknown_experiment", "there is no such experiment")
