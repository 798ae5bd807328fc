"""`deploy-reward up` as users start it: a tree of processes, which a test can kill whole."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from own_postgres.child_process import spawn

from tests.processes.api_process import descendants_of, eventually

# Dagster takes its time on a machine that does much else.
START_SECONDS = 240


@dataclass(kw_only=True)
class UpProcess:
    """The whole service on a data directory, which can be killed and started again."""

    data_dir: Path
    log: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the command; what it starts stands when this returns."""
        self.log.unlink(missing_ok=True)
        ports = ("--api-port", str(self.port), "--dagster-port", "0")
        self.process = spawn(
            [sys.executable, "-m", "cli", "up", "--data-dir", self.data_dir, *ports],
            log=self.log,
            env={**os.environ, "SERVICE_SECRET": "a secret of the tests, long enough"},
        )
        eventually(self._stands, seconds=START_SECONDS)

    def _stands(self) -> bool:
        assert self.process is not None
        output = self.log.read_text()
        assert self.process.poll() is None, output
        return "Running." in output

    def kill(self) -> None:
        """Ends every process of the tree at once; none of them hears of it, nor of the others."""
        if self.process is None:
            return
        tree = {self.process.pid, *descendants_of(self.process.pid)}
        # Held first: nobody who still runs starts anybody again.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in tree:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        self.process.wait()
        self.process = None
        eventually(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in tree))
