"""`POST /v1/reward/register`: a change becomes an experiment."""

import math
from datetime import UTC, datetime
from typing import Annotated, Self

from fastapi import APIRouter, Depends
from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.caller import Registrar
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.body import body_of
from api.wire.documentation import answered, json_body, reading
from api.wire.shape import (
    Actor,
    Commit,
    FlagName,
    FreeForm,
    MetricName,
    Name,
    RoutePattern,
    Shape,
    by_form,
    named,
)
from domain.lineage.flag import COMMIT_FLAG, Flag, number_of, spellings
from domain.registration import GUARDRAIL_PACE_SECONDS, RegisteredExperiment, Registration
from storage.experiments.experiments import register
from storage.verdicts.next_look import read_first_look

router = APIRouter(tags=["reward"])


class TargetMetric(Shape):
    """A metric with the worth of a conversion, which makes `value_at_risk` known."""

    name: MetricName
    # Bounded, so that no product of it leaves the doubles.
    value_per_conversion: Annotated[
        float, Field(ge=-1e12, le=1e12, allow_inf_nan=False, description="Dollars.")
    ]


FlagValue = Annotated[
    Annotated[str, Field(max_length=256, pattern=r"\S")]
    | bool
    | Annotated[int, Field(ge=-(2**53), le=2**53)]
    | Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)],
    AfterValidator(named),
]


def _no_build(name: str) -> str:
    if name == COMMIT_FLAG:
        rule = "names the build in OpenFeature and OpenTelemetry: give the flag another name"
        raise PydanticCustomError("reserved_name", rule)
    return name


def _spelled(value: FlagValue) -> str:
    """Returns a value as its events will have it: a client prints 2.50 as 2.5."""
    text = str(value).strip()
    number = number_of(text)
    return text if number is None else str(number)


class TreatmentFlag(Shape):
    """A change behind a feature flag: a single build, two behaviours."""

    name: Annotated[FlagName, AfterValidator(_no_build)]
    treatment: FlagValue = Field(description="The value under test.")
    control: FlagValue | None = Field(
        default=None,
        description="What it is compared with; by default the opposite of true or false, else the"
        " only other value that events name. Of several nothing is answered until it is named.",
    )

    @model_validator(mode="after")
    def _differ(self) -> Self:
        flag = self.flag()
        if flag.control in spellings(flag.treatment):
            raise PydanticCustomError("same_value", "treatment and control are the same value")
        return self

    def flag(self) -> Flag:
        """Returns the flag as the store takes it."""
        control = None if self.control is None else _spelled(self.control)
        return Flag(name=self.name, treatment=_spelled(self.treatment), control=control)


class RegistrationBody(Shape):
    """A registration: every member is optional."""

    deploy_id: Name | None = Field(
        default=None, description="By default the latest production deploy."
    )
    treatment_commit: Commit | None = Field(
        default=None, description="By default that deploy's commit."
    )
    target_metric: (
        Annotated[
            Annotated[MetricName, Tag("<text>")] | Annotated[TargetMetric, Tag("<object>")],
            Discriminator(by_form),
        ]
        | None
    ) = Field(default=None, description="By default the project's.")
    control_commit: Commit | None = Field(
        default=None, description="By default what users had before."
    )
    treatment_flag: TreatmentFlag | None = Field(default=None, description="Instead of a commit.")
    routes: Annotated[list[RoutePattern], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="By default those that the deploy affects."
    )
    guardrails: Annotated[list[MetricName], Field(max_length=50)] | None = Field(
        default=None, description="Beside the project's, which always hold unless it unlocks them."
    )
    actor: Actor | None = Field(default=None, description="Who, or which agent, asks.")
    metadata: FreeForm | None = None

    def registration(self) -> Registration:
        """Returns the registration as the store takes it."""
        metric = self.target_metric
        valued = metric if isinstance(metric, TargetMetric) else None
        return Registration(
            deploy_id=self.deploy_id,
            treatment_commit=self.treatment_commit,
            target_metric=metric.name if isinstance(metric, TargetMetric) else metric,
            value_per_conversion=valued.value_per_conversion if valued else None,
            control_commit=self.control_commit,
            treatment_flag=None if self.treatment_flag is None else self.treatment_flag.flag(),
            routes=self.routes,
            guardrails=self.guardrails,
            metadata=self.metadata,
            actor=self.actor,
        )


_EXAMPLES = {
    "all defaults": {},
    "a commit and a metric": {"treatment_commit": "4f2a9c1d", "target_metric": "activation"},
    "a feature flag": {"treatment_flag": {"name": "new_cart", "treatment": True}},
    "with a value": {"target_metric": {"name": "trial_to_paid", "value_per_conversion": 49.0}},
}


@router.post(
    "/v1/reward/register",
    status_code=201,
    summary="Register an experiment",
    responses={201: answered(RegisteredExperiment)},
    openapi_extra=reading(
        body=json_body(RegistrationBody),
        examples=_EXAMPLES,
        problems=[
            *("ambiguous_commit", "experiment_open", "locked", "no_threshold", "rate_limited")
        ],
    ),
)
async def post_registration(
    request: Request,
    caller: Registrar,
    body: Annotated[RegistrationBody, Depends(body_of(RegistrationBody))],
) -> Response:
    """Register a change; the same change and metric, while open, is the same experiment."""

    def registering(connection: Connection) -> tuple[str, datetime | None]:
        registered = register(connection, caller.project_id, body.registration())
        first_look_at = read_first_look(connection, caller.project_id, registered)
        return registered.experiment_id, first_look_at

    await runtime(request).rate_limit.admit_registration(request, caller)
    store = runtime(request).store
    id_, first_look_at = await store.run_in_turn(caller.project_id, registering)
    headers = _first_look(first_look_at)
    return answer(RegisteredExperiment(experiment_id=id_), status=201, headers=headers)


def _first_look(at: datetime | None) -> dict[str, str] | None:
    """Returns when to ask first: at the target's first look, or in an hour for a guardrail's."""
    seconds = 0 if at is None else math.ceil((at - datetime.now(UTC)).total_seconds())
    return {"Retry-After": str(min(seconds, GUARDRAIL_PACE_SECONDS))} if seconds > 0 else None
