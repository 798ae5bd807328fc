"""A service of the simulation alone: a store whose clock it moves, the API, the pipeline."""

import os
import resource
import secrets
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2
from canary_traffic.posting import MOST_EVENTS, Refused, answer, connected
from own_postgres.child_process import spawn
from own_postgres.server import EmbeddedPostgres
from sqlalchemy import Engine

from api.wire.envelope import EVALUATION_PATH
from benchmarks.repository.movable_clock import MovableClock
from cli.operations.actor import command_actor
from cli.processes.children import answers, free_port
from domain.evidence.document import Evidence, evidence_of, looked_at
from orchestration.pipeline.batch import FAST
from orchestration.pipeline.steps import (
    close_cells,
    expose,
    freeze_bound,
    note_seen,
    publish,
    stage_due,
)
from orchestration.pipeline.whole_days import LakeDays
from storage.postgres.engine import open_engine
from storage.schema.clock import claim_derived_tables
from storage.schema.migrate import upgrade
from storage.tenants.keys import KeyKind
from storage.tenants.projects import CreatedProject, create_project
from storage.tenants.setting_changes import apply_settings

_START_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class PrivateService:
    """The service, and the time in it.

    Attributes:
        client: Of its API.
        project: Its only project, with the keys.
        clock: Its time.
        engine: Its store, on which the pipeline's steps are taken.
        cpu: Seconds of CPU, of each look; at its end of its processes too.
    """

    client: httpx2.Client
    project: CreatedProject
    clock: MovableClock
    engine: Engine
    cpu: list[float] = field(default_factory=list[float])

    def post_events(self, events: Sequence[dict[str, Any]]) -> None:
        """Sends events as they come.

        Raises:
            Refused: The service does not take them all.
        """
        key = self.project.keys[KeyKind.WRITE]
        for begin in range(0, len(events), MOST_EVENTS):
            batch = events[begin : begin + MOST_EVENTS]
            receipt = answer(
                self.client, "POST", "/v1/events", key=key, body={"events": list(batch)}
            )
            if receipt["rejected"]:
                raise Refused(f"events of the simulation were rejected: {receipt['rejected'][0]}")

    def evaluate(self, unit: str) -> dict[str, Any]:
        """Returns the value of each flag that OFREP hands out to a unit; `commit` is its build."""
        key, body = self.project.keys[KeyKind.WRITE], {"context": {"targetingKey": unit}}
        flags = answer(self.client, "POST", EVALUATION_PATH, key=key, body=body)["flags"]
        return {flag["key"]: flag.get("value") for flag in flags}

    def deploy(self, body: dict[str, Any]) -> dict[str, Any]:
        """Records a deploy, or a step of its ramp."""
        key = self.project.keys[KeyKind.WRITE]
        return answer(self.client, "POST", "/v1/deploys", key=key, body=body)["deploy"]

    def reward(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Returns an answer of the endpoints of experiments."""
        return self._answer(method, f"/v1/reward{path}", body)

    def ask_place(self, body: dict[str, Any]) -> dict[str, Any]:
        """Asks for the place of a change."""
        return self._answer("POST", "/v1/places", body)

    def places(self, state: str) -> list[dict[str, Any]]:
        """Returns the places in a state that changed last."""
        return self._answer("GET", f"/v1/places?state={state}&limit=200")["places"]

    def _answer(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        key = self.project.keys[KeyKind.PROJECT]
        return answer(self.client, method, path, key=key, body=body)

    def evidence(self, experiment_id: str) -> Evidence | None:
        """Returns an experiment's evidence; None before its first look."""
        headers = {"X-Service-Project-Key": self.project.keys[KeyKind.PROJECT]}
        response = self.client.get(f"/v1/reward/{experiment_id}/evidence", headers=headers)
        if response.status_code == HTTPStatus.NOT_FOUND:
            return None
        return looked_at(evidence_of(response.raise_for_status().content))

    def look(self) -> None:
        """Takes the pipeline's steps, as a run of the fast schedule does."""
        begun = time.process_time()
        with self.engine.begin() as connection:
            claim_derived_tables(connection)
            as_of = note_seen(connection)
        days = LakeDays()
        freeze_bound(self.engine.begin, days, as_of=as_of, patience=FAST)
        first = (partial(expose, days=days), partial(close_cells, days=days))
        for step in (*first, stage_due, publish):
            with self.engine.begin() as connection:
                claim_derived_tables(connection)
                step(connection, patience=FAST)
        self.cpu.append(time.process_time() - begun)


@contextmanager
def private_service(begin: datetime, **settings: object) -> Generator[PrivateService]:
    """Starts a service in a temporary folder, whose clock shows `begin`; all of it goes at the end.

    Args:
        begin: When its time begins.
        settings: Of its project.

    Raises:
        EmbeddedPostgresError: No store can be started.
        Refused: The API does not start.
    """
    before, cpu = _cpu_of_children(), list[float]()
    with ExitStack() as stack:
        # PostgreSQL runs as another user where we are root, who must pass through the folder.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="repository-")))
        folder.chmod(0o711)
        postgres = stack.enter_context(EmbeddedPostgres(folder / "data"))
        upgrade(postgres.url)
        clock = MovableClock(postgres.url, begin)
        stack.callback(clock.close)
        engine = open_engine(postgres.url)
        stack.callback(engine.dispose)
        with engine.begin() as connection:
            actor = command_actor()
            project = create_project(connection, "simulated", by=actor)
            apply_settings(connection, project.project_id, settings, by=actor)
        url = stack.enter_context(_api(postgres.url, folder))
        client = stack.enter_context(connected(url))
        yield PrivateService(client=client, project=project, clock=clock, engine=engine, cpu=cpu)
    # Its store and its API have ended by now.
    cpu.append(_cpu_of_children() - before)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _api(database_url: str, folder: Path) -> Generator[str]:
    port, log = free_port(), folder / "logs" / "api.log"
    command = [sys.executable, "-m", "cli", "api", "--port", str(port), "--data-dir", folder]
    ours = {
        "SERVICE_DATABASE_URL": database_url,
        "SERVICE_LAKE": str(folder / "lake"),
        "SERVICE_SECRET": secrets.token_hex(32),
    }
    process = spawn(command, log=log, env={**os.environ, **ours})
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not answers("127.0.0.1", port, "/healthz"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise Refused(f"the simulation's API did not start: {log.read_text()[-500:]}")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
