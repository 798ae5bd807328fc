"""Follow-ups: the effects that units after a decision change, while both arms are served."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from storage.postgres.rows import value_of
from storage.schema.policy_columns import HORIZON, TARGET_OPEN_FOR

# From the first block after the deciding look; never past the horizon, which ends exposure.
_BEGIN = text(f"""
INSERT INTO follow_ups (experiment_id, begins_at, ends_at, state)
SELECT f.experiment_id, f.begins_at, f.ends_at, 'running'
FROM (
    SELECT v.experiment_id, b.begins_at,
        date_bin('5 minutes', least(
            b.begins_at + interval '7 days', x.starts_at + {HORIZON}
        ), 'epoch') AS ends_at
    FROM verdicts AS v
    JOIN experiments AS x USING (experiment_id)
    CROSS JOIN LATERAL (
        SELECT date_bin('5 minutes', v.as_of + interval '5 minutes' - interval '1 microsecond',
            'epoch') AS begins_at
    ) AS b
    WHERE v.experiment_id = ANY(:ids) AND v.decided AND v.verdict <> 'abstain'
) AS f
WHERE f.ends_at > f.begins_at
ON CONFLICT DO NOTHING
""")


def begin_follow_ups(connection: Connection, ids: Sequence[str]) -> None:
    """Begins the follow-ups of experiments whose verdict was decided just now.

    Args:
        connection: In the transaction that published the verdicts.
        ids: The experiments that were published; those alone that have an answer begin a follow-up.
    """
    connection.execute(_BEGIN, {"ids": list(ids)})


@dataclass(frozen=True, kw_only=True)
class PlannedFollowUp:
    """A follow-up's span of exposure, which its deciding look fixed."""

    experiment_id: str
    begins_at: datetime
    ends_at: datetime


# Between two of these, nobody would train on the difference.
_EVERY = "1 hour"
_DUE = text(f"""
SELECT f.experiment_id, f.begins_at, f.ends_at
FROM follow_ups AS f
JOIN experiments AS x USING (experiment_id)
JOIN cursors AS read ON read.stage = 'conversions' AND read.experiment_id = f.experiment_id
WHERE f.state = 'running' AND (
    f.read_to IS NULL
    OR read.at >= f.read_to + interval '{_EVERY}'
    OR (read.at > f.read_to AND read.at >= f.ends_at + {TARGET_OPEN_FOR})
)
ORDER BY f.experiment_id
""")


def due_follow_ups(connection: Connection) -> list[PlannedFollowUp]:
    """Returns the running follow-ups that were read on since they were last computed."""
    return [value_of(PlannedFollowUp, row) for row in connection.execute(_DUE)]


@dataclass(frozen=True, kw_only=True)
class FollowUpDraft:
    """A follow-up as computed, to be published.

    Attributes:
        effect: The effect by all units, as JSON text.
        log_e: Logarithm of the e-value of the whole experiment; None where there is none.
        as_of: The look; None before the first.
    """

    experiment_id: str
    state: str
    effect: str
    log_e: float | None
    as_of: datetime | None
    read_to: datetime


_PUBLISH = text("""
UPDATE follow_ups
SET state = :state, effect = CAST(:effect AS json), log_e = :log_e, as_of = :as_of,
    read_to = :read_to
WHERE experiment_id = :experiment_id AND state = 'running'
""")


def publish_follow_ups(connection: Connection, drafts: Sequence[FollowUpDraft]) -> None:
    """Publishes follow-ups as derived tables' only writer; never rewrites an ended follow-up."""
    if drafts:
        connection.execute(_PUBLISH, [vars(draft) for draft in drafts])


_STOP = text("""
UPDATE follow_ups SET state = 'stopped' WHERE state = 'running' AND experiment_id = ANY(:ids)
""")


def stop_follow_ups(connection: Connection, ids: Sequence[str]) -> None:
    """Ends the follow-ups of experiments whose own data breaks a stage: their verdicts stand."""
    if ids:
        connection.execute(_STOP, {"ids": list(ids)})
