"""Cursors: how far each step of the pipeline has read the log, for each experiment."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, text

from storage.pipeline.experiments import PipelineExperiment
from storage.pipeline.moments import microseconds, moment_of

_CURSORS = "SELECT experiment_id, stage, at FROM {schema}cursors WHERE experiment_id = ANY(:ids)"


def read_cursors(
    connection: Connection, ids: Sequence[str], *, schema: str = ""
) -> dict[tuple[str, str], int]:
    """Returns how far each stage has read, by experiment and stage.

    Args:
        schema: Of the cursors, with a dot; empty for the first of the search path.
    """
    rows = connection.execute(text(_CURSORS.format(schema=schema)), {"ids": list(ids)})
    return {(row.experiment_id, row.stage): microseconds(row.at) for row in rows}


_SET_CURSORS = text("""
INSERT INTO cursors (stage, experiment_id, at)
SELECT * FROM unnest(
    CAST(:stages AS text[]), CAST(:experiments AS text[]), CAST(:moments AS timestamptz[])
)
ON CONFLICT (stage, experiment_id) DO UPDATE SET at = greatest(cursors.at, excluded.at)
""")


def set_cursors(connection: Connection, cursors: Sequence[tuple[str, str, int]]) -> None:
    """Keeps how far stages have read: stage, experiment and block of each."""
    if cursors:
        stages, experiments, moments = zip(*cursors, strict=True)
        bound = {
            "stages": list(stages),
            "experiments": list(experiments),
            "moments": [moment_of(at) for at in moments],
        }
        connection.execute(_SET_CURSORS, bound)


def outcome_cursors(
    experiment: PipelineExperiment, *, to_block: int
) -> Iterator[tuple[str, str, int]]:
    """Yields the cursors of an experiment whose outcomes were read up to a block.

    Each is a stage, the experiment's id and the block up to which the stage has read.
    """
    yield "conversions", experiment.experiment_id, to_block
    for metric in experiment.metrics:
        yield f"cells/{metric.name}", experiment.experiment_id, to_block - metric.open_for
