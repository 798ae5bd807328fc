"""The service's reward endpoints, as the tools of MCP ask them."""

import re
from collections.abc import Mapping
from urllib.parse import urlencode

import httpx2
from mcp.server.mcpserver.exceptions import ToolError
from starlette.requests import Request

from domain.figures import length_of_time
from mcp_server.address import Address
from mcp_server.client import Answer, Client, ServiceError

ANSWER_SECONDS = 8.0
TEXT_CHARACTERS = 1500

# Other routes under /v1/reward/: asked for as an experiment, each would reach another endpoint, and
# the gate registers what it does not know.
NOT_EXPERIMENTS = frozenset({"register", "gate", "checklist", "freeze", "ledger", "portfolio"})
_ID = re.compile(r"[0-9A-Za-z_-]{1,128}", re.ASCII)

CORRECT = "Correct the arguments and call again."
FIND = "list_experiments shows the open experiments, and with status decided the others."
NEW_KEY = "Ask for a new project key (rk_): SERVICE_PROJECT_KEY holds it."
# The advice for a problem, by its code.
ADVICE = {
    "malformed_key": NEW_KEY,
    "unknown_key": NEW_KEY,
    "wrong_key_kind": "All tools take a project key (rk_): set SERVICE_PROJECT_KEY to it.",
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


class RewardApi(Client):
    """The reward endpoints of a project; every fault is a tool error that says what to do."""

    def __init__(
        self,
        address: Address,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(address, answer_seconds=answer_seconds, transport=transport)

    def of(self, request: Request | None) -> "RewardApi":  # noqa: ARG002 (others look at it)
        """Returns the endpoints as the caller of a request may use them: over stdio, these."""
        return self

    async def post(self, path: str, body: Mapping[str, object]) -> Answer:
        """Returns the answer to a post."""
        return await self._answer("POST", path, body=body)

    async def read(self, path: str, **query: str | int | None) -> Answer:
        """Returns the answer of a path; members of the query that are None are left out."""
        named = {name: value for name, value in query.items() if value is not None}
        return await self._answer("GET", f"{path}?{urlencode(named, errors='replace')}".rstrip("?"))

    async def experiment(self, experiment_id: str, part: str = "") -> Answer:
        """Returns an experiment's verdict, or a part: its evidence, effect or registration."""
        return await self._answer("GET", f"/v1/reward/{_step(experiment_id)}/{part}".rstrip("/"))

    async def _answer(
        self, method: str, path: str, *, body: Mapping[str, object] | None = None
    ) -> Answer:
        """The answer to a request."""
        try:
            return await self.ask(method, path, body=body)
        except ServiceError as fault:
            raise self._tool_error(fault) from None

    def _tool_error(self, fault: ServiceError) -> ToolError:
        """Returns the fault and its advice, without the key even if the answer repeated it."""
        if fault.problem:
            code = str(fault.problem.get("code"))
            message = f"{_problem(fault.problem)}\n{_advice(fault, code)}".strip()
            return Refused(self.address.redacted(message), code=code)
        if fault.status is not None and fault.status >= 500:
            return ToolError(f"{fault} {_advice(fault, '')}")
        return ToolError(str(fault))


def _step(experiment_id: str) -> str:
    """The identifier as a step of a path."""
    if experiment_id in NOT_EXPERIMENTS or not _ID.fullmatch(experiment_id):
        raise ToolError(f"{experiment_id!a} is no experiment's identifier. {FIND}")
    return experiment_id


def _problem(problem: Mapping[str, object]) -> str:
    """The detail of an RFC 9457 problem, with the members that it names."""
    errors = problem.get("errors")
    errors = errors if isinstance(errors, list) else []
    named = [error for error in errors if isinstance(error, dict)]
    places = [e.get("pointer") or e.get("parameter") or e.get("header") or "" for e in named]
    lines = [f"{at}: {e.get('detail', '')}" for at, e in zip(places[:10], named, strict=False)]
    detail = str(problem["detail"])
    texts = [detail, *(line for line in lines if line not in detail)]
    return "\n".join(texts)[:TEXT_CHARACTERS]


def _advice(fault: ServiceError, code: str) -> str:
    """Returns the advice for a problem, and how long to wait where waiting helps."""
    status = fault.status or 0
    advice = ADVICE.get(code, ADVICE_BY_STATUS.get(status, ""))
    if fault.retry_after is None and status != 429 and status < 500:
        return advice
    return f"{advice} Try again in {length_of_time(fault.retry_after or 60)}.".strip()
