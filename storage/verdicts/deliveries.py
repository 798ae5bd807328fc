"""Deliveries: announcements on their way to webhooks, each attempt noted before it is made."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from storage.experiments.deploys import TITLE
from storage.postgres.rows import value_of
from storage.tenants.settings import read_settings
from storage.tenants.webhook import Webhook

# Twenty waits, the last ten of six hours: about three days in all.
MOST_ATTEMPTS = 21
_FIRST_WAIT = timedelta(seconds=30)
LONGEST_WAIT = timedelta(hours=6)
# As far as the hash of a delivery moves its waits to either side.
_SPREAD = 0.2


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """An announcement to a project, as it was made; the trial of a webhook has no experiment."""

    announcement_id: str
    project_id: int
    project: str
    experiment_id: str | None
    kind: str
    subject: str
    announced_at: datetime
    # The text that readers got, to the byte.
    contract: str
    sentence: str | None
    environment: str
    metric: str
    commit: str | None
    title: str | None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A try to deliver, noted as made; `webhook` is None where the settings no longer hold it."""

    announcement: Announcement
    target: str
    webhook: Webhook | None
    number: int
    at: datetime


def wait_after(number: int, *, announcement_id: str, target: str) -> timedelta:
    """Returns how long to wait after an attempt that failed: twice as long each time, spread.

    Args:
        number: The failed attempt's number, from 1.
        announcement_id: With `target`, the seed of the spread: deliveries that failed
            together come back apart.
    """
    drawn = hashlib.sha256(f"{announcement_id} {target} {number}".encode()).digest()
    place = int.from_bytes(drawn[:4], "big") / 2**32
    doubled = min(_FIRST_WAIT * 2 ** min(number - 1, 16), LONGEST_WAIT)
    return doubled * (1 + _SPREAD * (2 * place - 1))


_DUE = text(f"""
SELECT d.announcement_id, d.target, d.attempts, a.project_id, p.name AS project, a.experiment_id,
       a.kind, a.subject, a.announced_at, a.contract::text AS contract, a.sentence, a.environment,
       a.metric, a.commit_sha, clock_timestamp() AS at, (
        SELECT {TITLE} FROM experiments AS x JOIN deploys AS d USING (deploy_id)
        WHERE x.experiment_id = a.experiment_id
    ) AS title
FROM deliveries AS d
JOIN announcements AS a USING (announcement_id)
JOIN projects AS p USING (project_id)
WHERE d.delivered_at IS NULL AND d.given_up_at IS NULL
  AND d.next_attempt_at <= clock_timestamp() AND d.attempts < :limit
  AND d.target <> ALL (CAST(:avoided AS text[]))
  AND NOT EXISTS (SELECT FROM freezes WHERE unfrozen_at IS NULL)
-- What was never tried goes before what has failed.
ORDER BY d.attempts, d.next_attempt_at
LIMIT 1
FOR UPDATE OF d SKIP LOCKED
""")

_NOTE = text("""
UPDATE deliveries SET attempts = :number, next_attempt_at = :next
WHERE announcement_id = :announcement_id AND target = :target
""")


def claim_attempt(connection: Connection, *, avoided: Collection[str] = ()) -> Attempt | None:
    """Notes the attempt of a delivery that is due, and returns it; None where none is.

    To be committed before anything is sent: whoever dies then leaves a delivery that is due again
    after its wait. Nothing is due while the service is frozen.

    Args:
        connection: In a transaction of its own.
    """
    row = connection.execute(_DUE, {"limit": MOST_ATTEMPTS, "avoided": list(avoided)}).one_or_none()
    if row is None:
        return None
    number = row.attempts + 1
    wait = wait_after(number, announcement_id=row.announcement_id, target=row.target)
    connection.execute(
        _NOTE,
        {
            "announcement_id": row.announcement_id,
            "target": row.target,
            "number": number,
            "next": row.at + wait,
        },
    )
    known = {
        webhook.target: webhook for webhook in read_settings(connection, row.project_id).webhooks
    }
    return Attempt(
        announcement=value_of(Announcement, row, commit=row.commit_sha),
        target=row.target,
        webhook=known.get(row.target),
        number=number,
        at=row.at,
    )


_DELIVERED = text("""
UPDATE deliveries SET delivered_at = clock_timestamp(), given_up_at = NULL, problem = NULL
WHERE announcement_id = :announcement_id AND target = :target AND delivered_at IS NULL
""")

# Not where another attempt was begun meanwhile, or has arrived.
_MINE = """
WHERE announcement_id = :announcement_id AND target = :target AND attempts = :number
  AND delivered_at IS NULL AND given_up_at IS NULL
"""

