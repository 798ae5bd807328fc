"""A store that is measured: an embedded PostgreSQL of its own, its CPU, and recorded deploys."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from own_postgres.server import EmbeddedPostgres
from sqlalchemy import Connection, Engine, text

from domain.registration import PRODUCTION, Registration
from storage.experiments.deploys import DeployRequest, record_deploy
from storage.experiments.experiments import register
from storage.experiments.freezing import freeze_whole
from storage.postgres.engine import open_engine
from storage.schema.migrate import upgrade

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class MeasuredStore:
    """An empty store.

    Attributes:
        url: Of its database.
        process: The server's.
        folder: Its own, beside which there is room for files.
    """

    url: str
    engine: Engine
    process: int
    folder: Path

    def cpu_seconds(self) -> float:
        """Returns the CPU seconds of the server and of its children, of those that ended too."""
        total = 0
        children = Path(f"/proc/{self.process}/task/{self.process}/children").read_text().split()
        for process in (str(self.process), *children):
            with suppress(FileNotFoundError):
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11 : 15 if process == str(self.process) else 13]))
        return total / _TICKS

    def vacuum(self) -> None:
        """Does now what the store would do in the background."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM (ANALYZE, FREEZE)"))


@contextmanager
def measured_store() -> Generator[MeasuredStore]:
    """Yields a store with a lake beside it; both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="deploy-reward-benchmark-") as name:
        folder = Path(name)
        # Started by root, PostgreSQL runs as the user nobody, who must be able to enter.
        folder.chmod(0o711)
        os.environ["SERVICE_LAKE"] = str(folder / "lake")
        with EmbeddedPostgres(folder / "data") as server:
            upgrade(server.url)
            engine = open_engine(server.url)
            assert server.process is not None
            try:
                yield MeasuredStore(
                    url=server.url, engine=engine, process=server.process.pid, folder=folder
                )
            finally:
                engine.dispose()


def deploy(
    connection: Connection,
    project_id: int,
    commit: str,
    at: datetime,
    *,
    base: str | None = None,
    share: float | None = None,
) -> str:
    """Records a deploy, of a canary on a base where a base is given, and returns its id."""
    request = DeployRequest(
        environment=PRODUCTION,
        commit={"sha": commit},
        deployed_at=at,
        graph=None,
        diff=None if base is None else {"base_commit": base, "files": []},
        allocation=share,
        idempotency_key=None,
    )
    return record_deploy(connection, project_id, request).record.deploy_id


def register_frozen(connection: Connection, project_id: int, asked: Registration) -> None:
    """Registers an experiment and freezes its policy, as the next run of the pipeline does."""
    freeze_whole(connection, register(connection, project_id, asked).experiment_id)
