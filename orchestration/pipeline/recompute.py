"""The recomputation of evidence: whole lives from the log, beside the served tables."""

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import Connection, text

from orchestration.pipeline.batch import Patience, work_apart
from orchestration.pipeline.drafts import Drafted, draft_bound, draft_waited_out
from storage.experiments.freezing import freeze_whole
from storage.lake.day_engines import day_engine_settings, past_files
from storage.lake.lake import Lake, store_lake
from storage.lake.reader import open_log
from storage.pipeline.experiments import open_experiments
from storage.pipeline.recompute import evidence_rows, recompute
from storage.postgres.engine import SCHEMA
from storage.upkeep.passing_error import is_passing
from storage.verdicts.publication import stage_evidence
from storage.verdicts.set_aside import bound_experiments, experiments_to_freeze

# A whole life is read at once: only the server's own limit of time holds.
PATIENCE = Patience(together=None, alone=0.0, retry_all=True)


def freeze_apart(
    separate: Connection,
    *,
    as_of: datetime,
    lake: Lake,
    leave_out: Callable[[str, Exception], None],
) -> None:
    """Freezes the policies that wait for the pipeline in a separate reading alone."""
    if waiting := experiments_to_freeze(separate, as_of=as_of):
        # It is stored nowhere.
        separate.execute(
            text(f"CREATE TEMP TABLE experiments ON COMMIT DROP AS TABLE {SCHEMA}.experiments")
        )
    with past_files(separate, lake=lake) as files:
        for row in waiting:
            try:
                with separate.begin_nested():
                    freeze_whole(separate, row.experiment_id, files=files)
            except Exception as error:
                if is_passing(error):
                    raise
                leave_out(row.experiment_id, error)


def evaluate_as_of(
    separate: Connection,
    *,
    as_of: datetime,
    lake: Lake | None = None,
    leave_out: Callable[[str, Exception], None] = lambda _id, _error: None,
) -> list[Drafted]:
    """Computes evidence from the log at once, stages it, and returns the drafts of the undecided.

    Args:
        separate: A separate reading of the store: its derived tables are empty and its own.
    """
    settings = day_engine_settings()
    with open_log(separate, lake or store_lake(separate.engine)) as log:

        def computed(only: Sequence[str]) -> None:
            experiments = open_experiments(separate, only=only)
            recompute(
                log, separate, experiments, as_of=as_of, settings=settings, wanted=evidence_rows
            )

        ids = bound_experiments(separate)
        _, broken = work_apart(separate, ids, computed, patience=PATIENCE, limit=len(ids) + 1)
    drafted, undrafted = stage_drafts(
        separate, [each for each in ids if each not in broken], as_of=as_of
    )
    for experiment_id, error in {**broken, **undrafted}.items():
        leave_out(experiment_id, error)
    return drafted


def stage_drafts(
    separate: Connection, ids: Sequence[str], *, as_of: datetime
) -> tuple[list[Drafted], dict[str, Exception]]:
    """Stages evidence of a separate reading; returns drafts, and the errors where there is none."""

    def bound(only: Sequence[str]) -> list[Drafted]:
        return draft_bound(separate, only=only)

    parts, broken = work_apart(separate, ids, bound, patience=PATIENCE, limit=len(ids) + 1)
    drafted = [draft for part in parts for draft in part]
    drafted += draft_waited_out(separate, as_of=as_of)
    stage_evidence(separate, [entry.draft for entry in drafted])
    return sorted(drafted, key=lambda entry: entry.draft.experiment_id), broken