_FAILED = text(f"""
UPDATE deliveries SET problem = :problem,
    next_attempt_at = greatest(next_attempt_at, clock_timestamp() + :wait),
    given_up_at = CASE WHEN :over THEN clock_timestamp() END
{_MINE}
""")

_POSTPONED = text(f"""
UPDATE deliveries SET problem = :problem, attempts = attempts - 1,
    next_attempt_at = clock_timestamp() + :wait
{_MINE}
""")

_EXHAUSTED = text("""
UPDATE deliveries SET given_up_at = clock_timestamp()
WHERE delivered_at IS NULL AND given_up_at IS NULL
  AND attempts >= :limit AND next_attempt_at <= clock_timestamp()
""")


def _named(attempt: Attempt) -> dict[str, object]:
    return {
        "announcement_id": attempt.announcement.announcement_id,
        "target": attempt.target,
        "number": attempt.number,
    }


def note_delivered(connection: Connection, attempt: Attempt) -> None:
    """Ends a delivery that arrived."""
    connection.execute(_DELIVERED, _named(attempt))


def note_failed(
    connection: Connection,
    attempt: Attempt,
    problem: str,
    *,
    wait: timedelta = timedelta(0),
    final: bool = False,
) -> bool:
    """Keeps, in a transaction of its own, why an attempt failed; tells whether it was the last."""
    over = final or attempt.number >= MOST_ATTEMPTS
    connection.execute(
        _FAILED,
        {**_named(attempt), "problem": problem, "wait": min(wait, LONGEST_WAIT), "over": over},
    )
    return over


def note_postponed(
    connection: Connection, attempt: Attempt, problem: str, *, wait: timedelta
) -> None:
    """Takes an attempt back that could not be made for a lack on our side, and keeps why."""
    connection.execute(_POSTPONED, {**_named(attempt), "problem": problem, "wait": wait})


def give_up_exhausted(connection: Connection) -> int:
    """Gives up deliveries whose last attempt broke off; returns how many."""
    return connection.execute(_EXHAUSTED, {"limit": MOST_ATTEMPTS}).rowcount


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Where the delivery of an announcement to a webhook stands.

    Attributes:
        experiment_id: The experiment that it is about; None of a trial of a webhook.
        subject: Of a breach the metric; else empty.
        receiver: The host of the webhook; None where the settings hold it no longer.
        next_attempt_at: When it is due; None once it has ended.
    """

    announcement_id: str
    experiment_id: str | None
    kind: str
    subject: str
    target: str
    receiver: str | None
    attempts: int
    announced_at: datetime
    next_attempt_at: datetime | None
    delivered_at: datetime | None
    given_up_at: datetime | None
    problem: str | None


_LISTED = text("""
SELECT d.announcement_id, d.target, d.attempts, a.experiment_id, a.kind, a.subject, a.announced_at,
    d.delivered_at, d.given_up_at, d.problem,
    CASE WHEN d.delivered_at IS NULL AND d.given_up_at IS NULL THEN d.next_attempt_at END
        AS next_attempt_at
FROM deliveries AS d
JOIN announcements AS a USING (announcement_id)
WHERE a.project_id = :project_id AND (:arrived OR d.delivered_at IS NULL)
ORDER BY a.announced_at DESC, d.announcement_id, d.target
LIMIT :limit
""")

_RESENT = text("""
UPDATE deliveries AS d
SET attempts = 0, next_attempt_at = clock_timestamp(), delivered_at = NULL, given_up_at = NULL
FROM announcements AS a
WHERE a.announcement_id = d.announcement_id AND a.project_id = :project_id
  AND CASE WHEN CAST(:announcement_id AS text) IS NULL THEN d.given_up_at IS NOT NULL
      ELSE d.announcement_id = :announcement_id END
""")


def list_deliveries(
    connection: Connection, project_id: int, *, arrived: bool = False, limit: int | None = None
) -> list[Delivery]:
    """Returns a project's deliveries, the newest announcement first."""
    hosts = {
        webhook.target: webhook.host for webhook in read_settings(connection, project_id).webhooks
    }
    bound = {"project_id": project_id, "arrived": arrived, "limit": limit}
    return [
        value_of(Delivery, row, receiver=hosts.get(row.target))
        for row in connection.execute(_LISTED, bound)
    ]


def send_again(connection: Connection, project_id: int, announcement_id: str | None = None) -> int:
    """Makes deliveries due once more, with all their attempts; returns how many.

    Receivers get the same identifier and the same body, only the time of signing is another.

    Args:
        announcement_id: An announcement, whether it arrived or not; else all that were given up.
    """
    bound = {"project_id": project_id, "announcement_id": announcement_id}
    return connection.execute(_RESENT, bound).rowcount
