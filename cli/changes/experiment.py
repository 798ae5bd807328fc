"""An experiment as commands reach it: over HTTP where an address is set, else in the store."""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import click
from sqlalchemy import Engine

from cli.operations.remote import READING_KEY, Remote, RemoteFault, remote
from cli.operations.store import store_url
from storage.experiments.experiments import close
from storage.postgres.engine import open_engine
from storage.releases.freeze import current_freeze
from storage.verdicts.publication import project_of, read_evidence, read_verdict

_ID = re.compile(r"[0-9A-Za-z_-]{1,128}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Contract:
    """A verdict contract as it is served.

    Attributes:
        text: The contract, to the byte.
        retry_after: Seconds until the next look can come; None once decided, or where unknown.
    """

    text: str
    retry_after: float | None


class Experiment(Protocol):
    """The requests that commands make of an experiment."""

    def contract(self) -> Contract:
        """The verdict contract."""
        ...

    def evidence(self) -> str | None:
        """The evidence document as JSON; None before the first look."""
        ...

    def freeze(self) -> str | None:
        """Why nobody is to act on verdicts for now; None where the service is not frozen."""
        ...

    def close(self) -> Contract:
        """Ends it by hand."""
        ...


@dataclass(frozen=True, kw_only=True)
class RemoteExperiment:
    """An experiment of a running service."""

    service: Remote
    experiment_id: str

    @property
    def _path(self) -> str:
        return f"/v1/reward/{self.experiment_id}"

    def contract(self) -> Contract:
        """The verdict contract, as the service answers it."""
        answer = self.service.get(self._path)
        return Contract(text=answer.text, retry_after=answer.retry_after)

    def evidence(self) -> str | None:
        """The evidence document; None before the first look."""
        try:
            return self.service.get(f"{self._path}/evidence").text
        except RemoteFault as fault:
            if fault.code == "no_evidence_yet":
                return None
            raise

    def freeze(self) -> str | None:
        """Why the service is frozen."""
        return json.loads(self.service.get("/v1/reward/freeze").text)["reason"]

    def close(self) -> Contract:
        """Ends it by hand."""
        answer = self.service.post(f"{self._path}/close", {})
        return Contract(text=answer.text, retry_after=answer.retry_after)


@dataclass(frozen=True, kw_only=True)
class StoredExperiment:
    """An experiment in the store; each question is a transaction of its own."""

    engine: Engine
    project_id: int
    experiment_id: str

    def contract(self) -> Contract:
        """The published verdict contract."""
        with self.engine.begin() as connection:
            verdict = read_verdict(connection, self.project_id, self.experiment_id)
        wait = None
        if verdict.next_look_at is not None:
            wait = max(0.0, (verdict.next_look_at - datetime.now(UTC)).total_seconds())
        return Contract(text=verdict.contract, retry_after=wait)

    def evidence(self) -> str | None:
        """The published evidence document; None before the first look."""
        with self.engine.begin() as connection:
            return read_evidence(connection, self.project_id, self.experiment_id)

    def freeze(self) -> str | None:
        """Why the service is frozen."""
        with self.engine.begin() as connection:
            freeze = current_freeze(connection)
        return None if freeze is None else freeze.reason

    def close(self) -> Contract:
        """Ends it by hand."""
        with self.engine.begin() as connection:
            close(connection, self.project_id, self.experiment_id)
        return self.contract()


@contextmanager
def experiment(experiment_id: str, data_dir: Path) -> Generator[Experiment]:
    """The experiment of that id, of whatever project.

    Args:
        experiment_id: As `register` printed it.
        data_dir: Where the store is, if no address is set.

    Raises:
        click.ClickException: There is no such experiment, or the service can't be asked.
        storage.refusal.Missing: The store holds no such experiment.
    """
    if not _ID.fullmatch(experiment_id):
        raise click.ClickException("there is no such experiment")
    if (service := remote(READING_KEY)) is not None:
        yield RemoteExperiment(service=service, experiment_id=experiment_id)
        return
    with store_url(data_dir) as url:
        engine = open_engine(url, pool_size=1)
        try:
            with engine.begin() as connection:
                project_id = project_of(connection, experiment_id)
            yield StoredExperiment(
                engine=engine, project_id=project_id, experiment_id=experiment_id
            )
        finally:
            engine.dispose()
