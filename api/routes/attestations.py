"""`GET /v1/reward/{id}/attestation`: a verdict to hand on, signed, and the key to check it by."""

from datetime import UTC, datetime
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.routes.verdicts import known_id
from api.runtime.caller import Reader
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.documentation import answered, reading
from domain.evidence.attestation import Envelope
from storage.tenants.attestations import Attestations
from storage.views.attestation import statement_on

router = APIRouter(tags=["reward"])
_PEM = "application/x-pem-file"


@router.get(
    "/v1/reward/{experiment_id}/attestation",
    summary="Hand the verdict on, signed",
    responses={200: answered(Envelope)},
    openapi_extra=reading(problems=["unknown_experiment"]),
)
async def get_attestation(request: Request, caller: Reader, experiment_id: str) -> Response:
    """Return the published verdict, open or decided, as a signed in-toto statement in DSSE."""
    now = datetime.now(UTC).replace(microsecond=0)
    name = known_id(experiment_id)
    stating = partial(statement_on, project_id=caller.project_id, experiment_id=name, now=now)
    statement = await runtime(request).store.run(stating)
    return answer(_attestations(request).signed(statement))


@router.get(
    "/.well-known/deploy-reward-key",
    summary="The key that verdicts are signed with",
    response_class=Response,
    responses={200: {"content": {_PEM: {"schema": {"type": "string"}}}}},
    openapi_extra=reading(keys=()),
)
async def get_key(request: Request) -> Response:
    """Return the public half of the service's Ed25519 key, as PEM."""
    return Response(_attestations(request).public_key, media_type=_PEM)


def _attestations(request: Request) -> Attestations:
    attestations: Attestations = request.scope["state"]["attestations"]
    return attestations
