"""Real processes: what was acknowledged is there after every process was killed."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import Engine, select

from storage.embedded import EmbeddedPostgres
from storage.engine import open_engine
from storage.keys import KeyKind
from storage.migrate import upgrade
from storage.projects import create_project
from storage.tables import deploys, revenue_events, runtime_events

pytestmark = pytest.mark.process

SERVE = "from api.server import serve; serve(port=0)"


def eventually(condition: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def kill(postgres: EmbeddedPostgres) -> None:
    """Kills the server and waits for its end: until then `start` rightly leaves it alone."""
    assert postgres.process is not None
    postgres.process.kill()
    postgres.process.wait()


@dataclass(kw_only=True)
class Api:
    """The API as a process of its own."""

    folder: Path
    database_url: str
    process: subprocess.Popen[bytes] = field(init=False)
    url: str = field(init=False)

    @property
    def log(self) -> Path:
        return self.folder / "api.log"

    def start(self) -> None:
        environment = {
            **os.environ,
            "SERVICE_DATABASE_URL": self.database_url,
            "SERVICE_SECRET": "a secret of the tests",
        }
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVE], env=environment, stderr=output, stdout=output
            )
        listening = re.compile(r"running on (http://[\d.]+:\d+)")
        self.url = eventually(lambda: listening.search(self.log.read_text()))[1]

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


@pytest.fixture
def folder() -> Iterator[Path]:
    # pytest's tmp_path can be entered by its owner alone, and root's server runs as nobody.
    folder = Path(tempfile.mkdtemp(prefix="deploy-reward-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def postgres(folder: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(folder / "data") as postgres:
        upgrade(postgres.url)
        yield postgres


@pytest.fixture
def engine(postgres: EmbeddedPostgres) -> Iterator[Engine]:
    engine = open_engine(postgres.url)
    yield engine
    engine.dispose()


@pytest.fixture
def keys(engine: Engine) -> dict[KeyKind, str]:
    with engine.begin() as connection:
        return create_project(connection, "shop").keys


@pytest.fixture
def api(folder: Path, postgres: EmbeddedPostgres) -> Iterator[Api]:
    api = Api(folder=folder, database_url=postgres.url)
    api.start()
    yield api
    if api.process.poll() is None:
        api.end(signal.SIGKILL)


class Client(threading.Thread):
    """Sends one thing after another, and remembers what was acknowledged and what was not."""

    def __init__(self, api: Api, key: str, path: str, body: Callable[[str], Any]) -> None:
        super().__init__()
        self.api, self.key, self.path, self.body = api, key, path, body
        self.sent: list[str] = []
        self.acknowledged: list[str] = []
        self.statuses: set[int] = set()
        self.ended = threading.Event()

    def run(self) -> None:
        with httpx2.Client(headers={"X-Service-Project-Key": self.key}, timeout=10) as client:
            while not self.ended.is_set():
                name = f"{id(self):x}"[-6:] + f"{len(self.sent):06x}"
                self.sent.append(name)
                try:
                    answer = client.post(self.api.url + self.path, json=self.body(name))
                except httpx2.HTTPError:
                    # Nobody listens: asking at full speed would starve those who start again.
                    self.ended.wait(0.05)
                    continue
                self.statuses.add(answer.status_code)
                if answer.is_success:
                    self.acknowledged.append(name)
                else:
                    self.ended.wait(0.05)

    def end(self) -> None:
        self.ended.set()
        self.join()


@pytest.fixture
def clients(api: Api, keys: dict[KeyKind, str]) -> Iterator[list[Client]]:
    def event(name: str) -> dict[str, Any]:
        return {"event": "a", "session_id": name}

    def deploy(name: str) -> dict[str, Any]:
        return {"commit": {"sha": name}, "environment": name}

    def revenue(name: str) -> dict[str, Any]:
        return {
            "event": "activation",
            "occurred_at": "2026-01-31T12:00:00Z",
            "user_ref": name,
            "idempotency_key": name,
        }

    write = keys[KeyKind.WRITE]
    clients = [
        Client(api, keys[KeyKind.PUBLIC], "/v1/events", event),
        Client(api, keys[KeyKind.PUBLIC], "/v1/events", event),
        Client(api, write, "/v1/deploys", deploy),
        Client(api, write, "/v1/revenue/events", revenue),
    ]
    for client in clients:
        client.start()
    yield clients
    for client in clients:
        client.end()


def stored(engine: Engine) -> set[str]:
    with engine.begin() as connection:
        return {
            name
            for column in (
                runtime_events.c.session_id,
                deploys.c.commit_sha,
                revenue_events.c.idempotency_key,
            )
            for name in connection.execute(select(column)).scalars()
        }


def test_what_was_acknowledged_survives_a_kill_of_every_process(
    api: Api, postgres: EmbeddedPostgres, engine: Engine, clients: list[Client]
) -> None:
    for _ in range(3):
        before = [len(client.acknowledged) for client in clients]
        eventually(
            lambda seen=before: all(
                len(client.acknowledged) >= count + 5
                for client, count in zip(clients, seen, strict=True)
            )
        )
        kill(postgres)
        api.end(signal.SIGKILL)
        engine.dispose()
        postgres.start()
        api.start()
    for client in clients:
        client.end()
    known = stored(engine)
    assert {name for client in clients for name in client.acknowledged} <= known
    assert known <= {name for client in clients for name in client.sent}
    assert {status for client in clients for status in client.statuses} <= {200, 201, 202, 503}


def test_the_api_outlives_its_store_and_answers_again(
    postgres: EmbeddedPostgres, engine: Engine, clients: list[Client]
) -> None:
    eventually(lambda: all(client.acknowledged for client in clients))
    kill(postgres)
    eventually(lambda: all(503 in client.statuses for client in clients))
    engine.dispose()
    postgres.start()
    before = [len(client.acknowledged) for client in clients]
    eventually(
        lambda: all(
            len(client.acknowledged) > count for client, count in zip(clients, before, strict=True)
        )
    )
    for client in clients:
        client.end()
    assert {name for client in clients for name in client.acknowledged} <= stored(engine)
    assert {status for client in clients for status in client.statuses} <= {200, 201, 202, 503}


def test_a_stop_in_order_loses_nothing_and_leaves_no_query_in_the_log(
    api: Api, keys: dict[KeyKind, str], engine: Engine, clients: list[Client]
) -> None:
    key = keys[KeyKind.PUBLIC]
    event = {"event": "a", "session_id": "last", "user_ref": "canary-user"}
    answer = httpx2.post(f"{api.url}/v1/events?key={key}", json=event)
    assert answer.status_code == 202
    clients[0].sent.append("last")
    eventually(lambda: all(client.acknowledged for client in clients))
    assert api.end(signal.SIGTERM) in (0, -signal.SIGTERM)
    for client in clients:
        client.end()
    acknowledged = {name for client in clients for name in client.acknowledged}
    assert acknowledged | {"last"} <= stored(engine)
    log = api.log.read_text()
    assert "POST /v1/events 202" in log
    assert [word for word in (*keys.values(), "canary-user", "?") if word in log] == []
