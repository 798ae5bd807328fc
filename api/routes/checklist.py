"""`GET /v1/reward/checklist`: the project's set-up checks, as of this minute."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.checklists import checklists
from api.runtime.keyring import admitted
from api.wire.answer import answer
from api.wire.documentation import PlainRoute, json_body, reading
from domain.checklist.line import ChecklistLine
from storage.tenants.keys import READING_KINDS

# It is plain, as the address of a verdict is: of two plain routes, that without a pattern answers.
router = APIRouter(route_class=PlainRoute, tags=["reward"])
_LINES = {"type": "array", "items": json_body(ChecklistLine)["application/json"]}


@router.get(
    "/v1/reward/checklist",
    summary="Read the set-up checklist",
    responses={200: {"content": {"application/json": {"schema": _LINES}}}},
    openapi_extra=reading(
        parameters=[{"name": "Cache-Control", "in": "header", "schema": {"type": "string"}}]
    ),
)
async def get_checklist(request: Request) -> Response:
    """Return the checks: `ok` is null while there is nothing to judge, `fix` the next thing to do.

    Computed when somebody asks, from the log's end and the experiments, and kept for a minute. The
    header `Age` says how many seconds ago that was; `Cache-Control: no-cache` asks for it anew.
    """
    caller = await admitted(request, *READING_KINDS)
    fresh = "no-cache" in request.headers.get("Cache-Control", "").lower()
    checklist = await checklists(request).of(caller.project_id, fresh=fresh)
    return answer(checklist.lines, headers={"Age": str(checklist.age)})
