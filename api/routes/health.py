"""`/healthz`, `/readyz` and `/metrics`: for orchestrators and monitors, without a key."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from api.runtime.gauges import StoreGauges
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.documentation import PlainRoute, reading
from api.wire.problem import Problem
from storage.postgres.write_probe import probe_writing
from storage.schema.migrate import is_newest

router = APIRouter(route_class=PlainRoute, tags=["operation"])


@router.get("/healthz", summary="Is the process up?")
async def get_health(_: Request) -> Response:
    """Answer 200 as long as the process does."""
    return answer({"status": "ok"})


@router.get(
    "/readyz",
    summary="Can it serve?",
    openapi_extra=reading(keys=(), problems=["store_unavailable", "not_migrated"]),
)
async def get_readiness(request: Request) -> Response:
    """Answer 200 when the store can be reached and written and is of this version, else 503."""
    if not await runtime(request).store.run(_is_ready):
        detail = "the store is of another version: run `deploy-reward migrate`"
        raise Problem("not_migrated", detail, headers={"Retry-After": "5"})
    return answer({"status": "ready"})


def _is_ready(connection: Connection) -> bool:
    """Tells whether the store is of this version, and shows that it can be written if so."""
    if not is_newest(connection):
        return False
    probe_writing(connection)
    return True


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
async def get_metrics(request: Request) -> Response:
    """Answer with what all workers counted, and how the service fares; no label names a project."""
    gauges: StoreGauges = request.scope["state"]["gauges"]
    metrics = runtime(request).meters.exposition() + await gauges.exposition()
    return Response(metrics, media_type=CONTENT_TYPE_LATEST)
