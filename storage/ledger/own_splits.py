"""Own splits: a project's control of the last week, unit by unit, and the rows of its nights."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, text

from domain.checklist.own_splits import OwnSplits
from domain.document import document_text
from domain.policy import Policy
from storage.postgres.rows import value_of
from storage.schema.encoding import CONTROL, EPOCH, MICROSECOND

WEEK = timedelta(days=7)
# The properties by which events name the place that served them.
_PLACES = ("pod", "k8s.pod.name", "host", "host.name")
_EACH = ", ".join(f"e.properties ->> '{name}'" for name in _PLACES)
_POD = f"coalesce({_EACH})"

_LARGEST = text(f"""
SELECT x.project_id, x.experiment_id, x.environment, x.policy, n.units
FROM (
    SELECT DISTINCT ON (y.project_id) y.experiment_id, count(*) AS units
    FROM exposures AS p JOIN experiments AS y USING (experiment_id)
    WHERE p.arm = {CONTROL} AND p.block >= :since
    GROUP BY y.project_id, y.experiment_id ORDER BY y.project_id, count(*) DESC, y.experiment_id
) AS n JOIN experiments AS x USING (experiment_id)
WHERE NOT EXISTS (
    SELECT FROM own_splits AS s WHERE s.project_id = x.project_id AND s.night = :night
)
""")
_UNITS = text(f"""
SELECT p.unit, p.block, encode(p.pseudonym, 'hex') AS person, s.pod
FROM exposures AS p
LEFT JOIN (
    SELECT CASE WHEN :by_user THEN encode(e.pseudonym, 'hex') ELSE e.session_id END AS unit,
        min({_POD}) AS pod
    FROM runtime_events AS e
    WHERE e.project_id = :project_id AND e.environment = :environment
      AND e.received_at >= :from AND {_POD} IS NOT NULL
    GROUP BY 1
) AS s ON s.unit = p.unit
WHERE p.experiment_id = :experiment_id AND p.arm = {CONTROL} AND p.block >= :since
ORDER BY p.block, p.unit COLLATE "C"
""")
_OUTCOMES = text(f"""
SELECT k.metric, k.unit, NULL AS value FROM conversions AS k JOIN exposures AS p
    USING (experiment_id, unit)
WHERE k.experiment_id = :experiment_id AND k.late = 0 AND p.arm = {CONTROL} AND p.block >= :since
UNION ALL
SELECT k.metric, k.unit, sum(k.value) FROM amounts AS k JOIN exposures AS p
    USING (experiment_id, unit)
WHERE k.experiment_id = :experiment_id AND p.arm = {CONTROL} AND p.block >= :since
GROUP BY k.metric, k.unit
""")
_KEEP = text("""
INSERT INTO own_splits (project_id, night, document)
VALUES (:project_id, :night, CAST(:document AS jsonb))
ON CONFLICT (project_id, night) DO NOTHING
""")


@dataclass(frozen=True, kw_only=True)
class ControlUnit:
    """A unit of control: its block in microseconds, its person and the pod that served it."""

    unit: str
    block: int
    person: str | None
    pod: str | None


@dataclass(frozen=True, kw_only=True)
class ControlWeek:
    """The units of the largest control of a project's last week, in the order of their blocks.

    Attributes:
        outcomes: Rows of metric, unit and value: None of a conversion, else in millionths.
    """

    project_id: int
    experiment_id: str
    policy: Policy
    units: Sequence[ControlUnit]
    outcomes: Sequence[Row[Any]]


def control_weeks(connection: Connection, *, as_of: datetime) -> list[ControlWeek]:
    """Returns the control of each project that has no row of this night yet.

    Raises:
        UnreadablePolicyError: A policy is broken.
    """
    begins = as_of - WEEK
    bound = {"since": (begins - EPOCH) // MICROSECOND, "night": as_of.date(), "from": begins}
    weeks: list[ControlWeek] = []
    for row in connection.execute(_LARGEST, bound).all():
        policy = Policy.of(row.policy)
        own = {
            **bound,
            "by_user": policy.unit != "session",
            "project_id": row.project_id,
            "environment": row.environment,
            "experiment_id": row.experiment_id,
        }
        weeks.append(
            ControlWeek(
                project_id=row.project_id,
                experiment_id=row.experiment_id,
                policy=policy,
                units=[value_of(ControlUnit, unit) for unit in connection.execute(_UNITS, own)],
                outcomes=connection.execute(_OUTCOMES, own).all(),
            )
        )
    return weeks


def keep_splits(connection: Connection, project_id: int, splits: OwnSplits) -> None:
    """Keeps the row of a night."""
    row = {"project_id": project_id, "night": splits.night, "document": document_text(splits)}
    connection.execute(_KEEP, row)
