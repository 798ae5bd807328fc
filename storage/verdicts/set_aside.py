"""Experiments set aside: those whose own data breaks a stage of the pipeline.

A stage works on all open experiments together. Where an experiment's data breaks it, that
experiment is set aside by name, the others go on, and it is tried again alone, ever more rarely.
"""

import traceback
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from domain.contract import Contract, contract_of
from domain.evidence.document import AnyEvidence, evidence_of
from storage.log.file_errors import WrongFileError
from storage.postgres.engine import SCHEMA
from storage.postgres.rows import value_of

# In the order of the pipeline: whoever breaks in a stage is left out of those that follow.
STAGES = ("experiments", "exposures", "cells", "evidence", "verdicts")
COUNTING = ("exposures", "cells")
_SOURCE = Path(__file__).parents[2]

_OPEN = text("""
SELECT x.experiment_id
FROM experiments AS x LEFT JOIN verdicts AS v USING (experiment_id)
LEFT JOIN follow_ups AS f USING (experiment_id)
WHERE x.frozen_at IS NOT NULL
  AND (NOT coalesce(v.decided, false) OR (f.state = 'running' AND :counts))
  AND NOT EXISTS (
      SELECT FROM set_aside AS s
      WHERE s.experiment_id = x.experiment_id AND s.stage = ANY(:stages)
  )
ORDER BY x.experiment_id
""")


def experiments_to_compute(connection: Connection, stage: str) -> list[str]:
    """Returns the bound, undecided experiments that are not set aside in a stage or before it.

    Of the stages that count units those too that are followed up after their decision.
    """
    stages = list(STAGES[: STAGES.index(stage) + 1])
    bound = {"stages": stages, "counts": stage in COUNTING}
    return list(connection.execute(_OPEN, bound).scalars())


_BOUND = text("""
SELECT x.experiment_id FROM experiments AS x LEFT JOIN verdicts AS v USING (experiment_id)
WHERE x.frozen_at IS NOT NULL AND NOT coalesce(v.decided, false)
ORDER BY x.experiment_id
""")


def bound_experiments(connection: Connection) -> list[str]:
    """Returns the bound, undecided experiments, those that are set aside as well."""
    return list(connection.execute(_BOUND).scalars())


_PUBLISHABLE = text("""
SELECT e.experiment_id
FROM evidence AS e JOIN experiments AS x USING (experiment_id)
LEFT JOIN verdicts AS v USING (experiment_id)
WHERE v.decided IS NOT TRUE AND NOT EXISTS (
    SELECT FROM set_aside AS s
    WHERE s.experiment_id = e.experiment_id AND s.stage = 'verdicts' AND x.closed_at IS NULL
)
ORDER BY e.experiment_id
""")


def experiments_to_publish(connection: Connection) -> list[str]:
    """Returns the undecided experiments of which evidence is staged that can be published.

    Of an experiment set aside before its verdict that says so; closed by hand, its end.
    """
    return list(connection.execute(_PUBLISHABLE).scalars())


# An experiment that breaks a stage is tried again after a minute, then after two, and so on up to
# an hour. Somebody may have closed it meanwhile, or forgotten the data that broke it.
DUE = """
(s.last_tried_at + least(interval '1 hour', interval '1 minute' * 2 ^ least(s.tries - 1, 6))
    <= clock_timestamp() OR x.closed_at >= s.last_tried_at)
"""

_TO_FREEZE = text(f"""
WITH waiting AS MATERIALIZED (
    SELECT x.experiment_id, x.project_id, x.bound_at, s.tries
    FROM experiments AS x
    -- Of a separate reading too, whose own verdicts are none yet.
    LEFT JOIN {SCHEMA}.verdicts AS v USING (experiment_id)
    LEFT JOIN set_aside AS s USING (experiment_id)
    WHERE x.bound_at <= :as_of AND x.frozen_at IS NULL AND x.cannot_start IS NULL
      AND NOT coalesce(v.decided, false) AND (s.experiment_id IS NULL OR :at_once OR {DUE})
), served AS (
    SELECT project_id, max(answered_at) AS served_at FROM experiments
    WHERE project_id IN (SELECT project_id FROM waiting)
    GROUP BY project_id
)
SELECT experiment_id, project_id FROM waiting JOIN served USING (project_id)
ORDER BY row_number() OVER (
        PARTITION BY project_id ORDER BY tries NULLS FIRST, bound_at, experiment_id
    ), served_at NULLS FIRST, bound_at, experiment_id
""")


