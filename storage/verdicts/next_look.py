"""The first and the next look of an experiment: ticks skip the experiment until it can come."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from domain.policy import Policy, UnreadablePolicyError
from storage.experiments.experiments import Registered
from storage.schema.encoding import epoch_microseconds
from storage.schema.policy_columns import (
    BLOCK_MIN_UNITS,
    GRACE,
    TARGET_AND_GUARDRAILS,
    UNDECLARED_MIN_UNITS,
)


@dataclass(frozen=True, kw_only=True)
class NextLook:
    """The conditions of an experiment's next look.

    Attributes:
        units_since: Where the oldest analysis block begins that holds a unit and has not ended.
        crowd_since: Where the oldest begins that ends only once more units of any stratum came;
            None while treatment's share is declared.
        forced_at: How far the cells must reach for a look that comes without traffic: an
            analysis block's closing for another metric, or its end by the clock or the horizon.
    """

    units_since: datetime
    crowd_since: datetime | None
    forced_at: datetime


_NOTE = text("""
INSERT INTO next_looks (experiment_id, units_since, crowd_since, forced_at)
SELECT * FROM unnest(
    CAST(:ids AS text[]), CAST(:units AS timestamptz[]), CAST(:crowds AS timestamptz[]),
    CAST(:forced AS timestamptz[])
)
ON CONFLICT (experiment_id) DO UPDATE
SET units_since = excluded.units_since, crowd_since = excluded.crowd_since,
    forced_at = excluded.forced_at
