"""A PostgreSQL for the session, a fresh store for each test, and the service in front of it."""

import gc
import os
import secrets
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import hypothesis
import psycopg
import pytest
from own_postgres.server import EmbeddedPostgres
from psycopg import sql
from sqlalchemy import Engine, make_url
from starlette.testclient import TestClient

from api.app import create_app
from api.runtime.settings import ApiSettings
from storage.postgres.engine import connection_string, open_engine
from storage.schema.migrate import upgrade
from tests.processes.server_folder import server_folder
from tests.repetition import LONG_PROFILE
from tests.world import World

# The developer's own service is never touched. Nothing of ours reads these when it is imported.
for _name in [name for name in os.environ if name.startswith("SERVICE_") and name[8:] != "PG_BIN"]:
    del os.environ[_name]

# The lakes of the tests' stores, each in a folder of its own; and no service runs on this data.
_LAKE = tempfile.TemporaryDirectory(prefix="deploy-reward-lake-")
os.environ["SERVICE_LAKE"] = _LAKE.name
_DATA = tempfile.TemporaryDirectory(prefix="deploy-reward-data-")
os.environ["SERVICE_DATA_DIR"] = _DATA.name

# A busy machine is no fault of an example. `make deep` asks for the long profile.
_PATIENT = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("gate", _PATIENT, max_examples=25)
hypothesis.settings.register_profile(LONG_PROFILE, _PATIENT, max_examples=500)
hypothesis.settings.load_profile("gate")

_TEMPLATE = "migrated"

# While tests are collected nearly all that is made stays: to look through it took a seventh.
gc.disable()


def pytest_collection_finish() -> None:
    """Lets the collector of garbage look at what tests make alone: it took 7 % of their CPU."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Lets modules be taken apart at the end as ever: DuckDB's tells of objects that stay."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The address of a PostgreSQL server that lives as long as the tests (of a worker)."""
    with server_folder() as folder, EmbeddedPostgres(folder / "data") as postgres:
        yield postgres.url
        if administrator := _ADMINISTRATORS.pop(postgres.url, None):
            administrator.close()


def _database_url(server: str, database: str) -> str:
    return make_url(server).set(database=database).render_as_string(hide_password=False)


# To connect takes a tenth of what a store takes, and each store is made and dropped.
_ADMINISTRATORS: dict[str, psycopg.Connection] = {}


def _administer(server: str, statement: str, **names: str) -> None:
    identifiers = {name: sql.Identifier(value) for name, value in names.items()}
    if server not in _ADMINISTRATORS:
        _ADMINISTRATORS[server] = psycopg.connect(connection_string(server), autocommit=True)
    _ADMINISTRATORS[server].execute(sql.SQL(statement).format(**identifiers), prepare=False)


@pytest.fixture(scope="session")
def migrated_template(postgres_url) -> str:
    """The name of a migrated database that each test's store is copied from."""
    # Hundreds of databases come and go: only a power failure could tell the difference.
    _administer(postgres_url, "ALTER SYSTEM SET fsync = off")
    _administer(postgres_url, "SELECT pg_reload_conf()")
    _administer(postgres_url, "CREATE DATABASE {name}", name=_TEMPLATE)
    upgrade(_database_url(postgres_url, _TEMPLATE))
    return _TEMPLATE


@dataclass(frozen=True, kw_only=True)
class Store:
    """A migrated, empty store of a test."""

    url: str
    engine: Engine


@contextmanager
def filled_model(server: str, model: str, fill: Callable[[Store], Any]) -> Generator[Any]:
    """Yields the model of a store that is filled once, for `fresh_store`; and what `fill` gave."""
    with fresh_store(server, model) as store:
        filled = fill(store)
        # Nobody may be connected to a database that is copied.
        store.engine.dispose()
        yield make_url(store.url).database, filled


@contextmanager
def fresh_store(server: str, model: str) -> Generator[Store]:
    """A store like the model, dropped at the end."""
    name = f"test_{secrets.token_hex(6)}"
    # Of a few megabytes, which a copy of files takes less for than a log of their pages.
    statement = "CREATE DATABASE {name} TEMPLATE {model} STRATEGY file_copy"
    _administer(server, statement, name=name, model=model)
    engine = open_engine(_database_url(server, name))
    before, os.environ["SERVICE_LAKE"] = os.environ["SERVICE_LAKE"], f"{_LAKE.name}/{name}"
    try:
        yield Store(url=_database_url(server, name), engine=engine)
    finally:
        os.environ["SERVICE_LAKE"] = before
        engine.dispose()
        _administer(server, "DROP DATABASE {name} WITH (FORCE)", name=name)


@pytest.fixture
def store(postgres_url, migrated_template) -> Iterator[Store]:
    with fresh_store(postgres_url, migrated_template) as fresh:
        yield fresh


@contextmanager
def serving_store(store: Store) -> Generator[TestClient]:
    secret = b"a secret of the tests, long enough"
    settings = ApiSettings(database_url=store.url, secret=secret, checklist_seconds=0)
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def service(request) -> Iterator[World]:
    """The running API, and a project named `shop`; or a tenant, where a module shares its store."""
    if (mark := request.node.get_closest_marker("shared_store")) is not None:
        tenant = request.getfixturevalue("tenant")
        tenant.settings(**mark.kwargs)
        yield tenant
        return
    store = request.getfixturevalue("store")
    with serving_store(store) as client:
        yield World.new(store, client)


@pytest.fixture(scope="module")
def _shared(postgres_url, migrated_template) -> Iterator[tuple[Store, TestClient]]:
    with fresh_store(postgres_url, migrated_template) as store, serving_store(store) as client:
        yield store, client


@pytest.fixture
def tenant(_shared) -> World:
    """A project of the test's own in a running API, whose other tenants are the module's tests.

    A store is made in a tenth of a second, a project in a hundredth of a second.
    """
    store, client = _shared
    return World.new(store, client, f"shop {secrets.token_hex(6)}")
