"""An experiment as commands reach it."""

import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.operations.remote import READING_KEY, Remote, RemoteFault, decoded, document, remote
from domain.contract import Contract
from domain.evidence.effect import Effect
from domain.registration import RegistrationAnswer
from domain.wording.registered import first_look_sentence
from domain.words import State

if TYPE_CHECKING:
    from mcp_server.client import Answer

_ID = re.compile(r"[0-9A-Za-z_-]{1,128}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment of a service."""

    service: Remote
    experiment_id: str

    @property
    def _path(self) -> str:
        return f"/v1/reward/{self.experiment_id}"

    def contract(self) -> "Answer":
        """The verdict contract, as the service answers it."""
        return self.service.ask("GET", self._path)

    def evidence(self) -> str | None:
        """The evidence document; None before the first look."""
        return self._published("evidence")

    def effect(self) -> Effect | None:
        """The effect as it is served now; None where there is none."""
        text = self._published("effect")
        return None if text is None else decoded(text, Effect)

    def _published(self, name: str) -> str | None:
        try:
            return self.service.ask("GET", f"{self._path}/{name}").text
        except RemoteFault as fault:
            if fault.code == "no_evidence_yet":
                return None
            raise

    def registration(self) -> RegistrationAnswer:
        """The experiment as it was registered and bound."""
        answer = self.service.ask("GET", f"{self._path}/registration")
        return decoded(answer.text, RegistrationAnswer)

    def freeze(self) -> str | None:
        """Why the service is frozen."""
        return document(self.service.ask("GET", "/v1/reward/freeze"))["reason"]

    def close(self) -> "Answer":
        """Ends it by hand."""
        return self.service.ask("POST", f"{self._path}/close", {})


def registration_of(handle: Experiment) -> RegistrationAnswer | None:
    """Returns a registration; None where the service cannot be asked."""
    with suppress(RemoteFault):
        return handle.registration()
    return None


def situation_of(
    registration: RegistrationAnswer | None, contract: Contract | None = None, *, looked_at: bool
) -> str | None:
    """Returns the sentences on an open experiment that its evidence lacks; None where it says all.

    Args:
        contract: The verdict contract; None where it was registered just now.
    """
    if registration is None:
        return None
    situation, first_look = registration.situation, None
    if situation.state is State.ARRIVING:
        first_look = first_look_sentence(registration, contract)
    said = None if looked_at else situation.sentence
    return " ".join(filter(None, [said, first_look])) or None


@contextmanager
def experiment(experiment_id: str, data_dir: Path) -> Generator[Experiment]:
    """The experiment of that id, of whatever project."""
    if not _ID.fullmatch(experiment_id):
        raise click.ClickException(
            f"there is no such experiment: {experiment_id!r} is no id, which is exp_ and 20 digits"
            " or letters, as `deploy-reward register` prints it"
        )
    with remote(READING_KEY, data_dir, experiment_id=experiment_id) as service:
        yield Experiment(service=service, experiment_id=experiment_id)