""")


def note_next_looks(connection: Connection, next_looks: Mapping[str, NextLook]) -> None:
    """Keeps the next looks of experiments whose evidence was computed from all cells there are."""
    connection.execute(
        _NOTE,
        {
            "ids": list(next_looks),
            "units": [look.units_since for look in next_looks.values()],
            "crowds": [look.crowd_since for look in next_looks.values()],
            "forced": [look.forced_at for look in next_looks.values()],
        },
    )


_FORGET = text("DELETE FROM next_looks WHERE experiment_id = ANY(:ids)")


def forget_next_looks(connection: Connection, ids: Sequence[str]) -> None:
    """Has the evidence of experiments computed as soon as it can be, whether or not a look came."""
    connection.execute(_FORGET, {"ids": list(ids)})


# Between looks nothing of a verdict changes (docs/statistics.md, 'Counts'), and a look is the
# closing of an analysis block. Where a new block may have ended, this rather names an experiment
# too many: the units of a stratum are counted since the oldest open analysis block of any, and a
# deploy may cut or not.
_DUE = text(f"""
SELECT x.experiment_id
FROM (
    SELECT * FROM experiments
    WHERE CAST(:only AS text[]) IS NULL OR experiment_id = ANY(CAST(:only AS text[]))
    OFFSET 0
) AS x
JOIN cursors AS read ON read.stage = 'conversions' AND read.experiment_id = x.experiment_id
LEFT JOIN next_looks AS look ON look.experiment_id = x.experiment_id
LEFT JOIN evidence AS e ON e.experiment_id = x.experiment_id
LEFT JOIN verdicts AS v ON v.experiment_id = x.experiment_id
-- Units are the same of every metric; they are read from the one whose cells close first.
CROSS JOIN LATERAL (
    SELECT m.name AS metric, m.open_for AS shortest_open
    FROM ({TARGET_AND_GUARDRAILS}) AS m
    ORDER BY shortest_open
    LIMIT 1
) AS first
CROSS JOIN LATERAL (
    SELECT {BLOCK_MIN_UNITS} AS declared,
        {UNDECLARED_MIN_UNITS} AS undeclared
) AS enough
WHERE NOT coalesce(v.decided, false) AND (
    e.experiment_id IS NULL OR look.experiment_id IS NULL
    OR x.closed_at IS NOT NULL
    OR read.at >= look.forced_at
    OR EXISTS (
        SELECT FROM deploys AS d
        WHERE d.project_id = x.project_id AND d.environment = x.environment
          -- One that was posted late counts from then on; one known at the binding, from its time.
          AND greatest(
              d.deployed_at, CASE WHEN d.recorded_at > x.bound_at THEN d.recorded_at END
          ) >= least(look.units_since, look.crowd_since)
          AND d.deployed_at < read.at - first.shortest_open + interval '5 minutes'
    )
    OR EXISTS (
        SELECT FROM cells AS c
        WHERE c.experiment_id = x.experiment_id AND c.metric = first.metric
          AND c.block >= {epoch_microseconds("look.units_since")}
        GROUP BY c.stratum
        HAVING sum(c.n1 + c.n0) >= CASE WHEN look.crowd_since IS NULL THEN enough.declared
            ELSE enough.undeclared END
    )
    OR (
        SELECT sum(c.n1 + c.n0) FROM cells AS c
        WHERE c.experiment_id = x.experiment_id AND c.metric = first.metric
          AND c.block >= {epoch_microseconds("look.crowd_since")}
    ) >= enough.undeclared
)
ORDER BY x.experiment_id
""")


def experiments_due(connection: Connection, *, only: Sequence[str] | None = None) -> list[str]:
    """Returns the open experiments of which a look may have come since they were last computed."""
    bound = {"only": None if only is None else list(only)}
    return list(connection.execute(_DUE, bound).scalars())


_PUT_OFF = text(f"""
UPDATE evidence AS e
SET next_look_at = n.at
FROM (
    SELECT x.experiment_id,
        read.at + {GRACE} + interval '5 minutes' AS at
    FROM experiments AS x
    JOIN cursors AS read ON read.stage = 'conversions' AND read.experiment_id = x.experiment_id
    JOIN verdicts AS v ON v.experiment_id = x.experiment_id
    WHERE NOT v.decided
) AS n
WHERE e.experiment_id = n.experiment_id AND e.next_look_at < n.at
""")


def put_off_looks(connection: Connection) -> None:
    """Moves the next look of skipped experiments past the block that closed without a look."""
    connection.execute(_PUT_OFF)


# --- The first look -------------------------------------------------------------------------------

_EACH_RUN = timedelta(minutes=1)
# From when on units of the first look come: its first unit's block, else the blocks yet to close.
UNITS_FROM = """greatest(x.starts_at, coalesce(
    (SELECT to_timestamp(min(u.block) / 1e6) FROM block_units AS u
     WHERE u.experiment_id = x.experiment_id AND u.treatment + u.control > 0),
    (SELECT at FROM cursors WHERE stage = 'exposures' AND experiment_id = x.experiment_id)))"""
_START = text(f"""
SELECT {UNITS_FROM} AS units_from, x.policy,
    CASE WHEN x.frozen_at IS NULL THEN x.bound_at END AS bound_at
FROM experiments AS x
WHERE x.project_id = :project_id AND x.experiment_id = :experiment_id
""")


def read_first_look(
    connection: Connection, project_id: int, registered: Registered
) -> datetime | None:
    """Returns when to ask for an experiment first; None if unknown.

    That is when its target can be looked at, or the pipeline's next run, which freezes its policy.
    """
    if registered.created:
        return None if registered.bound_at is None else registered.bound_at + _EACH_RUN
    bound = {"project_id": project_id, "experiment_id": registered.experiment_id}
    row = connection.execute(_START, bound).one()
    if row.bound_at is not None:
        return row.bound_at + _EACH_RUN
    return first_look_of(row.units_from, row.policy)


def first_look_of(
    units_from: datetime | None, stored: Mapping[str, object] | None
) -> datetime | None:
    """Returns when the target can be looked at first; None if unknown."""
    policy = readable_policy(stored)
    return None if policy is None or units_from is None else policy.first_look_at(units_from)


def readable_policy(stored: Mapping[str, object] | None) -> Policy | None:
    """Returns a policy; None before it is frozen, and where an experiment is set aside for it."""
    with suppress(UnreadablePolicyError):
        return None if stored is None else Policy.of(stored)
    return None
