"""`/v1/places`: a change asks for a flag or a canary's share, and gives it back."""

import re
from typing import Annotated, Self

from fastapi import APIRouter, Depends, Query
from places.listing import list_places, read_place
from places.queue import MOST_OPEN, PlaceRequest, advance, ask, give_back
from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.routes.closing import NoMembers
from api.routes.experiments import TreatmentFlag
from api.runtime.caller import Reader, Registrar
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.body import body_of
from api.wire.documentation import answered, json_body, reading
from api.wire.shape import NO_NUL, Actor, Commit, Environment, MetricName, Shape, named
from domain.planning.place import ACCEPT_HARM, PATIENCE_HOURS, Place, PlaceList, PlaceState
from domain.registration import PRODUCTION
from storage.postgres.refusal import Missing

router = APIRouter(tags=["places"])
_ID = re.compile(r"pl_[0-9a-f]{20}", re.ASCII)


class PlaceBody(Shape):
    """A change that asks for a place; by a flag and a commit it takes whichever is free first."""

    flag: TreatmentFlag | None = Field(
        default=None, description="The flag that every build has it behind."
    )
    commit: Commit | None = Field(default=None, description="The commit that brings it.")
    change: Annotated[str, Field(min_length=1, max_length=256), AfterValidator(named)] | None = (
        Field(
            default=None,
            description="The name by which it asks again, of a pull request say; by default the"
            " flag's name, or the commit.",
        )
    )
    environment: Environment = PRODUCTION
    target_metric: MetricName | None = Field(default=None, description="By default the project's.")
    accept_harm: Annotated[float, Field(gt=0, le=1)] = Field(
        default=ACCEPT_HARM,
        description="The change goes to everybody once a loss beyond this share of control's rate"
        " is excluded.",
    )
    patience_hours: Annotated[float, Field(gt=0, le=672)] = Field(
        default=PATIENCE_HOURS, description="It has its place so long at most."
    )
    actor: Actor | None = Field(default=None, description="Who, or which agent, asks.")
    again: bool = Field(
        default=False, description="Whether it wants another place where its last has ended."
    )

    @model_validator(mode="after")
    def _is_measurable(self) -> Self:
        if self.flag is None and self.commit is None:
            raise PydanticCustomError("no_change_named", "name a flag, a commit, or both")
        return self

    def request(self) -> PlaceRequest:
        """Returns the place as the store is asked for it."""
        name = self.flag.name if self.flag is not None else self.commit
        return PlaceRequest(
            change=self.change or str(name),
            environment=self.environment,
            flag=None if self.flag is None else self.flag.flag(),
            commit=self.commit,
            metric=self.target_metric,
            actor=self.actor,
            accept_harm=self.accept_harm,
            patience_hours=self.patience_hours,
        )


_EXAMPLES = {
    "a flag": {"flag": {"name": "new_cart", "treatment": True}},
    "a pull request": {"change": "#123", "commit": "4f2a9c1d", "actor": "agent-7"},
}


@router.post(
    "/v1/places",
    status_code=201,
    summary="Ask for a place for a change",
    responses={200: answered(Place), 201: answered(Place)},
    openapi_extra=reading(
        body=json_body(PlaceBody),
        examples=_EXAMPLES,
        problems=[
            *("ambiguous_commit", "experiment_open", "locked", "no_threshold", "place_open"),
            *("queue_full", "rate_limited"),
        ],
    ),
)
async def post_place(
    request: Request, caller: Registrar, body: Annotated[PlaceBody, Depends(body_of(PlaceBody))]
) -> Response:
    """Give a change a place, or queue it; asked again in the same words, return its place.

    Whoever asks serves the change: this changes no flag and no router.
    """

    def asking(connection: Connection) -> tuple[Place, bool]:
        place_id, created = ask(connection, caller.project_id, body.request(), again=body.again)
        return read_place(connection, caller.project_id, place_id), created

    await runtime(request).rate_limit.admit_registration(request, caller)
    place, created = await runtime(request).store.run_in_turn(caller.project_id, asking)
    return answer(place, status=201 if created else 200)


@router.get(
    "/v1/places",
    summary="List the places",
    responses={200: answered(PlaceList)},
    openapi_extra=reading(),
)
async def get_places(
    request: Request,
    caller: Reader,
    *,
    state: Annotated[PlaceState | None, Query()] = None,
    change: Annotated[
        str | None, Query(max_length=256, pattern=NO_NUL), AfterValidator(named)
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_OPEN)] = 50,
) -> Response:
    """List the places and the queue, the last changed first."""

    def listing(connection: Connection) -> PlaceList:
        listed = list_places(connection, caller.project_id, change=change, state=state, limit=limit)
        return PlaceList(places=tuple(listed))

    return answer(await runtime(request).store.run(listing))


@router.post(
    "/v1/places/{place_id}/end",
    summary="Give a place back",
    responses={200: answered(Place)},
    openapi_extra=reading(body=json_body(NoMembers), required=False, problems=["unknown_place"]),
)
async def post_end(
    request: Request,
    caller: Registrar,
    place_id: str,
    _: Annotated[NoMembers, Depends(body_of(NoMembers, optional=True))],
) -> Response:
    """End a place by hand, or leave the queue; an ended place stays as it ended."""
    if _ID.fullmatch(place_id) is None:
        raise Missing("unknown_place", "there is no such place")

    store, project_id = runtime(request).store, caller.project_id
    await store.run(lambda connection: give_back(connection, project_id, place_id))
    # The next change has it, in a transaction of its own.
    await store.run(lambda connection: advance(connection, project_id))
    return answer(await store.run(lambda connection: read_place(connection, project_id, place_id)))
