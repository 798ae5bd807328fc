"""`deploy-reward up`, for real: everything starts, heals, stops, and starts again."""

import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

SECONDS = 120.0


@pytest.fixture
def data_dir() -> Iterator[Path]:
    # pytest's tmp_path can be entered by its owner alone, and root's server runs as nobody.
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o711)
    yield folder / "data"
    for pid in processes(folder):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not processes(folder))
    shutil.rmtree(folder)


def eventually(condition: Callable[[], bool], seconds: float = SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


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
    """One `deploy-reward up`, and what it printed."""

    def __init__(self, data_dir: Path, *arguments: str) -> None:
        self.data_dir = data_dir
        command = [sys.executable, "-m", "cli", "up", "--data-dir", str(data_dir), *arguments]
        self.output = data_dir.parent / f"output-{time.monotonic_ns()}"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def printed(self) -> str:
        return self.output.read_text()

    def serves(self) -> bool:
        return self.process.poll() is not None or "Running." in self.printed()

    def port(self) -> int:
        found = re.search(r"API +http://127\.0\.0\.1:(\d+)", self.printed())
        assert found, self.printed()
        return int(found[1])

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
    assert eventually(up.serves)
    assert up.process.poll() is None, up.printed()
    return up


def test_up_starts_heals_refuses_a_second_stops_and_starts_again(data_dir: Path) -> None:
    up = start(data_dir)
    assert up.healthy()
    assert re.search(r"write +wk_\w{40}", up.printed())
    assert (data_dir / "secret").stat().st_mode & 0o777 == 0o600

    server = next(pid for pid in processes(data_dir) if " -m cli api " in command_of(pid))
    os.kill(server, signal.SIGKILL)
    assert eventually(lambda: "API started again" in up.printed())
    assert eventually(up.healthy)

    postgres = int((data_dir / "postgres" / "postmaster.pid").read_text().split()[0])
    os.kill(postgres, signal.SIGKILL)
    assert eventually(lambda: "PostgreSQL started again" in up.printed())

    second = Up(data_dir, "--api-port", "0", "--dagster-port", "0")
    assert second.process.wait(timeout=SECONDS) == 1
    assert f"runs already on {data_dir}" in second.printed()

    assert up.end(signal.SIGTERM) == 0, up.printed()
    # Who was killed may still be on the way out.
    assert eventually(lambda: processes(data_dir) == [])

    again = start(data_dir)
    assert again.healthy()
    assert "wk_" not in again.printed()
    assert again.end(signal.SIGINT) == 0, again.printed()
    assert eventually(lambda: processes(data_dir) == [])


def test_nothing_outlives_a_killed_up_and_the_next_one_starts(data_dir: Path) -> None:
    up = start(data_dir)
    assert up.end(signal.SIGKILL) == -signal.SIGKILL
    assert eventually(lambda: processes(data_dir) == [])
    again = start(data_dir)
    assert again.healthy()
    assert again.end(signal.SIGTERM) == 0, again.printed()


def test_a_port_in_use_is_named_before_anything_starts(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        up = Up(data_dir, "--api-port", str(port), "--dagster-port", "0")
        assert up.process.wait(timeout=SECONDS) == 1
    assert f"port {port} on 127.0.0.1 is in use; give another with --api-port" in up.printed()
    assert not (data_dir / "postgres").exists()
