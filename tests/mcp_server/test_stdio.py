"""The server as the process that an agent starts."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

KEY = "rk_Q7hZ2canaryCanaryCanaryCanaryCanary0123456"
MODULE = [sys.executable, "-m", "mcp_server"]
COMMAND = [sys.executable, "-c", "from cli.mcp import mcp; mcp()"]
HANDSHAKE = [
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "0"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


def started(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Session:
    """Raw JSON-RPC over the process's pipes, so that every line of stdout is seen."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message = json.loads(self.process.stdout.readline())
        assert message["jsonrpc"] == "2.0"
        return message

    def opened(self) -> dict[str, Any]:
        self.send(HANDSHAKE[0])
        answer = self.answer()
        self.send(HANDSHAKE[1])
        return answer["result"]

    def called(self, number: int, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        answer = self.answer()
        assert answer["id"] == number
        return answer["result"]

    def ended(self) -> tuple[str, str]:
        """Close stdin; what stdout and stderr still held."""
        return self.process.communicate(timeout=20)


@pytest.fixture(params=[MODULE, COMMAND], ids=["python -m mcp_server", "deploy-reward mcp"])
def session(request: pytest.FixtureRequest, service: Any) -> Iterator[Session]:
    environment = {"SERVICE_API_URL": service.url, "SERVICE_PROJECT_KEY": KEY}
    process = started(request.param, environment)
    yield Session(process)
    if process.poll() is None:
        process.kill()
        process.communicate()


@pytest.mark.requirement(
    "mcp.stdio", "service.two-interfaces", "base.reward", "key.project.variable"
)
@pytest.mark.process
def test_a_process_serves_a_verdict_and_errors_on_nothing_but_json_rpc(
    session: Session, service: Any
) -> None:
    contract = {
        "experiment_id": "exp_1",
        "lift": None,
        "confidence": None,
        "ci": None,
        "verdict": "abstain",
        "abstain_reason": "power",
        "value_at_risk": None,
        "cadence": None,
        "power_state": {"clock": "open", "decided": False},
        "guardrail_breaches": [],
    }
    service.answers_with("/v1/reward/exp_1", contract)
    service.problem("/v1/reward/exp_2", 404, "There is no such experiment.")
    service.answers_with("/v1/reward/exp_3", "<html>", status=500)

    assert session.opened()["serverInfo"]["name"] == "service-reward"
    served = session.called(1, "get_verdict", {"experiment_id": "exp_1"})
    assert served["structuredContent"] == contract
    assert [block["type"] for block in served["content"]] == ["text", "text"]
    for number, experiment in enumerate(["exp_2", "exp_3"], start=2):
        assert session.called(number, "get_verdict", {"experiment_id": experiment})["isError"]

    stdout, stderr = session.ended()
    assert stdout == ""
    assert session.process.returncode == 0
    assert KEY not in stderr


@pytest.mark.process
def test_a_process_ends_when_stdin_closes_though_a_call_is_waiting(
    session: Session, service: Any
) -> None:
    service.silent = True
    session.opened()
    params = {"name": "list_experiments", "arguments": {}}
    session.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    session.ended()
    assert session.process.returncode == 0


@pytest.mark.requirement("mcp.environment")
@pytest.mark.process
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
    environment: dict[str, str], said: str
) -> None:
    process = started(MODULE, environment)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 2
    assert stdout == ""
    assert len(stderr.splitlines()) == 1
    assert said in stderr
    assert KEY not in stderr
