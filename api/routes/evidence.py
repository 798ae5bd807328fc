"""`GET /v1/reward/{experiment_id}/...`: what a verdict compares, its evidence, and the effect."""

from fastapi import APIRouter
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.routes.verdicts import known_id, retry_after
from api.runtime.caller import Reader
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.documentation import answered, reading
from api.wire.problem import Problem
from domain.document import document_text
from domain.evidence.document import ClosedExperiment, Evidence
from domain.evidence.effect import Effect
from domain.registration import RegistrationAnswer
from storage.verdicts.publication import PublishedVerdict
from storage.views.published import read_effect, read_verdict
from storage.views.registrations import read_current

router = APIRouter(tags=["reward"])


@router.get(
    "/v1/reward/{experiment_id}/registration",
    summary="Read what an experiment compares and needs",
    responses={200: answered(RegistrationAnswer)},
    openapi_extra=reading(problems=["unknown_experiment"]),
)
async def get_registration(request: Request, caller: Reader, experiment_id: str) -> Response:
    """Return the changes under test, their control, and the deploy or base that is missing."""

    def reading_registration(connection: Connection) -> RegistrationAnswer:
        return read_current(connection, caller.project_id, known_id(experiment_id))[0]

    return answer(await runtime(request).store.run(reading_registration))


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
    return Problem("no_evidence_yet", because, headers=retry_after(verdict))
