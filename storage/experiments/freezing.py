"""The freezing: an experiment's policy, frozen in turns from the log as of its binding.

The pipeline freezes, in transactions that no writer waits for; whenever it does, it reads alike.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select, text, update

from domain.document import document_text
from domain.policy import FrozenAnswer, Policy
from domain.registration import Registration
from storage.experiments.binding import Binding
from storage.experiments.graphs import graph_patterns
from storage.experiments.policy import Answers, Assignment, freeze, questions, start_of
from storage.experiments.readings import PastEvents, Reading
from storage.schema.past_log import PastFiles, PastLog
from storage.schema.tables import deploys, experiments

# How long a turn goes on, in seconds: what it has read is kept for the next.
_TURN = 1.0
# How often a reading is tried that is not answered in time: then its member has its default.
_TRIES = 2


class PastAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to the questions of a policy that is not frozen yet.

    Attributes:
        tries: How often the log did not answer a question in time.
    """

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
    patience: float | None = None,
) -> Turn:
    """Goes on with the freeze of a bound experiment, by a question at least.

    Args:
        connection: In a transaction.
        files: Of days that PostgreSQL does not have whole; None to read it alone.
        patience: How long a reading may take, in seconds; None for as long as ever.
    """
    assignment, kept = _assigned(connection, experiment_id)
    answers = {each.question: each for each in kept.answers}
    ends_at = time.monotonic() + seconds
    while (reading := _next(assignment, answers)) is not None:
        answer = _read(connection, assignment, reading, files, patience)
        tries = kept.tries.get(reading.question, 0) + 1
        if answer is None and tries < _TRIES:
            tried = {**kept.tries, reading.question: tries}
            _keep(connection, experiment_id, answers, tried)
            return Turn(is_done=False, is_unanswered=True)
        answers[reading.question] = reading.unanswered if answer is None else answer
        if time.monotonic() >= ends_at:
            _keep(connection, experiment_id, answers, kept.tries)
            return Turn(is_done=False)
    _store(connection, assignment, answers)
    return Turn(is_done=True)


def freeze_whole(
    connection: Connection, experiment_id: str, *, files: PastFiles | None = None
) -> None:
    """Freezes the policy that a bound experiment's verdict reads, or why it cannot start."""
    while not take_turn(connection, experiment_id, files=files, seconds=math.inf).is_done:
        pass


def _next(assignment: Assignment, answers: Answers) -> Reading[Any] | None:
    asked = questions(assignment, answers)
    return next((each for each in asked if each.question not in answers), None)


def _read(
    connection: Connection,
    assignment: Assignment,
    reading: Reading[Any],
    files: PastFiles | None,
    patience: float | None = None,
) -> FrozenAnswer | None:
    row, limit = assignment.row, {} if patience is None else {"seconds": patience}
    past = PastLog(connection, until=assignment.until, files=files, **limit)
    events = PastEvents(past=past, project_id=row.project_id, environment=row.environment)
    return reading.answer(events)


def _keep(
    connection: Connection, experiment_id: str, answers: Answers, tries: dict[str, int]
) -> None:
    kept = PastAnswers(answers=tuple(answers.values()), tries=tries)
    connection.execute(
        update(experiments)
        .where(experiments.c.experiment_id == experiment_id)
        .values(answers=json.loads(document_text(kept)), answered_at=func.clock_timestamp())
    )


def _store(connection: Connection, assignment: Assignment, answers: Answers) -> None:
    policy, start = freeze(assignment, answers), start_of(assignment, answers)
    frozen: dict[str, Any] = {"cannot_start": policy}
    if not isinstance(policy, str):
        frozen = {
            "frozen_at": func.clock_timestamp(),
            "declared_at": start.declared_at,
            "starts_at": start.starts_at,
            "policy": json.loads(document_text(policy)),
        }
    own = experiments.c
    connection.execute(
        update(experiments)
        # Two runs freeze alike: the first stays.
        .where(own.experiment_id == assignment.row.experiment_id, own.frozen_at.is_(None))
        .values(**frozen, answers=None, answered_at=func.clock_timestamp())
    )


def frozen_again(
    connection: Connection, experiment_id: str, *, files: PastFiles | None = None
) -> tuple[dict[str, Any], dict[str, Any], Sequence[FrozenAnswer]]:
    """Returns a policy as it is stored and by its kept answers, and the log's answers as of now.

    Nothing is stored.
    """
    assignment, _ = _assigned(connection, experiment_id)
    stored = assignment.row.policy
    kept = {each.question: each for each in Policy.of(stored).frozen_from}
    answers: dict[str, FrozenAnswer] = {}
    while (reading := _next(assignment, answers)) is not None:
        answer = _read(connection, assignment, reading, files)
        answers[reading.question] = answer or reading.unanswered
    return stored, json.loads(document_text(freeze(assignment, kept))), [*answers.values()]


# The settings that were changed since a time, as they were before.
_CHANGES = text("""
SELECT a.happened_at, changed.member, changed.before
FROM audit_trail AS a
CROSS JOIN LATERAL jsonb_to_recordset(a.changes) AS changed (member text, before jsonb)
WHERE a.project_id = :project_id AND a.action = 'settings_changed'
  AND a.happened_at > :since AND a.happened_at <= :until
ORDER BY a.entry_id
""")


_LEARNED = text("""
SELECT day::text AS day, weights FROM learned_priors
WHERE project_id = :project_id AND day < (CAST(:bound_at AS timestamptz) AT TIME ZONE 'UTC')::date
ORDER BY day DESC LIMIT 1
""")


def _assigned(connection: Connection, experiment_id: str) -> tuple[Assignment, PastAnswers]:
    query = select(experiments, func.clock_timestamp().label("now"))
    row = connection.execute(query.where(experiments.c.experiment_id == experiment_id)).one()
    deploy = connection.execute(select(deploys).where(deploys.c.deploy_id == row.deploy_id)).one()
    request = Registration.of_stored(row.request)
    binding = msgspec.convert(row.binding, Binding)
    since = {"since": binding.began_at, "until": row.bound_at}
    changes = connection.execute(_CHANGES, {"project_id": row.project_id, **since}).all()
    bound = {"project_id": row.project_id, "bound_at": row.bound_at}
    learned = connection.execute(_LEARNED, bound).one_or_none()
    # The deploy brought the last of a portfolio's changes: its routes are that change's.
    is_all = request.routes is not None or request.is_portfolio or not deploy.affected_routes
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
        learned=learned,
        frozen_at=row.frozen_at or row.now,
    )
    return assignment, msgspec.convert(row.answers or {}, PastAnswers)
