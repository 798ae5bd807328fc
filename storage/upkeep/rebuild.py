"""A rebuild: restores lost cursors, evidence and verdicts, which no day has rows of."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, func, text
from sqlalchemy.dialects.postgresql import insert

from domain.contract import waiting_contract
from storage.pipeline.experiments import PipelineExperiment, blocks_to_expose
from storage.pipeline.recompute import cursors_of
from storage.postgres.engine import SCHEMA
from storage.schema.tables import verdicts

_KEEP_ALL = text(f"DELETE FROM {SCHEMA}.whole_lives WHERE experiment_id = ANY(:ids)")
# Only experiments with a look: a tick may read another for the first time meanwhile.
_ADD_CURSOR = text(f"""
INSERT INTO {SCHEMA}.cursors (stage, experiment_id, at)
SELECT :stage, experiment_id, :at FROM {SCHEMA}.verdicts
WHERE experiment_id = :experiment_id AND as_of IS NOT NULL
ON CONFLICT DO NOTHING
""")


def keep_whole_lives(
    separate: Connection, experiments: Sequence[PipelineExperiment], *, as_of: int
) -> None:
    """Has experiments served by a row of each unit, and read as far as is known, else to a time."""
    separate.execute(_KEEP_ALL, {"ids": [each.experiment_id for each in experiments]})
    for stage, name, at in cursors_of(blocks_to_expose(experiments, read_to={}, as_of=as_of)):
        separate.execute(_ADD_CURSOR, {"stage": stage, "experiment_id": name, "at": at})


_ADD_EVIDENCE = text(f"""
INSERT INTO {SCHEMA}.evidence
SELECT e.* FROM pg_temp.evidence AS e JOIN {SCHEMA}.verdicts AS v USING (experiment_id)
WHERE v.decided
ON CONFLICT DO NOTHING
""")


def add_lost_evidence(separate: Connection) -> None:
    """Serves the evidence of a separate reading of decided experiments that have none."""
    separate.execute(_ADD_EVIDENCE)


_WITHOUT_VERDICT = text("""
SELECT x.experiment_id, x.project_id
FROM experiments AS x LEFT JOIN verdicts AS v USING (experiment_id)
WHERE v.experiment_id IS NULL
ORDER BY x.experiment_id
""")


def add_lost_verdicts(connection: Connection) -> None:
    """Gives experiments without a verdict that of before their first look."""
    for row in connection.execute(_WITHOUT_VERDICT).all():
        publish_waiting(connection, row.experiment_id, row.project_id)


def publish_waiting(connection: Connection, experiment_id: str, project_id: int) -> None:
    """Gives an experiment the verdict that it has before its first look."""
    connection.execute(
        insert(verdicts)
        .values(
            experiment_id=experiment_id,
            project_id=project_id,
            contract=msgspec.to_builtins(waiting_contract(experiment_id)),
            verdict="abstain",
            abstain_reason="power",
            decided=False,
            published_at=func.clock_timestamp(),
        )
        .on_conflict_do_nothing()
    )
