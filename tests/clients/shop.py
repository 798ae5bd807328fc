"""A shop: a project that runs a canary, in a store that survives its server."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Engine, func, select, text

from storage.log.events import RuntimeEvent, append_history
from storage.postgres.engine import open_engine
from storage.schema.tables import cells
from storage.tenants.keys import KeyKind
from storage.tenants.projects import CreatedProject, create_project
from storage.tenants.setting_changes import apply_settings
from tests.clients.delivery import CONTROL, TREATMENT
from tests.stores.pipeline_run import run_pipeline
from tests.world import record_deploy, register_experiment

# Other tests hold the limits; these must be able to ask as often as they can.
_UNLIMITED = {"per_key": 10**9, "per_address": 10**9, "registrations_per_key": 10**9}
_METRICS = {"spent": {"sources": ["order"], "kind": "mean"}}

# What was received before anything was registered: of a project, since the canary's deploy.
History = Callable[[int, datetime], Iterable[RuntimeEvent]]


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What the cells of both arms hold of an experiment's target."""

    units: int
    converted: int
    total: float


@dataclass(frozen=True, kw_only=True)
class Shop:
    """The project, and the store that it is in."""

    url: str
    engine: Engine
    project: CreatedProject
    orders: str = ""
    spending: str = ""

    @property
    def keys(self) -> dict[KeyKind, str]:
        return self.project.keys

    @property
    def experiments(self) -> Sequence[str]:
        return (self.orders, self.spending)

    def counted(self, experiment_id: str) -> Counted:
        """What the pipeline makes of all that was received, once every window has run out."""
        run_pipeline(self.engine, as_of=datetime.now(UTC) + timedelta(days=2))
        c = cells.c
        target = "order" if experiment_id == self.orders else "spent"
        with self.engine.begin() as connection:
            row = connection.execute(
                select(func.sum(c.n1 + c.n0), func.sum(c.x1 + c.x0), func.sum(c.y1 + c.y0)).where(
                    c.experiment_id == experiment_id, c.metric == target
                )
            ).one()
        return Counted(units=int(row[0]), converted=int(row[1]), total=float(row[2] or 0))


def open_shop(url: str, *, history: History | None = None) -> Shop:
    """Opens a shop in an empty store, and its canary of a day ago, with that day's history."""
    engine = open_engine(url)
    with engine.begin() as connection:
        for promise in ("fsync", "full_page_writes", "synchronous_commit"):
            assert connection.execute(text(f"SHOW {promise}")).scalar_one() == "on"
        project = create_project(connection, "shop")
        chosen = {"rate_limits": _UNLIMITED, "metrics": _METRICS, "guardrails": []}
        apply_settings(connection, project.project_id, chosen)
        now = datetime.now(UTC)
        record_deploy(connection, project.project_id, CONTROL, now - timedelta(days=2))
        record_deploy(connection, project.project_id, TREATMENT, now - timedelta(days=1), 0.5)
        if history is not None:
            answer = list(history(project.project_id, now - timedelta(days=1)))
            append_history(connection, answer)
        shop = Shop(url=url, engine=engine, project=project)
        return replace(
            shop,
            orders=_experiment(connection, project.project_id, "order"),
            spending=_experiment(connection, project.project_id, "spent"),
        )


def _experiment(connection: Connection, project_id: int, metric: str) -> str:
    members = {"treatment_commit": TREATMENT, "target_metric": metric}
    return register_experiment(connection, project_id, **members)
