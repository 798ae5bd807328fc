"""Rate limits counted in a Redis: shared by processes, and never in the way of an event."""

import asyncio
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from api.runtime.settings import ApiSettings
from storage.tenants.projects import create_project
from tests.processes.api_process import eventually, port_of_our_own
from tests.world import World

REDIS = shutil.which("redis-server")
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(REDIS is None, reason="no redis-server on this machine"),
]
EVENT = {"event": "a", "session_id": "s"}


class Redis:
    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        assert REDIS is not None
        command = [REDIS, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self.process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        eventually(self.answers)

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def signalled(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        if number is signal.SIGKILL:
            self.process.wait()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def redis(tmp_path) -> Iterator[Redis]:
    pytest.importorskip("redis", reason="an extra of the package")
    with port_of_our_own() as port:
        redis = Redis(tmp_path, port)
        redis.start()
        yield redis
        redis.end()


@pytest.fixture
def two(store, redis) -> Iterator[list[World]]:
    """The API in two processes, on the same store and Redis."""
    with store.engine.begin() as connection:
        project = create_project(connection, "shop")
    settings = ApiSettings(
        database_url=store.url, secret=b"a secret of the tests, long enough", redis_url=redis.url
    )
    with TestClient(create_app(settings)) as each, TestClient(create_app(settings)) as other:
        yield [World(store=store, client=client, project=project) for client in (each, other)]


def statuses(services: list[World], requests: int) -> list[int]:
    return [
        services[number % len(services)].post("/v1/events", EVENT).status_code
        for number in range(requests)
    ]


def test_processes_share_one_count(two) -> None:
    two[0].settings(rate_limits={"per_key": 10, "per_address": 1000})
    # Their minute begins with the first request.
    assert statuses(two, 14) == [202] * 10 + [429] * 4
    answer = two[0].post("/v1/events", EVENT)
    assert 1 <= int(answer.headers["Retry-After"]) <= 60


def test_a_redis_that_dies_and_comes_back_costs_no_event(two, redis) -> None:
    two[0].settings(rate_limits={"per_key": 10_000, "per_address": 10_000})
    assert statuses(two, 4) == [202] * 4
    redis.signalled(signal.SIGKILL)
    assert statuses(two, 40) == [202] * 40
    redis.start()
    assert statuses(two, 4) == [202] * 4


def test_a_redis_that_hangs_holds_up_no_event_for_long(two, redis) -> None:
    two[0].settings(rate_limits={"per_key": 10, "per_address": 10})
    assert statuses(two, 2) == [202] * 2
    redis.signalled(signal.SIGSTOP)
    try:
        assert asyncio.run(asyncio.wait_for(_posted(two), timeout=30)) == [202] * 2
    finally:
        redis.signalled(signal.SIGCONT)


async def _posted(two: list[World]) -> list[int]:
    return await asyncio.to_thread(statuses, two, 2)
