"""A running `deploy-reward up` with a data directory of its own, for as long as it is measured."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.processes.children import free_port

_TREE = Path(__file__).parents[2]
_START_SECONDS = 240


@dataclass(frozen=True, kw_only=True)
class RunningService:
    """The service and where it is.

    Attributes:
        pid: The supervisor's.
        data_dir: Its data directory.
        api_url: The API's address.
        dagster_url: The address of Dagster's web server.
    """

    pid: int
    data_dir: Path
    api_url: str
    dagster_url: str

    def command(self, *words: str) -> str:
        """Returns what a command on the same data directory prints."""
        command = [sys.executable, "-m", "cli", *words, "--data-dir", str(self.data_dir)]
        return subprocess.run(
            command, cwd=_TREE, env=_environment(), check=True, capture_output=True, text=True
        ).stdout


@contextmanager
def running_service(data_dir: Path) -> Iterator[RunningService]:
    """Yields the service once all its parts have answered, and stops it.

    Raises:
        RuntimeError: It ended, or took too long; with the end of what it printed.
    """
    api_port, dagster_port = free_port(), free_port()
    ports = ["--api-port", str(api_port), "--dagster-port", str(dagster_port)]
    log = data_dir.with_name("up.log")
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "cli", "up", "--data-dir", str(data_dir), *ports],
            cwd=_TREE,
            stdout=stream,
            stderr=stream,
            env=_environment(),
        )
        try:
            deadline = time.monotonic() + _START_SECONDS
            while "Running." not in log.read_text():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(log.read_text()[-2000:])
                time.sleep(0.2)
            yield RunningService(
                pid=process.pid,
                data_dir=data_dir,
                api_url=f"http://127.0.0.1:{api_port}",
                dagster_url=f"http://127.0.0.1:{dagster_port}",
            )
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if "SERVICE_" not in name}
