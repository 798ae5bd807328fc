"""A stage of benchmarks of the server: a store with a project, and servers of the API on it."""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.store import measured_store
from storage.tenants.keys import KeyKind
from storage.tenants.projects import CreatedProject, create_project
from storage.tenants.setting_changes import apply_settings

UNLIMITED = {
    "rate_limits": {"per_key": 10**9, "per_address": 10**9, "registrations_per_key": 10**9}
}
SERVE = "from api.server.process import serve; serve(port=0, workers={workers})"
TREE = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A store with a project, and the folder for scripts and logs."""

    folder: Path
    url: str
    project: CreatedProject
    postgres: int
    experiment_id: str = ""

    def headers(self, kind: KeyKind) -> list[str]:
        """Returns wrk's options for a request with a key."""
        key = self.project.keys[kind]
        return ["-H", f"X-Service-Project-Key: {key}", "-H", "Content-Type: application/json"]


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server."""

    url: str
    process: int
    label: str
    workers: int


@contextlib.contextmanager
def serving(
    stage: Stage, *, tree: Path, label: str, workers: int, stored: bool
) -> Generator[Server]:
    """Runs the server of a checkout until it listens, and ends it afterwards."""
    log = stage.folder / f"{label}-{workers}-{stored}.log"
    code = SERVE.format(workers=workers)
    command = ["-c", code] if stored else ["-m", "benchmarks.server.unstored"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "SERVICE_DATABASE_URL": stage.url,
        "SERVICE_SECRET": "a secret of the benchmarks, long enough",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command], env=environment, cwd=tree, stdout=output, stderr=output
        )
    try:
        found = None
        for _ in range(600):
            found = re.search(r"running on (http://[\d.]+:\d+)", log.read_text())
            if found or process.poll() is not None:
                break
            time.sleep(0.05)
        if found is None:
            raise RuntimeError(f"the server did not start:\n{log.read_text()}")
        time.sleep(1)
        yield Server(url=found[1], process=process.pid, label=label, workers=workers)
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextlib.contextmanager
def staged() -> Generator[Stage]:
    """Sets up a store with a project and an experiment."""
    with measured_store() as store:
        with store.engine.begin() as connection:
            project = create_project(connection, "bench")
            apply_settings(connection, project.project_id, UNLIMITED)
        stage = Stage(folder=store.folder, url=store.url, project=project, postgres=store.process)
        yield replace(stage, experiment_id=_registered(stage))


def _registered(stage: Stage) -> str:
    from starlette.testclient import TestClient  # noqa: PLC0415 - only here

    from api.app import create_app  # noqa: PLC0415 - only here
    from api.runtime.settings import ApiSettings  # noqa: PLC0415 - only here

    settings = ApiSettings(
        database_url=stage.url, secret=b"a secret of the benchmarks, long enough"
    )
    keys = stage.project.keys
    with TestClient(create_app(settings)) as client:
        deploy: dict[str, Any] = {"commit": {"sha": "4f2a9c1d"}, "allocation": 0.5}
        write = {"X-Service-Project-Key": keys[KeyKind.WRITE]}
        client.post("/v1/deploys", json=deploy, headers=write).raise_for_status()
        reward = {"X-Service-Project-Key": keys[KeyKind.PROJECT]}
        answer = client.post("/v1/reward/register", json={}, headers=reward)
        return answer.raise_for_status().json()["experiment_id"]
