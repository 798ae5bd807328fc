"""Worker processes on an address, and how they end."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import psycopg
import pytest

from storage.postgres.engine import connection_string, session_options
from storage.tenants.keys import KeyKind
from tests.clients.wire import Wire, get, post
from tests.processes.api_process import ApiProcess, eventually

pytestmark = pytest.mark.process

EVENT = b'{"event": "a", "session_id": "s"}'


@pytest.fixture
def workers() -> int:
    return 2


@pytest.fixture
def api(safe_postgres, tmp_path, workers) -> Iterator[ApiProcess]:
    with ApiProcess(
        log=tmp_path / "api.log", database_url=safe_postgres.url, workers=workers
    ) as api:
        api.start()
        yield api


@pytest.fixture
def key(safe_project) -> str:
    return f"X-Service-Project-Key: {safe_project.keys[KeyKind.PUBLIC]}"


def counted(api: ApiProcess) -> int:
    """How many requests to an unknown path all workers together have answered."""
    answer = httpx2.get(f"{api.url}/metrics").text
    result = re.search(
        r'^deploy_reward_requests_total{[^}]*status="404"} (\S+)$', answer, re.MULTILINE
    )
    return int(float(result[1])) if result else 0


def ask(api: ApiProcess, times: int) -> None:
    for _ in range(times):
        # A connection each, so that both workers get some.
        with Wire(api.port) as wire:
            assert wire.send(get("/nowhere")).answer().status == 404


@pytest.mark.nightly
def test_metrics_add_up_over_workers_also_after_one_died(api) -> None:
    ask(api, 20)
    assert {counted(api) for _ in range(8)} == {20}
    api.kill_worker(0)
    eventually(api.answers)
    assert {counted(api) for _ in range(8)} == {20}
    ask(api, 10)
    assert {counted(api) for _ in range(8)} == {30}


@pytest.mark.parametrize("workers", [1])
@pytest.mark.nightly
def test_who_calls_while_the_only_worker_is_dead_waits_and_is_answered(api) -> None:
    (worker,) = api.worker_pids()
    os.kill(worker, signal.SIGKILL)
    # No call is refused in the meantime.
    eventually(lambda: worker not in api.worker_pids())
    with Wire(api.port) as wire:
        assert wire.send(get("/healthz")).answer().status == 200
    assert len(api.worker_pids()) == 1


@pytest.mark.nightly
def test_workers_end_with_the_process_that_started_them(api) -> None:
    workers = api.worker_pids()
    assert api.process is not None
    api.process.kill()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.deep), 2])
def test_who_waits_to_be_let_in_when_the_server_is_stopped_is_answered(api, key) -> None:
    servers = api.worker_pids()
    with ExitStack() as stack:
        kept = stack.enter_context(Wire(api.port))
        assert kept.send(get("/healthz")).answer().status == 200
        for pid in servers:
            os.kill(pid, signal.SIGSTOP)
        # The kernel shakes hands and keeps what they send; nobody has accepted them.
        waiting = [stack.enter_context(Wire(api.port)) for _ in range(20)]
        for wire in waiting:
            wire.send(post("/v1/events", EVENT, key))
        kept.send(post("/v1/events", EVENT, key))
        # No answer can be ready before the stop is known.
        with psycopg.connect(
            connection_string(api.database_url), options=session_options()
        ) as store:
            store.execute("LOCK TABLE runtime_events")
            asked = api.ask_to_stop()
            for pid in servers:
                os.kill(pid, signal.SIGCONT)
            eventually(lambda: api.log.read_text().count("stopping") == len(servers))
        for wire in [*waiting, kept]:
            answer = wire.answer()
            assert (answer.status, answer.headers["connection"]) == (202, "close")
            assert wire.ended()
    api.stopped(asked)


@pytest.mark.parametrize("workers", [1])
@pytest.mark.nightly
def test_a_request_that_comes_while_the_server_stops_is_the_last_on_its_connection(api) -> None:
    with Wire(api.port) as wire:
        assert wire.send(get("/healthz")).answer().status == 200
        asked = api.ask_to_stop()
        eventually(lambda: "stopping" in api.log.read_text())
        answer = wire.send(get("/healthz")).answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert wire.ended()
        with pytest.raises(ConnectionRefusedError):
            Wire(api.port)
    api.stopped(asked)


@pytest.mark.parametrize("workers", [1])
@pytest.mark.nightly
def test_clients_that_do_nothing_do_not_hold_the_server_up(api, key) -> None:
    with Wire(api.port) as silent, Wire(api.port) as begun, Wire(api.port) as owed:
        begun.send("GET /he")
        owed.send(post("/v1/events", EVENT[:-1], key, length=len(EVENT)))
        eventually(lambda: httpx2.get(f"{api.url}/readyz").is_success)
        asked = api.ask_to_stop()
        assert silent.ended()
        assert begun.ended()
        assert owed.answer().is_problem(503, "stopping")
        assert owed.ended()
    api.stopped(asked)
    assert "Traceback" not in api.log.read_text()


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.deep), 2])
def test_a_port_that_is_taken_is_said_in_one_line(safe_postgres, workers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        ended = subprocess.run(
            [
                *(sys.executable, "-c"),
                f"from api.server.process import serve; serve(port={port}, workers={workers})",
            ],
            env={
                **os.environ,
                "SERVICE_DATABASE_URL": safe_postgres.url,
                "SERVICE_SECRET": "a secret of the tests, long enough",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 3
    assert [line for line in ended.stderr.splitlines() if "ERROR" in line and str(port) in line]
    assert "Traceback" not in ended.stderr
