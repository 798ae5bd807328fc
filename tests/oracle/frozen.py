"""A bound experiment as it was frozen at its binding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from storage.experiments.histories import joint_with
from storage.postgres.rows import value_of

_FROZEN = text(
    f"SELECT x.*, {joint_with('x')} AS joint_with,"
    " (SELECT pick_secret FROM installation) AS pick_secret"
    " FROM experiments AS x WHERE x.experiment_id = :id"
)


@dataclass(frozen=True, kw_only=True)
class FrozenExperiment:
    """A bound experiment as it was frozen at its binding."""

    experiment_id: str
    project_id: int
    environment: str
    registered_at: datetime
    starts_at: datetime
    declared_at: datetime | None
    bound_at: datetime
    closed_at: datetime | None
    change: Sequence[str]
    treatment_commit: str
    control_commit: str | None
    joint_with: Sequence[str]
    deploy_id: str
    policy: Mapping[str, Any]
    pick_secret: str


def read_frozen(connection: Connection, experiment_id: str) -> FrozenExperiment:
    return value_of(FrozenExperiment, connection.execute(_FROZEN, {"id": experiment_id}).one())
