"""Dagster's web server as we serve it: alone, without code, and over a store with all the rest."""

import http.client
import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from own_postgres.child_process import spawn

from cli.processes.children import free_port
from tests.processes.api_process import eventually, port_of_our_own

PAUSE = "mutation { setAutoMaterializePaused(paused: %s) }"


@contextmanager
def dagster_web(folder: Path, **environment: str) -> Generator[str]:
    """Runs the server until the context ends, and yields its address."""
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
    (folder / "workspace.yaml").write_text("load_from: []\n")
    log = folder / "log"
    with port_of_our_own() as port:
        process = spawn(
            [
                *(sys.executable, "-m", "orchestration.web_server"),
                *("-p", str(port), "-w", folder / "workspace.yaml"),
            ],
            log=log,
            env={**os.environ, "DAGSTER_HOME": str(folder), **environment},
        )
        url = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            assert process.poll() is None, log.read_text()[-4000:]
            try:
                return _asked(url, "GET", "/server_info") != {}
            except OSError:
                return False

        try:
            eventually(answers)
            set_paused(url, paused=False)
            yield url
        finally:
            process.terminate()
            process.wait(timeout=30)


def is_paused(url: str) -> bool:
    """Whether Dagster's automation is paused, which any instance can be asked to do."""
    query = "{ instance { autoMaterializePaused } }"
    return _asked(url, "POST", "/graphql", query)["data"]["instance"]["autoMaterializePaused"]


def set_paused(url: str, *, paused: bool) -> None:
    """Says so to Dagster as its own pages do."""
    answer = _asked(url, "POST", "/graphql", PAUSE % str(paused).lower())
    assert answer["data"] == {"setAutoMaterializePaused": paused}


def _asked(url: str, method: str, path: str, query: str | None = None) -> Any:
    # A client that can speak TLS takes longer to be set up than any of this.
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    body = None if query is None else json.dumps({"query": query})
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", "Origin": url})
        return json.load(connection.getresponse())
    finally:
        connection.close()


@dataclass(frozen=True, kw_only=True)
class OurDagster:
    """All of Dagster's processes as `deploy-reward dagster` starts them."""

    pid: int
    port: int

    def ask(self, query: str, **variables: Any) -> Any:
        body = {"query": query, "variables": variables}
        answer = httpx2.post(f"http://127.0.0.1:{self.port}/graphql", json=body, timeout=60)
        return answer.json()["data"]


@contextmanager
def our_dagster(folder: Path, url: str) -> Generator[OurDagster]:
    """Runs Dagster over a store until the context ends."""
    port, log = free_port(), folder / "log"
    words = ("dagster", "--port", str(port), "--data-dir", str(folder / "data"))
    process = spawn(
        [sys.executable, "-m", "cli", *words],
        log=log,
        env={**os.environ, "SERVICE_DATABASE_URL": url},
    )
    try:
        eventually(lambda: "Dagster   http" in log.read_text(), seconds=240)
        yield OurDagster(pid=process.pid, port=port)
    finally:
        process.terminate()
        process.wait()
