"""`GET /v1/reward/{experiment_id}`: verdicts as they were published."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.keyring import admitted
from api.runtime.state import runtime
from api.wire.answer import etag, is_known
from api.wire.documentation import PlainRoute, answered, reading
from domain.contract import Contract
from storage.postgres.refusal import Missing
from storage.tenants.keys import READING_KINDS
from storage.verdicts.publication import PublishedVerdict

router = APIRouter(tags=["reward"])

# How long to wait where no look is due yet: a tick of the fast schedule.
_WAIT_SECONDS = 60
_ID = re.compile(r"[0-9A-Za-z_-]{1,128}", re.ASCII)


def known_id(experiment_id: str) -> str:
    """Returns an identifier that an experiment may have.

    Raises:
        Missing: The id is malformed, so no experiment has it and the store need not be read.
    """
    if not _ID.fullmatch(experiment_id):
        raise Missing("unknown_experiment", "there is no such experiment")
    return experiment_id


def contract_answer(verdict: PublishedVerdict) -> Response:
    """Returns a verdict's contract, to the byte as it was published."""
    body, tag = _tagged(verdict.contract)
    headers = {"ETag": tag, **retry_after(verdict)}
    return Response(body, media_type="application/json", headers=headers)


# A row answers all polls of a round, and mostly those of the next.
@lru_cache(maxsize=1024)
def _tagged(contract: str) -> tuple[bytes, str]:
    body = contract.encode()
    return body, etag(body)


def retry_after(verdict: PublishedVerdict) -> Mapping[str, str]:
    """Returns when the next look can come: never, once the verdict is final."""
    if verdict.decided:
        return {}
    if verdict.next_look_at is None:
        return {"Retry-After": str(_WAIT_SECONDS)}
    seconds = (verdict.next_look_at - datetime.now(UTC)).total_seconds()
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


async def get_verdict(request: Request) -> Response:
    """Return the verdict contract; nothing is computed by asking, however often."""
    if request.path_params["experiment_id"] == "register":
        raise HTTPException(405, headers={"Allow": "POST"})
    shared = runtime(request)
    caller = await admitted(request, *READING_KINDS)
    experiment_id = known_id(request.path_params["experiment_id"])
    verdict = await shared.reader.read(caller.project_id, experiment_id)
    _, tag = _tagged(verdict.contract)
    if is_known(request, tag):
        return Response(status_code=304, headers={"ETag": tag, **retry_after(verdict)})
    return contract_answer(verdict)


router.add_api_route(
    "/v1/reward/{experiment_id}",
    get_verdict,
    methods=["GET"],
    summary="Poll the verdict",
    responses={200: answered(Contract), 304: {"description": "As `If-None-Match` says."}},
    openapi_extra=reading(
        problems=["unknown_experiment", "method_not_allowed"],
        parameters=[
            {"name": "experiment_id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}},
        ],
    ),
    route_class_override=PlainRoute,
)