class PendingFreeze(NamedTuple):
    """An experiment that waits for its policy."""

    experiment_id: str
    project_id: int


def experiments_to_freeze(
    connection: Connection, *, as_of: datetime, at_once: bool = True
) -> list[PendingFreeze]:
    """Returns the bound experiments without a policy, a turn of each project after another.

    The project that was served longest ago comes first, and of each project the oldest experiment.

    Args:
        as_of: A time up to which the log is final.
        at_once: Whether those that are set aside are tried again before their time.
    """
    rows = connection.execute(_TO_FREEZE, {"as_of": as_of, "at_once": at_once})
    return [PendingFreeze(*row) for row in rows]


_RETRIED = text(f"""
SELECT s.experiment_id
FROM set_aside AS s
JOIN experiments AS x USING (experiment_id)
LEFT JOIN verdicts AS v USING (experiment_id)
WHERE s.stage = :stage AND NOT coalesce(v.decided, false) AND (:at_once OR {DUE})
ORDER BY s.experiment_id
""")


def experiments_to_retry(connection: Connection, stage: str, *, at_once: bool) -> list[str]:
    """Returns the experiments set aside in a stage that are tried again now."""
    return list(connection.execute(_RETRIED, {"stage": stage, "at_once": at_once}).scalars())


_SET_ASIDE = text("""
INSERT INTO set_aside AS s
    (experiment_id, stage, error, first_failed_at, last_tried_at, tries)
VALUES (:experiment_id, :stage, :error, clock_timestamp(), clock_timestamp(), 1)
ON CONFLICT (experiment_id) DO UPDATE
SET stage = excluded.stage, error = excluded.error, last_tried_at = excluded.last_tried_at,
    tries = s.tries + 1
""")


def set_aside(connection: Connection, experiment_id: str, *, stage: str, error: Exception) -> None:
    """Leaves an experiment out of a stage and of those that follow, until it is tried again."""
    failure = {"experiment_id": experiment_id, "stage": stage, "error": error_line(error)}
    connection.execute(_SET_ASIDE, failure)


def error_line(error: BaseException) -> str:
    """Returns what kind of error it is and where in the code: never a value of the data."""
    if isinstance(error, WrongFileError):
        return error.sentence
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    ours = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(_SOURCE) and ".venv" not in frame.filename
    ]
    if not ours:
        return type(cause).__name__
    place = Path(ours[-1].filename).relative_to(_SOURCE).as_posix()
    return f"{type(cause).__name__} at {place}:{ours[-1].lineno}"


def take_back(connection: Connection, experiment_id: str, *, stage: str) -> None:
    """Takes an experiment back that a stage could compute again."""
    connection.execute(
        text("DELETE FROM set_aside WHERE experiment_id = :experiment_id AND stage = :stage"),
        {"experiment_id": experiment_id, "stage": stage},
    )


# Its verdict stands: what follows it ends here.
_STOPPED = text("""
UPDATE follow_ups AS f SET state = 'stopped'
FROM set_aside AS s WHERE s.experiment_id = f.experiment_id AND f.state = 'running'
""")
_DECIDED = text("""
DELETE FROM set_aside AS s USING verdicts AS v
WHERE v.experiment_id = s.experiment_id AND v.decided
""")


def drop_decided(connection: Connection) -> None:
    """Forgets of decided experiments that they were set aside, and ends their follow-ups."""
    connection.execute(_STOPPED)
    connection.execute(_DECIDED)


@dataclass(frozen=True, kw_only=True)
class ServedVerdict:
    """The verdict and evidence served of a set-aside experiment; `as_of` is None before a look."""

    experiment_id: str
    closed: bool
    contract: Contract
    evidence: AnyEvidence | None
    as_of: datetime | None
    next_look_at: datetime | None


_SERVED = text("""
SELECT x.experiment_id, x.closed_at IS NOT NULL AS closed, v.contract::text AS contract,
    v.evidence::text AS evidence, v.as_of, v.next_look_at
FROM set_aside AS s
JOIN experiments AS x USING (experiment_id)
JOIN verdicts AS v USING (experiment_id)
WHERE NOT v.decided AND (x.closed_at IS NOT NULL OR s.stage <> 'verdicts')
ORDER BY x.experiment_id
""")


def served_of_set_aside(connection: Connection) -> list[ServedVerdict]:
    """Returns the served verdicts of the undecided experiments that are set aside."""
    return [
        value_of(
            ServedVerdict,
            row,
            contract=contract_of(row.contract),
            evidence=evidence_of(row.evidence),
        )
        for row in connection.execute(_SERVED)
    ]
