"""The server as the process that an agent starts."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, cycle, islice, product
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from jsonschema import Draft202012Validator, validate

from mcp_server.server import run
from tests.mcp_server.contracts import HANDSHAKE, QUEUED, WAITING, listed_row
from tests.processes.api_process import PATIENCE_SECONDS, eventually
from tests.stores.example import example_document

KEY = "rk_Q7hZ2canaryCanaryCanaryCanaryCanary0123456"
# The promises: a failure is reported in time, and the process ends in time.
LONGEST_SECONDS = 10
END_SECONDS = 2
MODULE = [sys.executable, "-m", "mcp_server"]
COMMAND = [sys.executable, "-c", "from cli.processes.mcp import mcp; mcp()"]
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def started(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def seconds_without_a_core(pid: int) -> float:
    """How long others had the cores that a process's main thread could have run on, so far."""
    # Its second number, in nanoseconds: docs.kernel.org/scheduler/sched-stats.html
    answer = Path(f"/proc/{pid}/schedstat")
    return int(answer.read_text().split()[1]) / 1e9 if answer.exists() else 0.0


class Session:
    """A client of a few lines: JSON-RPC over the process's pipes, line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def request(self, number: int, method: str, params: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.write(json.dumps(message))

    def message(
        self, *, since: float | None = None, within: float = LONGEST_SECONDS
    ) -> dict[str, Any]:
        """The next line, which comes within the promised time, and is JSON-RPC."""
        waited = 0.0 if since is None else monotonic() - since
        line = self._lines.get(timeout=max(0.0, within - waited))
        assert line is not None, "stdout has ended"
        assert KEY not in line
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    def asked(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.request(number, method, params)
        answer = self.message()
        assert answer["id"] == number
        return answer

    def opened(self) -> dict[str, Any]:
        self.write(json.dumps(HANDSHAKE))
        # Nothing is promised of the start, which loads its libraries first.
        answer = self.message(within=PATIENCE_SECONDS)
        self.write(json.dumps(INITIALIZED))
        return answer["result"]

    def call(self, number: int, tool: str, arguments: dict[str, Any], **meta: Any) -> None:
        params = {"name": tool, "arguments": arguments} | ({"_meta": meta} if meta else {})
        self.request(number, "tools/call", params)

    def called(self, number: int, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.call(number, tool, arguments)
        answer = self.message()
        assert answer["id"] == number
        return answer["result"]

    def ended(self) -> tuple[list[dict[str, Any]], str]:
        """Close stdin: what stdout still held, and stderr, once the process has ended in time."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        began, waited = monotonic(), seconds_without_a_core(self.process.pid)
        self.process.stdin.close()
        # Left a zombie, of which the kernel still tells.
        ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
        eventually(lambda: os.waitid(os.P_PID, self.process.pid, ended))
        took, waited = monotonic() - began, seconds_without_a_core(self.process.pid) - waited
        assert self.process.wait() == 0
        assert took - waited <= END_SECONDS
        self._reader.join()
        rest = list(iter(self._lines.get, None))
        assert KEY not in "".join(rest)
        stderr = self.process.stderr.read()
        assert KEY not in stderr
        return [json.loads(line) for line in rest], stderr

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def launched(service) -> Iterator[Callable[[list[str]], Session]]:
    sessions: list[Session] = []

    def launch(command: list[str]) -> Session:
        environment = {"SERVICE_API_URL": service.url, "SERVICE_PROJECT_KEY": KEY}
        sessions.append(Session(started(command, environment)))
        return sessions[-1]

    yield launch
    for session in sessions:
        session.close()


@pytest.mark.requirement(
    "mcp.name", "mcp.stdio", "service.two-interfaces", "base.reward", "key.project.variable"
)
@pytest.mark.process
@pytest.mark.parametrize(
    "command", [MODULE, COMMAND], ids=["python -m mcp_server", "deploy-reward mcp"]
)
def test_a_process_serves_a_verdict_and_errors_on_nothing_but_json_rpc(
    launched, service, command
) -> None:
    service.answers_with("/v1/reward/exp_1", WAITING)
    service.problem("/v1/reward/exp_2", 404, "There is no such experiment.")
    service.answers_with("/v1/reward/exp_3", "<html>", status=500)
    session = launched(command)

    assert session.opened()["serverInfo"]["name"] == "service-reward"
    served = session.called(1, "get_verdict", {"experiment_id": "exp_1"})
    assert served["structuredContent"] == WAITING
    assert [block["type"] for block in served["content"]] == ["text", "text"]
    for number, experiment in enumerate(["exp_2", "exp_3"], start=2):
        assert session.called(number, "get_verdict", {"experiment_id": experiment})["isError"]

    assert session.ended() == ([], "")


