"""`/healthz`, `/readyz` and `/metrics`: for orchestrators and monitors, without a key."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from api.answer import answer
from api.problem import Problem
from api.runtime import runtime
from storage.migrate import is_newest

router = APIRouter(tags=["operation"])


@router.get("/healthz", summary="Is the process up?")
async def get_health() -> Response:
    """Answer 200 as long as the process does."""
    return answer({"status": "ok"})


@router.get("/readyz", summary="Can it serve?")
async def get_readiness(request: Request) -> Response:
    """Answer 200 when the store can be reached and is of this version, else 503."""
    if not await runtime(request).store.run(is_newest):
        detail = "the store is of another version: run `deploy-reward migrate`"
        raise Problem("not_migrated", detail, headers={"Retry-After": "5"})
    return answer({"status": "ready"})


@router.get("/metrics", summary="Metrics for Prometheus")
async def get_metrics(request: Request) -> Response:
    """Answer with the counters of this process; no label names a project."""
    metrics = generate_latest(runtime(request).meters.registry)
    return Response(metrics, media_type=CONTENT_TYPE_LATEST)
