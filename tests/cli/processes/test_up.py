"""`deploy-reward up`, for real: everything starts, heals, stops, and starts again."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.processes.api_process import eventually
from tests.processes.server_folder import server_folder

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

SECONDS = 120.0


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with server_folder() as folder:
        yield folder / "data"
        for pid in processes(folder):
            os.kill(pid, signal.SIGKILL)
        while Up.started:
            Up.started.pop().wait()
        eventually(lambda: not processes(folder))


def processes(data_dir: Path) -> list[int]:
    """Every process whose command line or environment names the data directory, but us."""
    mark = os.fsencode(data_dir)
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit()
        and int(folder.name) != os.getpid()
        and (mark in content(folder / "cmdline") or mark in content(folder / "environ"))
    ]


def content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def command_of(pid: int) -> str:
    return content(Path(f"/proc/{pid}/cmdline")).replace(b"\0", b" ").decode()


class Up:
    started: ClassVar[list[subprocess.Popen[bytes]]] = []

    def __init__(self, data_dir: Path, *arguments: str) -> None:
        self.data_dir = data_dir
        command = [sys.executable, "-m", "cli", "up", "--data-dir", str(data_dir), *arguments]
        self.output = data_dir.parent / f"output-{time.monotonic_ns()}"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        self.started.append(self.process)

    def printed(self) -> str:
        return self.output.read_text()

    def serves(self) -> bool:
        return self.process.poll() is not None or "Running." in self.printed()

    def port(self) -> int:
        output = re.search(r"API +http://127\.0\.0\.1:(\d+)", self.printed())
        assert output, self.printed()
        return int(output[1])

    def healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port(), timeout=SECONDS)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=SECONDS)


def start(data_dir: Path) -> Up:
    up = Up(data_dir, "--api-port", "0", "--dagster-port", "0")
    eventually(up.serves, seconds=SECONDS)
    assert up.process.poll() is None, up.printed()
    return up


def test_up_starts_heals_refuses_a_second_and_stops(data_dir, monkeypatch) -> None:
    # Commands run as they are printed, though no shell would find the program by its name.
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    up = start(data_dir)
    assert up.healthy()
    assert re.search(r"write +wk_\w{40}", up.printed())
    exports = re.findall(r"^  export (.+)$", up.printed(), re.MULTILINE)
    assert [re.findall(r"(\w+)=", export) for export in exports] == [
        ["SERVICE_API_URL"],
        ["WRITE_KEY", "PUBLIC_KEY"],
        ["PROJECT_KEY", "SERVICE_PROJECT_KEY"],
    ]
    assert (data_dir / "secret").stat().st_mode & 0o777 == 0o600
    printed = re.search(r"^  (\S.* dashboard --owner .+)$", up.printed(), re.MULTILINE)
    assert printed is not None
    shell = ["/bin/sh", "-c", printed[1]]
    ran = subprocess.run(shell, check=False, capture_output=True, text=True)
    shown = up.printed() + ran.stdout
    links = re.findall(r"http://127\.0\.0\.1:\d+/dashboard/sign-in#in_\S+", shown)
    assert len({*links}) == 2, ran.stderr

    # A message that Dagster sends links to the page of its experiment.
    daemon = next(p for p in processes(data_dir) if "orchestration.daemon" in command_of(p))
    address = f"SERVICE_PUBLIC_URL=http://127.0.0.1:{up.port()}"
    assert address.encode() in content(Path(f"/proc/{daemon}/environ")).split(b"\0")

    server = next(pid for pid in processes(data_dir) if " -m cli api " in command_of(pid))
    os.kill(server, signal.SIGKILL)
    eventually(lambda: "API started again" in up.printed())
    eventually(up.healthy)

    postgres = int((data_dir / "postgres" / "postmaster.pid").read_text().split()[0])
    os.kill(postgres, signal.SIGKILL)
    eventually(lambda: "PostgreSQL started again" in up.printed())

    second = Up(data_dir, "--api-port", "0", "--dagster-port", "0")
    assert second.process.wait(timeout=SECONDS) == 1
    assert f"runs already on {data_dir}" in second.printed()

    assert up.end(signal.SIGTERM) == 0, up.printed()
    eventually(lambda: processes(data_dir) == [])

    (data_dir / "secret").unlink()
    third = Up(data_dir, "--api-port", "0", "--dagster-port", "0")
    assert third.process.wait(timeout=SECONDS) == 1
    assert "holds no secret, but the store was made with one" in third.printed()
    assert not (data_dir / "secret").exists()


@pytest.mark.nightly
def test_up_starts_again_after_each_signal_that_stops_or_kills_it(data_dir) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        up = start(data_dir)
        assert up.healthy()
        assert ("wk_" in up.printed()) == (number == signal.SIGKILL)
        assert up.end(number) == (-number if number == signal.SIGKILL else 0), up.printed()
        # Nothing outlives it, though who was killed may still be on the way out.
        eventually(lambda: processes(data_dir) == [])


def test_a_port_in_use_is_named_before_anything_starts(data_dir) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        up = Up(data_dir, "--api-port", str(port), "--dagster-port", "0")
        assert up.process.wait(timeout=SECONDS) == 1
    assert f"port {port} on 127.0.0.1 is in use; give another with --api-port" in up.printed()
    assert not (data_dir / "postgres").exists()


LAUNCH = """
mutation ($tags: [ExecutionTag!]) {
  launchPipelineExecution(executionParams: {
    mode: "default", executionMetadata: {tags: $tags}, selector: {
      repositoryName: "__repository__", repositoryLocationName: "deploy_reward",
      pipelineName: "deploy_reward_fast"
    }
  }) { __typename }
}
"""
RUNS = "{ runsOrError { ... on Runs { results { runId status tags { key value } } } } }"


def asked_of_dagster(up: Up, query: str, **variables: object) -> Any:
    output = re.search(r"Dagster +http://127\.0\.0\.1:(\d+)", up.printed())
    assert output, up.printed()
    connection = http.client.HTTPConnection("127.0.0.1", int(output[1]), timeout=SECONDS)
    try:
        body = json.dumps({"query": query, "variables": variables})
        connection.request("POST", "/graphql", body, {"Content-Type": "application/json"})
        return json.load(connection.getresponse())["data"]
    finally:
        connection.close()


def statuses(up: Up) -> dict[str, str]:
    """Returns the status of the run that was asked for by hand, and that of its retry."""
    result: dict[str, str] = {}
    for run in asked_of_dagster(up, RUNS)["runsOrError"]["results"]:
        tags = {tag["key"]: tag["value"] for tag in run["tags"]}
        if tags.get("by") == "hand":
            result["retry" if "dagster/parent_run_id" in tags else "first"] = run["status"]
    return result


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_a_run_whose_process_was_killed_is_started_again(data_dir) -> None:
    up = start(data_dir)
    # It waits for a block to close, so that it is met at work.
    closes_at = datetime.now(UTC) + timedelta(minutes=2)
    tags = {
        "by": "hand",
        "dagster/partition": f"{closes_at:%Y-%m-%d}",
        "deploy_reward/closes_at": closes_at.isoformat(),
    }
    launched = asked_of_dagster(
        up, LAUNCH, tags=[{"key": key, "value": value} for key, value in tags.items()]
    )
    assert launched["launchPipelineExecution"]["__typename"] == "LaunchRunSuccess"
    eventually(lambda: statuses(up) == {"first": "STARTED"}, seconds=SECONDS)

    worker = next(pid for pid in processes(data_dir) if "spawn_main" in command_of(pid))
    os.kill(worker, signal.SIGKILL)

    eventually(
        lambda: statuses(up) == {"first": "FAILURE", "retry": "SUCCESS"}, seconds=2 * SECONDS
    )
    assert up.end(signal.SIGTERM) == 0, up.printed()
