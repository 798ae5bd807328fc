"""`GET /v1/reward/...`: verdicts as they were published, and their evidence as of now."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

from fastapi import APIRouter
from sqlalchemy import Connection
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.caller import Reader
from api.runtime.keyring import admitted
from api.runtime.state import runtime
from api.wire.answer import etag, is_known
from api.wire.documentation import PlainRoute, answered, reading
from api.wire.problem import Problem
from domain.contract import Contract
from domain.document import document_text
from domain.evidence.document import ClosedExperiment, Evidence
from domain.evidence.effect import Effect
from domain.registration import RegistrationAnswer
from storage.postgres.refusal import Missing
from storage.tenants.keys import READING_KINDS
from storage.verdicts.publication import PublishedVerdict, read_effect, read_verdict
from storage.views.registrations import read_current

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
    headers = {"ETag": tag, **_retry_after(verdict)}
    return Response(body, media_type="application/json", headers=headers)


# A row answers all polls of a round, and mostly those of the next.
@lru_cache(maxsize=1024)
def _tagged(contract: str) -> tuple[bytes, str]:
    body = contract.encode()
    return body, etag(body)


def _retry_after(verdict: PublishedVerdict) -> Mapping[str, str]:
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
        return Response(status_code=304, headers={"ETag": tag, **_retry_after(verdict)})
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


@router.get(
    "/v1/reward/{experiment_id}/evidence",
    summary="Read the evidence behind a verdict",
    responses={200: answered(Evidence, ClosedExperiment)},
    openapi_extra=reading(problems=["unknown_experiment", "no_evidence_yet"]),
)
async def get_evidence(request: Request, caller: Reader, experiment_id: str) -> Response:
    """Return the evidence of the served verdict in today's words; before a look there is none."""

    def reading_evidence(connection: Connection) -> str:
        verdict = read_verdict(connection, caller.project_id, known_id(experiment_id))
        registration, current = read_current(connection, caller.project_id, experiment_id)
        if current.evidence is None:
            raise _no_evidence(registration, verdict)
        return document_text(current.evidence)

    document = await runtime(request).store.run(reading_evidence)
    return Response(document, media_type="application/json")


@router.get(
    "/v1/reward/{experiment_id}/effect",
    summary="Read the effect beside a verdict",
    responses={200: answered(Effect)},
    openapi_extra=reading(problems=["unknown_experiment", "no_evidence_yet"]),
)
async def get_effect(request: Request, caller: Reader, experiment_id: str) -> Response:
    """Return the best estimate of the change's effect, as of the last look or the decision."""

    def reading_effect(connection: Connection) -> str:
        verdict = read_verdict(connection, caller.project_id, known_id(experiment_id))
        effect = read_effect(connection, caller.project_id, experiment_id)
        if effect is None:
            registration, _ = read_current(connection, caller.project_id, experiment_id)
            raise _no_evidence(registration, verdict)
        return document_text(effect)

    document = await runtime(request).store.run(reading_effect)
    return Response(document, media_type="application/json")


def _no_evidence(registration: RegistrationAnswer, verdict: PublishedVerdict) -> Problem:
    """Returns why an experiment has had no look."""
    because = registration.situation.sentence or "It ended before anything was measured."
    return Problem("no_evidence_yet", because, headers=_retry_after(verdict))
