"""The freezing: an experiment's policy, frozen in turns from the log as of its binding.

The pipeline freezes, in transactions that no writer waits for; whenever it does, it reads alike.
"""

import json
import math
import time
from dataclasses import dataclass, replace

import msgspec
from sqlalchemy import Connection, func, select, text, update

from domain.document import document_text
from domain.policy import FrozenAnswer, Policy
from domain.registration import Registration
from storage.experiments.binding import Binding
from storage.experiments.deploy_record import read_deploys
from storage.experiments.graphs import graph_patterns
from storage.experiments.policy import Answers, Assignment, Frozen, LearnedPrior, proceed
from storage.experiments.readings import Reading
from storage.schema.clock import store_time
from storage.schema.past_log import PATIENCE, PastFiles, PastLog
from storage.schema.tables import deploys, experiments

# How long a turn goes on, in seconds: what it has read is kept for the next. A reading may go on
# for as long as a run has left for it, and so much longer.
_TURN, _OVERTIME = 1.0, 2.0
# How often a reading is tried that is not answered in time: then its member has its default.
_TRIES = 2


class PastAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to a policy's questions so far; `tries` counts those that came too late."""

    answers: tuple[FrozenAnswer, ...] = ()
    tries: dict[str, int] = {}


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The end of a turn: whether the freeze is done, and whether the log did not answer."""

    is_done: bool
    is_unanswered: bool = False


def take_turn(
    connection: Connection,
    experiment_id: str,
    *,
    files: PastFiles | None = None,
    seconds: float = _TURN,
    patience: float = PATIENCE,
    left: float = math.inf,
) -> Turn:
    """Goes on with the freeze of a bound experiment, by a question at least.

    A reading that was cut off for want of the run's time before half of its own counts as no try.

    Args:
        connection: In a transaction.
        files: Of days that PostgreSQL does not have whole; None to read it alone.
        patience: How long a reading may take, in seconds.
        left: How many seconds the run has left.
    """
    assignment, kept, past = assigned(connection, experiment_id, files)
    answers = {each.question: each for each in kept.answers}
    begun = time.monotonic()
    while isinstance(reading := proceed(assignment, answers), Reading):
        limit = min(patience, max(_OVERTIME, begun + left - time.monotonic()))
        answer = reading.answer(replace(past, seconds=limit))
        tries = kept.tries.get(reading.question, 0) + (2 * limit >= patience)
        if answer is None and tries < _TRIES:
            tried = {**kept.tries, reading.question: tries}
            _keep(connection, experiment_id, answers, tried)
            return Turn(is_done=False, is_unanswered=True)
        answers[reading.question] = reading.unanswered if answer is None else answer
        if time.monotonic() >= begun + seconds:
            _keep(connection, experiment_id, answers, kept.tries)
            return Turn(is_done=False)
    _store(connection, experiment_id, reading)
    return Turn(is_done=True)


def freeze_whole(
    connection: Connection, experiment_id: str, *, files: PastFiles | None = None
) -> None:
    """Freezes the policy that a bound experiment's verdict reads, or why it cannot start."""
    while not take_turn(connection, experiment_id, files=files, seconds=math.inf).is_done:
        pass


def _keep(
    connection: Connection, experiment_id: str, answers: Answers, tries: dict[str, int]
) -> None:
    kept = PastAnswers(answers=tuple(answers.values()), tries=tries)
    connection.execute(
        update(experiments)
        .where(experiments.c.experiment_id == experiment_id)
        .values(answers=json.loads(document_text(kept)), answered_at=func.clock_timestamp())
    )


def _store(connection: Connection, experiment_id: str, frozen: Frozen) -> None:
    policy, start = frozen.policy, frozen.start
    columns: dict[str, object] = {"cannot_start": policy}
    if not isinstance(policy, str):
        columns = {
            "frozen_at": func.clock_timestamp(),
            "declared_at": start.declared_at,
            # OFREP served control to all while the past was read: these units belong to no arm.
            "starts_at": store_time(connection) if start.with_freeze else start.starts_at,
            "policy": json.loads(document_text(policy)),
        }
    own = experiments.c
    connection.execute(
        update(experiments)
        # Two runs freeze alike: the first stays.
        .where(own.experiment_id == experiment_id, own.frozen_at.is_(None))
        .values(**columns, answers=None, answered_at=func.clock_timestamp())
    )


# The settings that were changed since a time, as they were before.
_CHANGES = text("""
SELECT a.happened_at, changed.member, changed.before
FROM audit_trail AS a
CROSS JOIN LATERAL jsonb_to_recordset(a.changes) AS changed (member text, before jsonb)
WHERE a.project_id = :project_id AND a.action = 'settings_changed'
  AND a.happened_at > :since AND a.happened_at <= :until
ORDER BY a.entry_id
""")


# A day's prior may be kept after midnight: a frozen policy keeps the prior that it had.
_LEARNED = text("""
SELECT day::text AS day, weights FROM learned_priors
WHERE project_id = :project_id AND day < (CAST(:bound_at AS timestamptz) AT TIME ZONE 'UTC')::date
  AND (NOT :is_frozen OR day::text = :learned_on)
ORDER BY day DESC LIMIT 1
""")


def assigned(
    connection: Connection, experiment_id: str, files: PastFiles | None
) -> tuple[Assignment, PastAnswers, PastLog]:
    """Returns a bound experiment, the answers of its turns, and the log as of its binding."""
    query = select(experiments).where(experiments.c.experiment_id == experiment_id)
    row = connection.execute(query).one()
    (deploy,) = read_deploys(
        connection, select(deploys).where(deploys.c.deploy_id == row.deploy_id)
    )
    request = Registration.of_stored(row.request)
    # The deploy brought the last of a portfolio's changes: its routes are that change's.
    is_all = request.routes is not None or request.is_portfolio or not deploy.affected_routes
    binding = msgspec.convert(row.binding, Binding)
    since = {"since": binding.began_at, "until": row.bound_at}
    changes = connection.execute(_CHANGES, {"project_id": row.project_id, **since}).all()
    policy = None if row.policy is None else Policy.of(row.policy)
    asked = {
        "project_id": row.project_id,
        "bound_at": row.bound_at,
        "is_frozen": policy is not None,
        "learned_on": policy and policy.learned_on,
    }
    learned = connection.execute(_LEARNED, asked).one_or_none()
    patterns = (
        None
        if is_all or deploy.graph_id is None
        else graph_patterns(connection, row.project_id, deploy.graph_id)
    )
    assignment = Assignment(
        row=row,
        deploy=deploy,
        request=request,
        binding=binding,
        patterns=patterns,
        changes=changes,
        learned=LearnedPrior() if learned is None else LearnedPrior(*learned),
    )
    past = PastLog(
        connection=connection,
        project_id=row.project_id,
        environment=row.environment,
        until=row.bound_at,
        files=files,
    )
    return assignment, msgspec.convert(row.answers or {}, PastAnswers), past
