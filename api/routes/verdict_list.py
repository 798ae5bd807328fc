"""`GET /v1/reward`: a project's experiments with their verdicts, page by page."""

import base64
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.routes.verdicts import known_id
from api.runtime.caller import Reader
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.documentation import answered, reading
from api.wire.moment import RULE as MOMENT_RULE
from api.wire.moment import moment
from api.wire.shape import NO_NUL, Commit, MetricName, Name
from domain.document import time_text
from domain.listing import ListedVerdict, VerdictList
from storage.postgres.refusal import Missing
from storage.views.verdict_list import VerdictFilter, list_verdicts

router = APIRouter(tags=["reward"])


def _moment(value: str) -> str:
    try:
        moment(value)
    except ValueError:
        raise PydanticCustomError("invalid_time", MOMENT_RULE) from None
    return value


def _position(cursor: str) -> tuple[datetime, str]:
    """Returns the experiment after which a page begins."""
    time, _, experiment_id = base64.urlsafe_b64decode(cursor).decode("ascii").partition(" ")
    return moment(time), known_id(experiment_id)


def _cursor(value: str) -> str:
    try:
        _position(value)
    except (ValueError, Missing):
        detail = "must be the next_cursor of an earlier page"
        raise PydanticCustomError("invalid_cursor", detail) from None
    return value


def _after(last: ListedVerdict, *, pending: bool) -> str:
    since = (last.decided_at or last.breached_at) if pending else None
    at = since or last.registered_at
    position = f"{time_text(at)} {last.experiment_id}"
    return base64.urlsafe_b64encode(position.encode()).decode()


@router.get(
    "/v1/reward",
    summary="List experiments",
    responses={200: answered(VerdictList)},
    openapi_extra=reading(problems=["ambiguous_commit"]),
)
async def get_verdicts(
    request: Request,
    caller: Reader,
    *,
    status: Annotated[Literal["open", "decided"] | None, Query()] = None,
    treatment_commit: Annotated[Commit | None, Query(description="However much of its id.")] = None,
    deploy_id: Annotated[Name | None, Query(pattern=NO_NUL)] = None,
    metric: Annotated[MetricName | None, Query(pattern=NO_NUL)] = None,
    decided_after: Annotated[
        str | None, Query(json_schema_extra={"format": "date-time"}), AfterValidator(_moment)
    ] = None,
    pending: Annotated[
        bool,
        Query(
            description="Decisions and breaches that were not acted on yet, the oldest first: the"
            " commit is still the declared canary that it was then."
        ),
    ] = False,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=512), AfterValidator(_cursor)] = None,
) -> Response:
    """List the project's experiments with their verdicts, the newest first.

    With `pending`, the decisions and breaches to act on, the oldest first.
    """
    wanted = VerdictFilter(
        status=status,
        treatment_commit=treatment_commit.lower() if treatment_commit else None,
        deploy_id=deploy_id,
        metric=metric,
        decided_after=moment(decided_after) if decided_after else None,
        pending=pending,
    )
    after = _position(cursor) if cursor else None

    def listing(connection: Connection) -> list[ListedVerdict]:
        # A row more than shown says that there is a next page.
        return list_verdicts(
            connection, caller.project_id, wanted=wanted, limit=limit + 1, after=after
        )

    experiments = await runtime(request).store.run(listing)
    page = experiments[:limit]
    more = len(experiments) > limit
    cursor = _after(page[-1], pending=pending) if more else None
    return answer(VerdictList(experiments=tuple(page), next_cursor=cursor))
