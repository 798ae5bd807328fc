"""A store with a canary's history, runs of our definitions on it, and a shop with webhooks."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import Engine, text

from orchestration.dagster.resources import Store as StoreResource
from orchestration.definitions import definitions
from storage.log.events import RuntimeEvent, append_history
from storage.schema.annex_tables import DERIVED
from storage.schema.partitions import create_days
from storage.tenants.projects import create_project
from tests.clients.receiver import Receiver, receiving
from tests.conftest import Store, filled_model, fresh_store
from tests.orchestration.shop import OF_THE_TESTS, Shop
from tests.stores.derived import HOW_FAR
from tests.stores.pipeline_run import run_pipeline
from tests.world import AS_LIVE, record_deploy, register_experiment

CONTROL, TREATMENT = "c0ffee0", "decade1"
# They move with the clock: when a verdict was published, when the next look can come.
_UNSTABLE = {"published_at", "next_look_at"}


@dataclass(frozen=True, kw_only=True)
class Canary:
    """Three days of a canary that helps `click`, and moves neither `view` nor `activation`."""

    url: str
    engine: Engine
    project_id: int
    experiments: dict[str, str]
    first_day: datetime

    @property
    def resource(self) -> StoreResource:
        return StoreResource(database_url=self.url)

    def derived(self) -> dict[str, list[tuple[str, ...]]]:
        """Everything derived that a reader could see, as text; how far it was read left out."""
        with self.engine.connect() as connection:
            return {
                table.name: sorted(
                    tuple(
                        str(value) for name, value in row._mapping.items() if name not in _UNSTABLE
                    )
                    for row in connection.execute(table.select())
                )
                for table in DERIVED
                if table.name not in HOW_FAR
            }

    def tamper(self, *statements: str) -> None:
        """Changes what no code of ours ever would."""
        with self.engine.begin() as connection:
            days = {(datetime.now(UTC) - timedelta(hours=back)).date() for back in (0, 1, 2)}
            create_days(connection, days)
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            for statement in statements:
                connection.execute(text(statement.format(**self.experiments)))

    def contract(self, metric: str) -> dict[str, Any]:
        return self._served("contract", metric)

    def evidence(self, metric: str) -> dict[str, Any]:
        return self._served("evidence", metric)

    def _served(self, column: str, metric: str) -> dict[str, Any]:
        with self.engine.connect() as connection:
            return connection.execute(
                text(f"SELECT {column} FROM verdicts WHERE experiment_id = :id"),
                {"id": self.experiments[metric]},
            ).scalar_one()

    def run(self, job: str, instance: dg.DagsterInstance, day: str, **options: Any) -> Any:
        return definitions.resolve_job_def(job).execute_in_process(
            instance=instance, partition_key=day, **options
        )


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """Dagster's own records, gone after the test."""
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture(scope="module")
def _on_disk() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(set_dagster_home=False) as on_disk:
        yield on_disk


@pytest.fixture
def on_disk(_on_disk) -> Iterator[dg.DagsterInstance]:
    """Dagster's own records on disk, where a schedule opens them; empty before each test."""
    # Made in a third of a second, emptied in a tenth of that.
    yield _on_disk
    _on_disk.wipe()


@pytest.fixture
def today() -> str:
    """The key of today's partition."""
    return datetime.now(UTC).date().isoformat()


def _filled(store: Store) -> Canary:
    """The history first, then the registrations, as an import does it."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    # Four windows of the longest metric, which end four days after the last of its three days, are
    # over: no block closes between two readings of a test.
    first_day = midnight - timedelta(days=9)
    with store.engine.begin() as connection:
        project_id = create_project(connection, "shop").project_id
        record_deploy(connection, project_id, CONTROL, first_day - timedelta(days=1))
        record_deploy(connection, project_id, TREATMENT, first_day, 0.5)
        append_history(connection, list(_events(project_id, first_day)))
        experiments = {
            metric: register_experiment(
                connection, project_id, treatment_commit=TREATMENT, target_metric=metric
            )
            for metric in ("click", "view", "activation")
        }
        connection.execute(AS_LIVE)
    return Canary(
        url=store.url,
        engine=store.engine,
        project_id=project_id,
        experiments=experiments,
        first_day=first_day,
    )


def _walked(store: Store) -> Canary:
    canary = _filled(store)
    run_pipeline(store.engine)
    return canary


# A store that holds them is copied in a tenth of the time in which they are sent.
@pytest.fixture(scope="module")
def _canary_model(postgres_url, migrated_template) -> Iterator[tuple[str, Canary]]:
    with filled_model(postgres_url, migrated_template, _filled) as model:
        yield model


@pytest.fixture(scope="module")
def _walked_model(postgres_url, migrated_template) -> Iterator[tuple[str, Canary]]:
    with filled_model(postgres_url, migrated_template, _walked) as model:
        yield model


@contextmanager
def _copied(
    server: str, model: tuple[str, Canary], monkeypatch: pytest.MonkeyPatch
) -> Generator[Canary]:
    name, canary = model
    with fresh_store(server, name) as store:
        monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
        yield replace(canary, url=store.url, engine=store.engine)


@pytest.fixture
def canary(postgres_url, _canary_model, monkeypatch) -> Iterator[Canary]:
    """The canary's history, and its experiments."""
    with _copied(postgres_url, _canary_model, monkeypatch) as canary:
        yield canary


@pytest.fixture
def walked(postgres_url, _walked_model, monkeypatch) -> Iterator[Canary]:
    """The canary after a tick: `click` is decided, the others are open."""
    with _copied(postgres_url, _walked_model, monkeypatch) as canary:
        yield canary


def _events(project_id: int, first_day: datetime) -> Iterator[RuntimeEvent]:
    for number in range(1200):
        treated, turn = number % 2 == 1, number // 2
        # Ten of a block, twice an hour: each hour has events, and a walk a tenth of the cells.
        since = timedelta(minutes=30) * (number // 10) + timedelta(seconds=15) * (number % 10)
        exposed_at = first_day + timedelta(minutes=31) + since
        outcomes = {
            "page_view": True,
            "click": turn % 10 < (5 if treated else 2),
            "view": turn % 7 < 2,
            "activation": turn % 10 == 0,
        }
        for position, (event, happens) in enumerate(outcomes.items()):
            for _ in range(happens * (1 + (number % 5 == 0))):  # a fifth is delivered twice
                yield RuntimeEvent(
                    project_id=project_id,
                    environment="production",
                    event=event,
                    session_id=f"s{number}",
                    occurred_at=exposed_at + timedelta(seconds=20 * position),
                    commit_sha=TREATMENT if treated else CONTROL,
                )


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Who listens on a port of this machine."""
    with receiving() as running:
        yield running


@pytest.fixture(scope="module")
def idle_instance() -> Iterator[dg.DagsterInstance]:
    """An instance for all of a module: the sensor of webhooks asks nothing of it."""
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def shop(service, receiver, idle_instance, monkeypatch) -> Shop:
    """A shop that tells the receiver alone."""
    monkeypatch.setenv("SERVICE_SECRET", OF_THE_TESTS)
    service.settings(webhooks=[{"url": receiver.url}])
    return Shop(service=service, instance=idle_instance)
