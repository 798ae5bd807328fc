"""The client of a service's endpoints: an answer, or a fault that says what to do."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import anyio
import httpx2

from mcp_server.address import Address

ANSWER_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A successful answer.

    Attributes:
        body: The JSON that it holds, an object or an array.
    """

    text: str
    body: Any
    retry_after: int | None = None
    age: int | None = None


class ServiceError(Exception):
    """The service refused a request, or nothing of it answered; the text never shows the key.

    Attributes:
        status: The status of the answer; None where none came.
        problem: The members of the service's problem; empty where the answer is none.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        problem: Mapping[str, object] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem or {}
        self.retry_after = retry_after

    @property
    def code(self) -> str | None:
        """The problem's word for programs."""
        code = self.problem.get("code")
        return code if isinstance(code, str) else None

    @property
    def is_passing(self) -> bool:
        """Whether the same request may be answered later."""
        return self.status is None or self.status == 429 or self.status >= 500


class Client:
    """The endpoints of a project; an async context manager around its connections.

    Args:
        whole_seconds: How long all of a request may take; by default as long as a part of it.
        transport: By which they are reached; by default connections of its own.
    """

    def __init__(
        self,
        address: Address,
        *,
        answer_seconds: float,
        whole_seconds: float | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.address = address
        self._answer_seconds = answer_seconds
        self._whole_seconds = whole_seconds or answer_seconds
        self._client = httpx2.AsyncClient(
            headers={"X-Service-Project-Key": address.key, "Accept": "application/json"},
            timeout=answer_seconds,
            # To read the certificates takes 50 ms, and http:// has no use for them.
            verify=address.url.startswith("https:"),
            # A redirect would carry the key to an address that nobody chose.
            follow_redirects=False,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Returns the answer to a request.

        Raises:
            ServiceError: There is none, or it is no success.
        """
        response, text = await self._response(method, path, body, headers)
        decoded, retry_after = _decoded(text), _seconds(response, "Retry-After")
        if response.is_success and decoded is not None:
            age = _seconds(response, "Age")
            return Answer(text=text, body=decoded, retry_after=retry_after, age=age)
        problem = decoded if isinstance(decoded, dict) else {}
        detail = problem.get("detail")
        if not isinstance(detail, str):
            problem, detail = {}, self._foreign(response)
        raise ServiceError(
            self.address.redacted(detail),
            status=response.status_code,
            problem=problem,
            retry_after=retry_after,
        )

    async def _response(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        headers: Mapping[str, str] | None,
    ) -> tuple[httpx2.Response, str]:
        origin = self.address.origin
        try:
            request = self._client.build_request(
                method, f"{self.address.url}{path}", json=body, headers=headers
            )
        except ValueError:
            # Half a surrogate pair, NaN or Infinity: Python holds them, JSON in UTF-8 does not.
            raise ServiceError(
                "The arguments hold a character or number that JSON cannot carry. Correct the"
                " arguments and call again."
            ) from None
        try:
            # httpx2 bounds each read, not their sum: a server that drips would hold us for ever.
            with anyio.fail_after(self._whole_seconds):
                response = await self._client.send(request, stream=True)
                try:
                    return response, await _whole(response)
                finally:
                    await response.aclose()
        except (TimeoutError, httpx2.TimeoutException):
            raise ServiceError(
                f"The service at {origin} gave no answer within {self._answer_seconds:g} seconds. "
                "Try again in a minute; if it stays silent, ask its operator whether it runs."
            ) from None
        except httpx2.ConnectError:
            raise ServiceError(
                f"No connection to the service at {origin}. Check that it runs "
                "(`deploy-reward up` starts it) and that SERVICE_API_URL is right."
            ) from None
        except httpx2.HTTPError:
            raise ServiceError(
                f"The exchange with the service at {origin} broke off. Try again in a minute; "
                "if it happens again, check that SERVICE_API_URL names the service itself."
            ) from None

    def _foreign(self, response: httpx2.Response) -> str:
        """Explains an answer that is not a problem of the service."""
        origin, status = self.address.origin, response.status_code
        if 300 <= status < 400:
            return (
                f"The service at {origin} redirects{_target(response)}; the key is not sent on. "
                "Set SERVICE_API_URL to the service's own address."
            )
        if status >= 500:
            return f"The service at {origin} failed with status {status}."
        return (
            f"{origin} answered with status {status} and no JSON of the service (a login page or a "
            "proxy, perhaps). Check that SERVICE_API_URL names the service itself."
        )


async def _whole(response: httpx2.Response) -> str:
    """Reads the body, up to the longest answer of the service."""
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > ANSWER_BYTES:
            raise httpx2.RemoteProtocolError("the answer is too long")
    return content.decode(errors="replace")


def _decoded(text: str) -> dict[str, object] | list[Any] | None:
    """The JSON object or array, or None where it is none."""
    try:
        decoded = json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict | list) else None


def _refused(constant: str) -> None:
    """NaN and Infinity are no JSON, though Python reads them."""
    raise ValueError(constant)


def _seconds(response: httpx2.Response, header: str) -> int | None:
    seconds = response.headers.get(header, "")
    return int(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) <= 9 else None


def _target(response: httpx2.Response) -> str:
    """Returns a redirect's scheme and host; its path may hold anything."""
    try:
        parts = urlsplit(response.headers.get("location", ""))
    except ValueError:
        return ""
    return f" to {parts.scheme}://{parts.hostname}"[:200] if parts.hostname else ""