@pytest.mark.requirement("service.two-interfaces")
@pytest.mark.process
def test_a_client_of_nobody_s_library_lists_calls_and_errs(launched, service) -> None:
    evidence = example_document(sessions={"accumulated": 9, "required": 20})
    listed = listed_row(treatment_commit="4f2a9c1d", metric="order")
    answers = {
        "register": {"experiment_id": "exp_1"},
        "exp_1": WAITING,
        "exp_1/evidence": evidence,
        "checklist": [{"check": "events", "ok": False, "seen": "None.", "fix": "Send one."}],
    }
    for path, body in answers.items():
        service.answers_with(f"/v1/reward/{path}", body)
    service.answers_with("/v1/places", QUEUED)
    path = "/v1/reward?status=open&limit=5"
    service.answers_with(path, {"experiments": [listed], "next_cursor": None})
    each = {"experiment_id": "exp_1"}
    canary = {"sessions_per_day": 1000, "rate": 0.05, "share": 0.1}
    session = launched(MODULE)
    session.opened()

    tools = session.asked(1, "tools/list", {})["result"]["tools"]
    schemas = {tool["name"]: tool for tool in tools}
    assert {"register_experiment", "get_verdict", "subscribe"} <= schemas.keys()
    for number, (name, schema) in enumerate(schemas.items(), start=2):
        for part in ("inputSchema", "outputSchema"):
            Draft202012Validator.check_schema(schema[part])
        required = schema["inputSchema"].get("required", [])
        given = {name: {**each, **canary}[name] for name in required}
        validate(given, schema["inputSchema"], Draft202012Validator)
        result = session.called(number, name, given)
        validate(result["structuredContent"], schema["outputSchema"], Draft202012Validator)
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]

    # Progress comes before the answer that it belongs to, with the token that was sent.
    session.call(20, "subscribe", each, progressToken="a token")
    report = session.message()
    assert (report["method"], report["params"]["progressToken"]) == (
        "notifications/progress",
        "a token",
    )
    assert (report["params"]["progress"], report["params"]["total"]) == (9, 20)
    assert session.message()["id"] == 20

    assert session.called(21, "get_verdict", {"experiment": "exp_1"})["isError"]
    assert session.asked(22, "no/such/method", {})["error"]["code"] == -32601
    # What is no JSON-RPC gets no answer, and spoils none.
    for line in ("no JSON", "[]", "{}", f'{{"key": "{KEY}"'):
        session.write(line)
    assert session.asked(23, "ping", {})["result"] == {}
    assert session.ended() == ([], "")


# The server as it is, except that it gives a silent service up sooner.
IMPATIENT = """
import os
from mcp_server.address import Address
from mcp_server.reward_api import RewardApi
from mcp_server.server import reward_server
address = Address.from_environment(os.environ)
reward_server(RewardApi(address, answer_seconds=3)).run("stdio")
"""
# What the service is, and what of it each failure tells.
CONDITIONS = {
    "slow": "no answer within",
    "up": None,
    "failing": "failed with status 500",
    "html": "no JSON of the service",
    "redirect": "redirects",
    "refusing": "[key]",
}


