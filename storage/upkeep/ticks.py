"""Ticks: when each step of the pipeline last ended, and how often an error ended it."""

from sqlalchemy import Connection, text

# Where an error can end a tick of the fast schedule, or a step of a run.
PIPELINE = ("experiments", "exposures", "session_cells", "evidence", "verdicts")
TICK_STAGES = ("backlog", *PIPELINE)

_STEP_ENDED = text("""
INSERT INTO pipeline_steps (stage, ended_at, seconds)
VALUES (:stage, clock_timestamp(), :seconds)
ON CONFLICT (stage) DO UPDATE SET ended_at = excluded.ended_at, seconds = excluded.seconds
""")

_PIPELINE_ENDED = text("""
INSERT INTO ticks (succeeded_at) VALUES (clock_timestamp())
ON CONFLICT (place) DO UPDATE SET succeeded_at = excluded.succeeded_at
""")

_FAILED_TICK = text("""
INSERT INTO failed_ticks AS f (stage, failures, failed_at) VALUES (:stage, 1, clock_timestamp())
ON CONFLICT (stage) DO UPDATE SET failures = f.failures + 1, failed_at = excluded.failed_at
""")


def note_step(connection: Connection, *, stage: str, seconds: float) -> None:
    """Keeps that a step of the pipeline has ended; the last step ends the pipeline."""
    connection.execute(_STEP_ENDED, {"stage": stage, "seconds": seconds})
    if stage == PIPELINE[-1]:
        connection.execute(_PIPELINE_ENDED)


def note_failed_tick(connection: Connection, *, stage: str) -> None:
    """Counts a tick or a step of a run that an error ended, in a transaction of its own."""
    connection.execute(_FAILED_TICK, {"stage": stage})
