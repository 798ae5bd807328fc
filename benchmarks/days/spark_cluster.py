"""A Spark cluster of real processes: a standalone master, workers, and a Connect server."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

START_SECONDS = 180
REPOSITORY = Path(__file__).parents[2]
# Where `make spark` installs the whole of Spark, which the product never needs.
INSTALLED = REPOSITORY / "build" / "spark"


def spark_home() -> Path | None:
    """Returns the folder of an installed Spark, if any."""
    if named := os.environ.get("SPARK_HOME"):
        return Path(named)
    result = sorted(INSTALLED.glob("lib/python*/site-packages/pyspark/jars"))
    return result[0].parent if result else None


def missing_part() -> str | None:
    """Returns what a cluster lacks on this machine, as a reason to skip; None for nothing."""
    if shutil.which("java") is None:
        return "Spark needs a JDK 17: install one (Debian: openjdk-17-jre-headless)"
    if spark_home() is None:
        return "Spark is not installed: run `make spark`, or name one in SPARK_HOME"
    if find_spec("pyspark") is None:
        return "its client is not installed: pip install -c constraints.txt -e '.[spark]'"
    return None


# Marks of the tests that start a cluster.
ON_A_CLUSTER = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(missing_part() is not None, reason=str(missing_part())),
]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Cluster:
    """A master, its workers with a single core each, and a Connect server."""

    def __init__(self, folder: Path, *, executor_mib: int) -> None:
        self._folder = folder
        self._executor_mib = executor_mib
        self._master_port, self._connect_port = free_port(), free_port()
        self.remote = f"sc://127.0.0.1:{self._connect_port}"
        self._master_url = f"spark://127.0.0.1:{self._master_port}"
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def workers(self) -> Sequence[str]:
        return [name for name in self._started if name.startswith("worker")]

    def start(self, *, workers: int) -> None:
        self._run(
            "master",
            ["org.apache.spark.deploy.master.Master"],
            ["--host", "127.0.0.1", "--port", str(self._master_port), "--webui-port", "0"],
            ports=[self._master_port],
        )
        for number in range(workers):
            self.add_worker(f"worker-{number}")
        settings = {
            "spark.master": self._master_url,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._connect_port),
            "spark.executor.cores": "1",
            "spark.executor.memory": f"{self._executor_mib}m",
            "spark.sql.shuffle.partitions": "4",
            # A worker that dies is named at once rather than after two minutes of silence.
            "spark.network.timeout": "60s",
        }
        named = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
        self._run(
            "connect",
            ["org.apache.spark.deploy.SparkSubmit"],
            [
                *named,
                "--class",
                "org.apache.spark.sql.connect.service.SparkConnectServer",
                "spark-internal",
            ],
            ports=[self._connect_port],
            memory="1g",
        )

    def add_worker(self, name: str) -> None:
        work = self._folder / name
        memory = f"{self._executor_mib}M"
        self._run(
            name,
            ["org.apache.spark.deploy.worker.Worker"],
            [
                *("--host", "127.0.0.1", "--cores", "1", "--memory", memory),
                *("--webui-port", "0", "--work-dir", str(work), self._master_url),
            ],
            ports=[],
        )

    def kill(self, name: str) -> None:
        """Kills a process, and a worker with its executors, as a machine that is gone."""
        _kill(self._started.pop(name))

    def cpu_seconds(self) -> float:
        """Returns what all processes of the cluster have used, executors included."""
        return sum(seconds for _, seconds, _ in self._processes())

    def memory_mib(self) -> float:
        """Returns the memory that they hold now."""
        return sum(memory for _, _, memory in self._processes())

    def _processes(self) -> Sequence[tuple[int, float, float]]:
        groups = {os.getpgid(process.pid) for process in self._started.values()}
        result: list[tuple[int, float, float]] = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(stat[2]) in groups:
                    ticks, pages = int(stat[11]) + int(stat[12]), int(stat[21])
                    seconds = ticks / os.sysconf("SC_CLK_TCK")
                    result.append((int(entry.name), seconds, pages * 4096 / 2**20))
            except (FileNotFoundError, ProcessLookupError):
                continue
        return result

    def _run(
        self,
        name: str,
        main: Sequence[str],
        arguments: Sequence[str],
        *,
        ports: Sequence[int],
        memory: str = "256m",
    ) -> None:
        home = spark_home()
        assert home is not None
        log = (self._folder / f"{name}.log").open("wb")
        environment: dict[str, Any] = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SPARK_")},
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": memory,
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
        }
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *main, *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            env=environment,
            # Its executors are of its group, and end with it.
            start_new_session=True,
        )
        log.close()
        self._started[name] = process
        self._await(name, process, ports)

    def _await(self, name: str, process: subprocess.Popen[bytes], ports: Sequence[int]) -> None:
        until = time.monotonic() + START_SECONDS
        for port in ports:
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > until:
                    log = (self._folder / f"{name}.log").read_text(errors="replace")
                    raise AssertionError(f"Spark's {name} did not start:\n{log[-4000:]}")
                time.sleep(0.2)

    def stop(self) -> None:
        while self._started:
            _kill(self._started.popitem()[1])


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def running_cluster(
    folder: Path, *, workers: int = 2, executor_mib: int = 768
) -> Generator[Cluster]:
    """Yields a cluster, of which nothing is left afterwards."""
    cluster = Cluster(folder, executor_mib=executor_mib)
    with ExitStack() as stack:
        stack.callback(cluster.stop)
        cluster.start(workers=workers)
        yield cluster
