"""The service's reward endpoints, as seen over HTTP."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

import anyio
import httpx2
from mcp.server.mcpserver.exceptions import ToolError
from starlette.requests import Request

from mcp_server.address import Address
from mcp_server.advice import span

ANSWER_SECONDS = 8.0
ANSWER_BYTES = 4 * 1024 * 1024
TEXT_CHARACTERS = 1500

# Other routes under /v1/reward/ and path steps: asked for as an experiment, each would reach
# another endpoint, and the gate registers what it does not know.
NOT_EXPERIMENTS = frozenset(
    {".", "..", "register", "gate", "checklist", "freeze", "ledger", "portfolio"}
)

CORRECT = "Correct the arguments and call again."
FIND = "list_experiments shows the open experiments, and with status decided the others."
NEW_KEY = "Ask for a new project key (rk_): SERVICE_PROJECT_KEY holds it."
# The advice for a problem, by its code.
ADVICE = {
    "malformed_key": NEW_KEY,
    "unknown_key": NEW_KEY,
    "wrong_key_kind": "All tools take a project key (rk_): set SERVICE_PROJECT_KEY to one.",
    "locked": "Leave that member out and call again: the project keeps it for itself.",
    "unknown_experiment": FIND,
    "unknown_commit": "Name a commit that was deployed in production, or none.",
    "ambiguous_commit": "Name the commit by its whole id.",
    "no_evidence_yet": "That is no fault, and get_verdict answers meanwhile.",
    "not_found": "Check that SERVICE_API_URL is the base address, without a path.",
    "method_not_allowed": "Check that SERVICE_API_URL is the base address, without a path.",
    "experiment_open": "Without that member the call gives the open experiment; poll it instead.",
    "history_closed": "Change nothing of the past: deploy again, and register that deploy.",
    "invalid_request": CORRECT,
    "body_too_large": "Send less, metadata first, and call again.",
}
# And by its status, where the code says no more.
ADVICE_BY_STATUS = {401: NEW_KEY, 403: ADVICE["wrong_key_kind"], 404: FIND, 422: CORRECT}


class Refused(ToolError):  # noqa: N818 - a refusal is an answer, not a fault
    """A problem that the service answered, with its stable code."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A successful answer.

    Attributes:
        body: The decoded JSON.
        retry_after: Seconds until the next look can come, where the service says so.
    """

    body: Any
    retry_after: int | None


@dataclass(frozen=True, kw_only=True)
class _Reply:
    """A response: its status, headers and undecoded body."""

    status: int
    headers: httpx2.Headers
    content: bytes


class RewardApi:
    """The reward endpoints of one project; an async context manager around its connections.

    Args:
        address: Where the endpoints are, and the key.
        answer_seconds: How long one answer may take, from connecting to its last byte.
        transport: By which they are reached; by default connections of its own.
    """

    def __init__(
        self,
        address: Address,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.address = address
        self._answer_seconds = answer_seconds
        self._client = httpx2.AsyncClient(
            headers={"X-Service-Project-Key": address.key, "Accept": "application/json"},
            timeout=answer_seconds,
            # A redirect would carry the key to an address that nobody chose.
            follow_redirects=False,
            transport=transport,
        )

    def of(self, request: Request | None) -> "RewardApi":  # noqa: ARG002 (others look at it)
        """Returns the endpoints as the caller of a request may use them: over stdio, these."""
        return self

    async def __aenter__(self) -> Self:
        """Open the connections."""
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self._client.__aexit__(kind, error, trace)

    async def register(self, registration: Mapping[str, object]) -> Answer:
        """`POST /v1/reward/register`."""
        return await self._answer("POST", "/v1/reward/register", body=registration)

    async def verdict(self, experiment_id: str) -> Answer:
        """`GET /v1/reward/{experiment_id}`."""
        return await self._answer("GET", f"/v1/reward/{_step(experiment_id)}")

    async def evidence(self, experiment_id: str) -> Answer:
        """`GET /v1/reward/{experiment_id}/evidence`."""
        return await self._answer("GET", f"/v1/reward/{_step(experiment_id)}/evidence")

    async def registration(self, experiment_id: str) -> Answer:
        """`GET /v1/reward/{experiment_id}/registration`."""
        return await self._answer("GET", f"/v1/reward/{_step(experiment_id)}/registration")

    async def effect(self, experiment_id: str) -> Answer:
        """`GET /v1/reward/{experiment_id}/effect`."""
        return await self._answer("GET", f"/v1/reward/{_step(experiment_id)}/effect")

    async def experiments(self, *, status: str, limit: int, cursor: str | None) -> Answer:
        """`GET /v1/reward`, one page."""
        query = {"status": status, "limit": limit} | ({} if cursor is None else {"cursor": cursor})
        return await self._answer("GET", f"/v1/reward?{urlencode(query, errors='replace')}")

    async def checklist(self) -> Answer:
        """`GET /v1/reward/checklist`."""
        return await self._answer("GET", "/v1/reward/checklist")

    async def portfolio(self, hold_back: str | None) -> Answer:
        """`GET /v1/reward/portfolio`, of the newest one, or of a hold-back."""
        query = {} if hold_back is None else {"hold_back": hold_back}
        return await self._answer(
            "GET", f"/v1/reward/portfolio?{urlencode(query, errors='replace')}".rstrip("?")
        )

    async def _answer(
        self, method: str, path: str, *, body: Mapping[str, object] | None = None
    ) -> Answer:
        """The decoded answer to one request.

        Raises:
            ToolError: If there is none, or it is no success; the message says what to do.
        """
        reply = await self._reply(method, path, body)
        decoded = _decoded(reply.content)
        retry_after = _retry_after(reply.headers)
        if 200 <= reply.status < 300 and decoded is not None:
            return Answer(body=decoded, retry_after=retry_after)
        raise self._fault(reply, decoded, retry_after)

    async def _reply(self, method: str, path: str, body: Mapping[str, object] | None) -> _Reply:
        origin = self.address.origin
        request = self._request(method, path, body)
        try:
            # httpx2 bounds each read, not their sum: a server that drips would hold us for ever.
            with anyio.fail_after(self._answer_seconds):
                response = await self._client.send(request, stream=True)
                try:
                    content = await _whole(response)
                finally:
                    await response.aclose()
        except (TimeoutError, httpx2.TimeoutException):
            raise ToolError(
                f"The service at {origin} gave no answer within {self._answer_seconds:g} seconds. "
                "Try again in a minute; if it stays silent, ask its operator whether it runs."
            ) from None
        except httpx2.ConnectError:
            raise ToolError(
                f"No connection to the service at {origin}. Check that it runs "
                "(`deploy-reward up` starts it) and that SERVICE_API_URL is right."
            ) from None
        except httpx2.HTTPError:
            raise ToolError(
                f"The exchange with the service at {origin} broke off. Try again in a minute; "
                "if it happens again, check that SERVICE_API_URL names the service itself."
            ) from None
        return _Reply(status=response.status_code, headers=response.headers, content=content)

    def _request(self, method: str, path: str, body: Mapping[str, object] | None) -> httpx2.Request:
        try:
            return self._client.build_request(method, f"{self.address.url}{path}", json=body)
        except ValueError:
            # Half a surrogate pair, NaN or Infinity: Python holds them, JSON in UTF-8 does not.
            raise ToolError(
                f"The arguments hold a character or number that JSON cannot carry. {CORRECT}"
            ) from None

    def _fault(self, reply: _Reply, decoded: object, retry_after: int | None) -> ToolError:
        """Returns the fault and its advice, without the key even if the answer repeated it."""
        if isinstance(decoded, dict) and isinstance(decoded.get("detail"), str):
            code = str(decoded.get("code"))
            message = f"{_problem(decoded)}\n{_advice(reply.status, code, retry_after)}".strip()
            return Refused(self.address.redacted(message), code=code)
        return ToolError(self.address.redacted(self._foreign(reply, retry_after)))

    def _foreign(self, reply: _Reply, retry_after: int | None) -> str:
        """Explains an answer that is not a problem of the service."""
        if 300 <= reply.status < 400:
            return (
                f"The service at {self.address.origin} redirects{_target(reply.headers)}; the key "
                "is not sent on. Set SERVICE_API_URL to the service's own address."
            )
        if reply.status >= 500:
            return (
                f"The service at {self.address.origin} failed with status {reply.status}. "
                f"{_advice(reply.status, '', retry_after)}"
            )
        return (
            f"{self.address.origin} answered with status {reply.status} and no JSON of the service "
            "(a login page or a proxy, perhaps). Check that SERVICE_API_URL names the service "
            "itself."
        )


def _step(experiment_id: str) -> str:
    """The identifier as one step of a path."""
    if experiment_id in NOT_EXPERIMENTS:
        raise ToolError(
            f"{experiment_id!r} is no experiment's identifier. {FIND}",
        )
    return quote(experiment_id, safe="", errors="replace")


async def _whole(response: httpx2.Response) -> bytes:
    """Reads the body, up to the longest answer of the service."""
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > ANSWER_BYTES:
            raise httpx2.RemoteProtocolError("the answer is too long")
    return bytes(content)


def _decoded(content: bytes) -> dict[str, Any] | list[Any] | None:
    """The JSON object or array, or None where it is none."""
    try:
        decoded = json.loads(content, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict | list) else None


def _refused(constant: str) -> None:
    """NaN and Infinity are no JSON, though Python reads them."""
    raise ValueError(constant)


def _retry_after(headers: httpx2.Headers) -> int | None:
    value = headers.get("retry-after", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 9 else None


def _target(headers: httpx2.Headers) -> str:
    """Where a redirect leads: scheme and host only, since a path may hold anything."""
    try:
        parts = urlsplit(headers.get("location", ""))
    except ValueError:
        return ""
    return f" to {parts.scheme}://{parts.hostname}"[:200] if parts.hostname else ""


def _problem(problem: dict[str, Any]) -> str:
    """The detail of an RFC 9457 problem, with the members that it names."""
    errors = problem.get("errors")
    named = (
        [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    )
    lines = [f"{_location(error)}: {error.get('detail', '')}" for error in named[:10]]
    texts = [problem["detail"], *(line for line in lines if line not in problem["detail"])]
    return "\n".join(texts)[:TEXT_CHARACTERS]


def _location(fault: dict[str, Any]) -> str:
    """Returns where a fault is: a pointer into the body, or a name of a parameter or header."""
    return str(fault.get("pointer") or fault.get("parameter") or fault.get("header") or "")


def _advice(status: int, code: str, retry_after: int | None) -> str:
    """Returns the advice for a problem, and how long to wait where waiting helps."""
    advice = ADVICE.get(code, ADVICE_BY_STATUS.get(status, ""))
    if retry_after is None and status != 429 and status < 500:
        return advice
    return f"{advice} Try again in {span(retry_after or 60)}.".strip()
