"""A service as a command asks it, over HTTP or in this process: an answer, or a plain line."""

import os
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from mcp_server.address import Address

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from mcp_server.client import Answer, Client, ServiceError

ANSWER_SECONDS = 10.0
# A graph of 16 MiB takes its time over a slow line.
_WHOLE_SECONDS = 600.0
LONGEST_FAULT = 500
DocumentT = TypeVar("DocumentT", bound=msgspec.Struct)
READING_KEY = "the project key (rk_…)"
WRITING_KEY = "the write key (wk_…)"


class RemoteFault(click.ClickException):
    """The service refused or failed the request of a command.

    Attributes:
        code: The problem's word for programs; None where nothing of the service answered.
    """

    def __init__(self, message: str, error: "ServiceError | None" = None) -> None:
        super().__init__(message)
        self.code = error and error.code
        self.passing = error is not None and error.is_passing
        self.retry_after = error and error.retry_after


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A service, and how the requests of a command reach it."""

    client: "Client"
    portal: "BlockingPortal"
    key_hint: str
    project_hint: str

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> "Answer":
        """The answer to a request.

        Raises:
            RemoteFault: There is none, or it is no success.
        """
        from mcp_server.client import ServiceError  # noqa: PLC0415 - as below

        try:
            return self.portal.call(
                partial(self.client.ask, method, path, body=body, headers=headers)
            )
        except ServiceError as error:
            message = str(error)
            if error.problem and error.status in (401, 403):
                message += self.key_hint
            elif error.code in ("unknown_experiment", "unknown_deploy"):
                message += self.project_hint
            raise RemoteFault(" ".join(message.split())[:LONGEST_FAULT], error) from None


@contextmanager
def remote(
    needed_key: str, data_dir: Path, *, project: str = "", experiment_id: str = ""
) -> Generator[Remote]:
    """The service that SERVICE_API_URL names; without it the application in this process.

    Raises:
        click.ClickException: Address or key are unusable; the message never shows the key. Or
            there is no address in the client, which has no store.
        storage.postgres.refusal.Missing: The store holds no such project or experiment.
    """
    # Half of what a command's start would cost; help and wrong usages do without.
    from anyio.from_thread import start_blocking_portal  # noqa: PLC0415

    from mcp_server.client import Client  # noqa: PLC0415

    key_hint, project_hint = "", f" in project {project!r}: --project names another"
    with ExitStack() as stack:
        if (address := address_of(needed_key)) is not None:
            key_hint = f" (SERVICE_PROJECT_KEY must hold {needed_key})"
            project_hint = " in this project; SERVICE_PROJECT_KEY may hold another project's key"
            client = Client(address, answer_seconds=ANSWER_SECONDS, whole_seconds=_WHOLE_SECONDS)
        else:
            # Its rooms take seconds to load, and the client does not hold them.
            from cli.operations.own_process import application  # noqa: PLC0415

            inside = application(data_dir, project=project, experiment_id=experiment_id)
            client = stack.enter_context(inside)
        portal = stack.enter_context(start_blocking_portal())
        opened = stack.enter_context(portal.wrap_async_context_manager(client))
        yield Remote(client=opened, portal=portal, key_hint=key_hint, project_hint=project_hint)


def address_of(needed_key: str) -> Address | None:
    """The address and key that the environment names; None where there is a store instead."""
    if not os.environ.get("SERVICE_API_URL", "").strip():
        if find_spec("storage") is None:
            raise click.ClickException(
                "SERVICE_API_URL is not set: the client asks a running service, and has no store"
            )
        return None
    try:
        return Address.from_environment(os.environ, needed_key=needed_key)
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def decoded(text: str, document_type: type[DocumentT]) -> DocumentT:
    """The document that an answer holds.

    Raises:
        RemoteFault: It holds something else, so that the service is none of ours.
    """
    try:
        return msgspec.json.decode(text, type=document_type)
    except msgspec.MsgspecError:
        raise RemoteFault("the answer is JSON, but not the service's") from None


def document(answer: "Answer") -> dict[str, Any]:
    """The object that an answer holds.

    Raises:
        RemoteFault: It holds something else, so that the service is none of ours.
    """
    if not isinstance(answer.body, dict):
        raise RemoteFault("the answer is JSON, but not the service's")
    return answer.body
