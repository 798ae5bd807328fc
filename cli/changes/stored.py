"""Changes in the store, where commands reach them without an address of a service.

Commands load this file where they need it: its rooms take a second to load, and the client, which
asks a running service alone, does not hold it.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Engine

from api.routes.deploys import Deploy
from api.routes.experiments import RegistrationBody
from cli.changes.form import checked
from cli.operations.actor import command_actor
from cli.operations.remote import Response
from cli.operations.store import project_transaction, store_engine
from storage.experiments.deploys import record_deploy
from storage.experiments.experiments import close, register
from storage.experiments.withdrawal import withdraw_deploy
from storage.postgres.refusal import Missing
from storage.releases.freeze import current_freeze
from storage.verdicts.announcements import announce_base_moves
from storage.verdicts.publication import project_of, read_effect, read_evidence, read_verdict
from storage.views.portfolio import read_portfolio
from storage.views.registrations import RegistrationReading, read_registration


@dataclass(frozen=True, kw_only=True)
class StoredExperiment:
    """An experiment in the store; each question is a transaction of its own."""

    engine: Engine
    project_id: int
    experiment_id: str

    def contract(self) -> Response:
        """The published verdict contract."""
        with self.engine.begin() as connection:
            verdict = read_verdict(connection, self.project_id, self.experiment_id)
        wait = None
        if verdict.next_look_at is not None:
            wait = max(0.0, (verdict.next_look_at - datetime.now(UTC)).total_seconds())
        return Response(text=verdict.contract, retry_after=wait)

    def evidence(self) -> str | None:
        """The published evidence document; None before the first look."""
        with self.engine.begin() as connection:
            return read_evidence(connection, self.project_id, self.experiment_id)

    def effect(self) -> str | None:
        """The effect as it is served now; None where there is none."""
        with self.engine.begin() as connection:
            return read_effect(connection, self.project_id, self.experiment_id)

    def registration(self) -> Mapping[str, Any]:
        """The experiment as it was registered and bound."""
        with self.engine.begin() as connection:
            return asdict(read_registration(connection, self.project_id, self.experiment_id))

    def freeze(self) -> str | None:
        """Why the service is frozen."""
        with self.engine.begin() as connection:
            freeze = current_freeze(connection)
        return None if freeze is None else freeze.reason

    def close(self) -> Response:
        """Ends it by hand."""
        with self.engine.begin() as connection:
            close(connection, self.project_id, self.experiment_id, by=command_actor())
        return self.contract()


@contextmanager
def stored_experiment(experiment_id: str, data_dir: Path) -> Generator[StoredExperiment]:
    """The experiment of that id, of whatever project.

    Raises:
        storage.refusal.Missing: The store holds no such experiment.
    """
    with store_engine(data_dir) as engine:
        with engine.begin() as connection:
            project_id = project_of(connection, experiment_id)
        yield StoredExperiment(engine=engine, project_id=project_id, experiment_id=experiment_id)


def recorded_deploy(
    members: dict[str, object], idempotency_key: str | None, project: str, data_dir: Path
) -> dict[str, Any]:
    """Records a deploy and returns its record as the API shows it: times become text."""
    request = checked(Deploy, members).request(idempotency_key)
    with project_transaction(data_dir, project) as (connection, project_id):
        recorded = record_deploy(connection, project_id, request)
        announce_base_moves(
            connection,
            project_id,
            request.environment,
            known_at=recorded.record["recorded_at"],
        )
    return msgspec.json.decode(msgspec.json.encode(recorded.record))


def withdrawn_deploy(deploy_id: str, project: str, data_dir: Path) -> dict[str, Any]:
    """Withdraws a deploy and returns the record that it had.

    Raises:
        Missing: The project has no such deploy.
    """
    with project_transaction(data_dir, project) as (connection, project_id):
        try:
            record, _ = withdraw_deploy(connection, project_id, deploy_id, by=command_actor())
        except Missing as missing:
            detail = f"{missing.detail} in project {project!r}: --project names another"
            raise Missing(missing.code, detail) from None
    return record


def registered_change(
    members: dict[str, object], project: str, data_dir: Path
) -> RegistrationReading:
    """Registers a change and returns its experiment."""
    registration = checked(RegistrationBody, members).registration()
    with project_transaction(data_dir, project) as (connection, project_id):
        experiment_id = register(connection, project_id, registration).experiment_id
        return read_registration(connection, project_id, experiment_id)


def stored_portfolio(
    query: Mapping[str, str],
    registration: Callable[[Mapping[str, Any]], dict[str, object] | None],
    project: str,
    data_dir: Path,
) -> dict[str, Any]:
    """Returns the portfolio as the API serves it; registered first where it is not yet.

    Args:
        query: Members of the question, as of the API's.
        registration: Makes the body that registers a portfolio; None where it is to be left.
        project: A project's name or number.
        data_dir: The folder of the store.
    """
    with project_transaction(data_dir, project) as (connection, project_id):

        def figures() -> dict[str, Any]:
            as_of = datetime.now(UTC)
            return read_portfolio(connection, project_id, as_of=as_of, **query).document(
                as_of=as_of
            )

        document = figures()
        if (members := registration(document)) is not None:
            register(connection, project_id, checked(RegistrationBody, members).registration())
            document = figures()
    return msgspec.json.decode(msgspec.json.encode(document))