def in_every_condition(service: Any) -> None:
    """Answer for an experiment of each condition's name; who can, echoes the key."""
    bodies = {"": WAITING, "/evidence": example_document()}
    for step, body in bodies.items():
        service.answers_with(f"/v1/reward/up{step}", body)
        service.silent_at.add(f"/v1/reward/slow{step}")
        service.answers_with(f"/v1/reward/failing{step}", f"Traceback: {KEY}", status=500)
        service.answers_with(f"/v1/reward/html{step}", f"<html><h1>{KEY}</h1></html>")
        headers = {"Location": f"{service.url}/{KEY}?{KEY}"}
        service.answers_with(f"/v1/reward/redirect{step}", "", status=302, headers=headers)
        service.problem(f"/v1/reward/refusing{step}", 401, f"Unknown key {KEY}.")


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "times"),
    [
        pytest.param([sys.executable, "-c", IMPATIENT], 1, id="100 calls"),
        pytest.param(
            MODULE, 10, id="1000 calls", marks=[pytest.mark.deep, pytest.mark.timeout(3600)]
        ),
    ],
)
def test_whatever_the_service_does_each_call_is_answered_in_time_and_the_key_never_shown(
    launched, service, command, times
) -> None:
    in_every_condition(service)
    session = launched(command)
    session.opened()
    numbers = count(1)
    tools = ("get_verdict", "subscribe", "explain")
    pending: dict[int, tuple[str | None, float]] = {}

    def settle(*, left: int) -> None:
        while len(pending) > left:
            _, since = next(iter(pending.values()))
            answer = session.message(since=since)
            said, _ = pending.pop(answer["id"])
            assert answer["result"]["isError"] == (said is not None)
            assert said is None or said in answer["result"]["content"][0]["text"]

    for _ in range(times):
        for condition, said in CONDITIONS.items():
            for tool, _ in product(tools, range(5)):
                number = next(numbers)
                pending[number] = (said, monotonic())
                session.call(number, tool, {"experiment_id": condition})
            # Those that wait for the slow answer hold up nobody else.
            settle(left=15)
        settle(left=0)

    with service.down():
        for tool in islice(cycle(tools), 10 * times):
            result = session.called(next(numbers), tool, {"experiment_id": "up"})
            assert result["isError"]
            assert "No connection" in result["content"][0]["text"]
    assert next(numbers) == 100 * times + 1
    assert session.ended() == ([], "")


@pytest.mark.process
def test_a_process_ends_when_stdin_closes_though_calls_are_waiting(launched, service) -> None:
    service.silent = True
    session = launched(COMMAND)
    session.opened()
    for number in range(5):
        session.call(number, "set_up", {})
    eventually(lambda: len(service.requests) == 5)
    rest, stderr = session.ended()
    assert all(message["jsonrpc"] == "2.0" for message in rest)
    assert stderr == ""


@pytest.mark.requirement("mcp.environment")
@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "SERVICE_API_URL is not set"),
        ({"SERVICE_API_URL": "http://127.0.0.1:8000"}, "SERVICE_PROJECT_KEY is not set"),
        ({"SERVICE_PROJECT_KEY": KEY}, "SERVICE_API_URL is not set"),
        ({"SERVICE_PROJECT_KEY": KEY, "SERVICE_API_URL": "localhost:8000"}, "SERVICE_API_URL"),
        ({"SERVICE_PROJECT_KEY": KEY, "SERVICE_API_URL": "http://[::1"}, "SERVICE_API_URL"),
        ({"SERVICE_PROJECT_KEY": KEY, "SERVICE_API_URL": "http://a:b@c"}, "credentials"),
        (
            {"SERVICE_PROJECT_KEY": KEY + "\nX: y", "SERVICE_API_URL": "http://127.0.0.1:8000"},
            "SERVICE_PROJECT_KEY",
        ),
    ],
    ids=[
        "nothing",
        "no key",
        "no address",
        "address without a scheme",
        "half an address",
        "credentials",
        "key with a line break",
    ],
)
def test_an_unusable_environment_ends_the_start_with_one_line(
    environment, said, monkeypatch, capfd
) -> None:
    for name in ("SERVICE_API_URL", "SERVICE_PROJECT_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        run()
    require_one_line(ended.value.code, *capfd.readouterr(), said)


@pytest.mark.requirement("mcp.environment")
@pytest.mark.process
def test_the_process_ends_as_its_environment_is_not_usable() -> None:
    process = started(MODULE, {"SERVICE_API_URL": "http://127.0.0.1:8000"})
    stdout, stderr = process.communicate(timeout=60)
    require_one_line(process.returncode, stdout, stderr, "SERVICE_PROJECT_KEY is not set")


def require_one_line(code: object, stdout: str, stderr: str, said: str) -> None:
    assert code == 2
    assert stdout == ""
    assert len(stderr.splitlines()) == 1
    assert said in stderr
    assert KEY not in stderr
