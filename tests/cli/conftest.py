"""Commands against a running API, and against the store alone."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from api.app import create_app
from api.runtime.settings import ApiSettings
from cli.main import main
from storage.tenants.keys import KeyKind
from tests.processes.served import Served


@pytest.fixture
def command() -> Callable[..., Result]:
    def run(*words: Any) -> Result:
        return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)

    return run


@contextmanager
def serving(service: Any, port: int = 0, *, checklist_seconds: float = 0) -> Generator[str]:
    """The address of the service's API behind a port, for as long as the context lasts."""
    secret, url = b"a secret of the tests, long enough", service.store.url
    settings = ApiSettings(database_url=url, secret=secret, checklist_seconds=checklist_seconds)
    with Served(app=create_app(settings), port=port) as served:
        yield served.url


@pytest.fixture
def served(service, monkeypatch) -> Iterator[Any]:
    """The service behind a port, its address and project key set, and no store to be had."""
    with serving(service) as url:
        monkeypatch.setenv("SERVICE_API_URL", f"{url}/")
        monkeypatch.setenv("SERVICE_PROJECT_KEY", service.project.keys[KeyKind.PROJECT])
        monkeypatch.setenv("SERVICE_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
        yield service


@pytest.fixture
def stored(service, monkeypatch) -> Any:
    """The service's store, named to the commands, and neither an address nor a key of an API."""
    monkeypatch.delenv("SERVICE_API_URL", raising=False)
    monkeypatch.delenv("SERVICE_PROJECT_KEY", raising=False)
    monkeypatch.setenv("SERVICE_DATABASE_URL", service.store.url)
    return service
