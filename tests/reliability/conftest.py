"""A PostgreSQL of each test's own that syncs to disk, a shop in it, and the API before it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from own_postgres.server import EmbeddedPostgres

from tests.clients.shop import Shop, open_shop
from tests.processes.api_process import ApiProcess
from tests.processes.nginx import nginx_in_front
from tests.processes.server_folder import migrated_server, server_folder
from tests.repetition import also_nightly


@pytest.fixture
def folder() -> Iterator[Path]:
    with server_folder() as folder:
        yield folder


@pytest.fixture
def postgres(folder) -> Iterator[EmbeddedPostgres]:
    with migrated_server(folder) as postgres:
        yield postgres


@pytest.fixture
def shop(postgres) -> Iterator[Shop]:
    shop = open_shop(postgres.url)
    yield shop
    shop.engine.dispose()


@pytest.fixture
def workers() -> int:
    """How many processes serve; a test that needs another number says so."""
    return 1


@pytest.fixture
def api(folder, shop, workers, monkeypatch) -> Iterator[ApiProcess]:
    # Readers wait for whatever else a test does, and are not to be hung up on.
    monkeypatch.setenv("SERVICE_IDLE_SECONDS", "600")
    with ApiProcess(log=folder / "api.log", database_url=shop.url, workers=workers) as api:
        api.start()
        yield api


@pytest.fixture(params=also_nightly(["bare"], ["behind nginx"]))
def url(request, api, tmp_path) -> Iterator[str]:
    """The address of an API, or of nginx in front of it."""
    if request.param == "bare":
        yield api.url
    else:
        with nginx_in_front(tmp_path, api) as port:
            yield f"http://127.0.0.1:{port}"
