"""What nginx, as we ship it, holds for the API behind it."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from storage.tenants.keys import KeyKind
from tests.clients.wire import Wire, post
from tests.processes.api_process import ApiProcess
from tests.processes.nginx import nginx_in_front

pytestmark = pytest.mark.process

HALF_OPEN = 300
EVENT = b'{"event": "a", "session_id": "s"}'


@pytest.fixture
def key(safe_project) -> str:
    return f"X-Service-Project-Key: {safe_project.keys[KeyKind.PUBLIC]}"


@pytest.fixture
def api(safe_postgres, tmp_path, monkeypatch) -> Iterator[ApiProcess]:
    monkeypatch.setenv("SERVICE_HTTP_PARSER", "httptools")
    monkeypatch.setenv("SERVICE_IDLE_SECONDS", "75")
    with ApiProcess(log=tmp_path / "api.log", database_url=safe_postgres.url) as api:
        api.start()
        yield api


@pytest.mark.parametrize("limit", ["1s", pytest.param("10s", marks=pytest.mark.deep)])
def test_half_open_connections_are_dropped_and_others_served_meanwhile(
    api, tmp_path, key, limit
) -> None:
    event = post("/v1/events", EVENT, key)
    with ExitStack() as stack:
        port = stack.enter_context(nginx_in_front(tmp_path, api, {"10s;": f"{limit};"}))
        begun = time.monotonic()
        half_open = [
            stack.enter_context(Wire(port)).send(start)
            for start in (b"", b"P", event[:60], event[:-1])
            for _ in range(HALF_OPEN // 4)
        ]
        statuses: set[int] = set()
        while not all(wire.hears(seconds=0) for wire in half_open):
            with Wire(port) as healthy:
                statuses.add(healthy.send(event).answer().status)
        assert statuses == {202}
        assert time.monotonic() - begun < 15


@pytest.mark.nightly
def test_a_client_that_comes_while_the_api_is_away_is_told_to_come_again(
    api, tmp_path, key
) -> None:
    with nginx_in_front(tmp_path, api) as port, Wire(port) as wire:
        assert wire.send(post("/v1/events", EVENT, key)).answer().status == 202
        api.kill()
        answer = wire.send(post("/v1/events", EVENT, key)).answer()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        api.start()
        assert wire.send(post("/v1/events", EVENT, key)).answer().status == 202
