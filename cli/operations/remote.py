"""A running service as a command asks it: each request has one answer, or one plain line."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from mcp_server.address import Address

if TYPE_CHECKING:
    import httpx2

ANSWER_SECONDS = 10.0
LONGEST_FAULT = 500
READING_KEY = "the project key (rk_…)"
WRITING_KEY = "the write key (wk_…)"


class RemoteFault(click.ClickException):
    """The service refused or failed the request of a command.

    Attributes:
        code: The problem's word for programs; None where nothing of the service answered.
        passing: Whether the same question may be answered later.
        retry_after: Seconds to wait before it, where the service says so.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        passing: bool = False,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.passing = passing
        self.retry_after = retry_after


@dataclass(frozen=True, kw_only=True)
class Response:
    """A successful answer.

    Attributes:
        text: The body, to the byte.
        retry_after: Seconds until it can change; None where it cannot, or where that is unknown.
        age: Seconds since the body was true; None where the service says none.
    """

    text: str
    retry_after: float | None
    age: float | None = None


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A running service, and the key that opens the endpoints of one command."""

    address: Address
    needed_key: str

    def get(self, path: str) -> Response:
        """The answer to a GET.

        Raises:
            RemoteFault: There is none, or it is no success.
        """
        return self._ask("GET", path, body=None, headers={})

    def delete(self, path: str) -> Response:
        """The answer to a DELETE.

        Raises:
            RemoteFault: There is none, or it is no success.
        """
        return self._ask("DELETE", path, body=None, headers={})

    def post(
        self, path: str, body: Mapping[str, object], *, headers: Mapping[str, str] | None = None
    ) -> Response:
        """The answer to a POST of JSON.

        Raises:
            RemoteFault: There is none, or it is no success.
        """
        return self._ask("POST", path, body=body, headers=headers or {})

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None,
        headers: Mapping[str, str],
    ) -> Response:
        # Half of what a command's start would cost; help and wrong usages do without.
        import httpx2  # noqa: PLC0415

        try:
            response = httpx2.request(
                method,
                f"{self.address.url}{path}",
                json=body,
                headers={"X-Service-Project-Key": self.address.key, **headers},
                timeout=ANSWER_SECONDS,
                # To read the certificates takes 50 ms, and http:// has no use for them.
                verify=self.address.url.startswith("https:"),
                # A redirect would carry the key to an address that nobody chose.
                follow_redirects=False,
            )
        except httpx2.TimeoutException:
            message = f"{self.address.origin} gave no answer within {ANSWER_SECONDS:g} seconds"
            raise RemoteFault(message, passing=True) from None
        except httpx2.HTTPError:
            message = f"{self.address.origin} does not answer; is SERVICE_API_URL right?"
            raise RemoteFault(message, passing=True) from None
        decoded = _decoded(response)
        if response.is_success and decoded is not None:
            return Response(
                text=response.text,
                retry_after=_seconds(response, "Retry-After"),
                age=_seconds(response, "Age"),
            )
        raise self._fault(response, decoded)

    def _fault(self, response: "httpx2.Response", decoded: object) -> RemoteFault:
        problem: dict[str, Any] = decoded if isinstance(decoded, dict) else {}
        detail = problem.get("detail")
        if not isinstance(detail, str):
            detail = (
                f"{self.address.origin} answered {response.status_code} and no JSON of the service;"
                " is SERVICE_API_URL the service's own address?"
            )
        if response.status_code in (401, 403):
            detail = f"{detail} (SERVICE_PROJECT_KEY must hold {self.needed_key})"
        code = problem.get("code")
        if code in ("unknown_experiment", "unknown_deploy"):
            detail = f"{detail} in this project; SERVICE_PROJECT_KEY may hold another project's key"
        return RemoteFault(
            self.address.redacted(" ".join(detail.split()))[:LONGEST_FAULT],
            code=code if isinstance(code, str) else None,
            passing=response.status_code == 429 or response.status_code >= 500,
            retry_after=_seconds(response, "Retry-After"),
        )


def remote(needed_key: str) -> Remote | None:
    """The service that SERVICE_API_URL names; None where it names none and there is a store.

    Args:
        needed_key: Which key the command needs in SERVICE_PROJECT_KEY, in words.

    Raises:
        click.ClickException: Address or key are unusable; the message never shows the key. Or
            there is no address in the client, which has no store.
    """
    url = os.environ.get("SERVICE_API_URL", "").strip().rstrip("/")
    key = os.environ.get("SERVICE_PROJECT_KEY", "").strip()
    if not url:
        if find_spec("storage") is None:
            raise click.ClickException(
                "SERVICE_API_URL is not set: the client asks a running service, and has no store"
            )
        return None
    if not key:
        raise click.ClickException(
            f"SERVICE_PROJECT_KEY is not set: this command needs {needed_key}"
        )
    try:
        return Remote(address=Address(url=url, key=key), needed_key=needed_key)
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def _decoded(response: "httpx2.Response") -> object:
    """The JSON of an answer, or None."""
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None


def _seconds(response: "httpx2.Response", header: str) -> int | None:
    seconds = response.headers.get(header, "")
    return int(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) <= 9 else None


def document(answer: Response) -> dict[str, Any]:
    """The object that an answer holds.

    Raises:
        RemoteFault: It holds something else, so that the service is none of ours.
    """
    document = json.loads(answer.text)
    if not isinstance(document, dict):
        raise RemoteFault("the answer is JSON, but not the service's")
    return document
