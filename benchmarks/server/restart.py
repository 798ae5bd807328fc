"""Restarts: how long the API is away after SIGKILL, under a running `deploy-reward up`.

Run by `python -m benchmarks.server.restart`, with as many busy loops beside it as `--load` says.
"""

import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from benchmarks.report import options, report
from benchmarks.server.running import running_service

_PAUSE_SECONDS = 0.01
# The back-off of an API that dies again and again is another measurement.
_LIFE_SECONDS = 3.0
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """Seconds from a kill to the next answer of `/readyz`.

    Attributes:
        killed: Which of the API's processes are killed.
        load: Busy loops beside it.
        seconds: Of each kill.
    """

    killed: str
    load: int
    seconds: Sequence[float]


def _parents() -> dict[int, int]:
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(stat[1])
    return parents


def _api(supervisor: int) -> list[int]:
    """Returns the API's processes: the supervisor's child, and the workers below it."""
    parents = _parents()
    main = next(
        pid
        for pid, parent in parents.items()
        if parent == supervisor and b"\0cli\0api\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return [main, *(pid for pid, parent in parents.items() if parent == main)]


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _seconds_away(supervisor: int, port: int, chosen: slice) -> float:
    time.sleep(_LIFE_SECONDS)
    killed = _api(supervisor)[chosen]
    begun = time.monotonic()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    # A process that is being killed may answer once more.
    while any(Path(f"/proc/{pid}/exe").exists() for pid in killed) or not _ready(port):
        if time.monotonic() - begun > _PATIENCE_SECONDS:
            raise TimeoutError(f"the API did not come back within {_PATIENCE_SECONDS:.0f} s")
        time.sleep(_PAUSE_SECONDS)
    return time.monotonic() - begun


_COLUMNS: dict[str, Callable[[Restarts], str]] = {
    "killed": lambda row: row.killed,
    "busy loops": lambda row: str(row.load),
    "kills": lambda row: str(len(row.seconds)),
    "min, s": lambda row: f"{min(row.seconds):.2f}",
    "median": lambda row: f"{median(row.seconds):.2f}",
    "max": lambda row: f"{max(row.seconds):.2f}",
}
_KILLED = {"all": slice(None), "first": slice(1), "last": slice(-1, None)}


def main() -> None:
    """Measures, and prints it."""
    parser = options(__doc__)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--killed", nargs="+", choices=_KILLED, default=["all", "last"])
    chosen = parser.parse_args()
    # Root's server runs as nobody, and must pass the folder.
    folder = Path(tempfile.mkdtemp(prefix="deploy-reward-restarts-"))
    folder.chmod(0o711)
    rows: list[Restarts] = []
    try:
        with running_service(folder / "data") as service:
            port = urlsplit(service.api_url).port or 0
            busy = [
                subprocess.Popen([sys.executable, "-c", "while True: pass"])
                for _ in range(chosen.load)
            ]
            try:
                rows = [
                    Restarts(
                        killed=name,
                        load=chosen.load,
                        seconds=[
                            _seconds_away(service.pid, port, _KILLED[name])
                            for _ in range(chosen.kills)
                        ],
                    )
                    for name in chosen.killed
                ]
            finally:
                for loop in busy:
                    loop.kill()
                    loop.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report(rows, _COLUMNS, lines=chosen.lines, title="The API after SIGKILL")


if __name__ == "__main__":
    main()
