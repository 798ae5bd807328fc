"""`/v1/reward/gate`: Argo Rollouts, Flagger and their like ask whether a rollout may go on."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.caller import Reader
from api.runtime.keyring import HEADER, admitted
from api.runtime.state import runtime
from api.wire.answer import answer
from api.wire.body import JSON, announces_body, body_of
from api.wire.documentation import json_body, reading
from api.wire.shape import NO_NUL, Commit, EnvironmentInQuery, MetricName, OpenShape, Shape
from domain.registration import PRODUCTION, Registration
from domain.wording.registration import HISTORY
from domain.wording.situation import leads
from domain.words import EndedBecause, State
from storage.experiments.commit_ids import whole_id
from storage.experiments.experiments import register
from storage.releases.commit_experiments import experiments_of_commit
from storage.releases.freeze import current_freeze
from storage.releases.question import commit_in_question, held_back
from storage.releases.release_gate import (
    POLICY_PATTERN,
    Judgment,
    Phase,
    frozen,
    gate_policy,
    judgment,
    unregistered,
)
from storage.tenants.default_metric import default_metric
from storage.tenants.keys import KeyKind
from storage.tenants.settings import read_settings
from storage.verdicts.situations import SituationReading
from storage.views.registrations import read_current

router = APIRouter(tags=["reward"])


def _is_policy(policy: str) -> str:
    try:
        gate_policy(policy)
    except ValueError as error:
        raise PydanticCustomError("invalid_policy", "{rule}", {"rule": str(error)}) from None
    return policy


Policy = Annotated[
    str,
    Field(max_length=64, json_schema_extra={"pattern": POLICY_PATTERN}),
    AfterValidator(_is_policy),
]


class Question(OpenShape):
    """The change in question, and the policy of the gate."""

    treatment_commit: Commit | None = Field(
        default=None,
        description="However much of its id. By default the only declared canary here.",
    )
    environment: EnvironmentInQuery = PRODUCTION
    target_metric: Annotated[MetricName, Field(pattern=NO_NUL)] | None = Field(
        default=None, description="By default the project's."
    )
    policy: Policy = Field(default="keep", description="keep, no-breach, or no-harm:SHARE.")


class GateQuestion(Question, Shape):
    """The same in a body, which may hold the key."""

    key: Annotated[str, Field(max_length=256)] | None = Field(
        default=None, description="The project key, for who can send no header."
    )


class GateRequest(OpenShape):
    """Flagger's webhook body; only `metadata` is ours."""

    metadata: GateQuestion = GateQuestion()


class FreezeShown(Shape):
    """Whether gates hold and webhooks wait."""

    frozen: bool
    frozen_at: datetime | None
    reason: str | None


class GateAnswer(Shape):
    """The answer that Argo Rollouts reads."""

    phase: Phase
    verdict: Literal["keep", "rollback", "iterate", "abstain"]
    sentence: str


_BODY = body_of(GateRequest)


async def _judge(
    request: Request, project_id: int, question: Question, *, registers: bool
) -> GateAnswer:
    policy = gate_policy(question.policy)

    def judging(connection: Connection) -> Judgment:
        commit = commit_in_question(
            connection, project_id, question.environment, named=question.treatment_commit
        )
        freeze = current_freeze(connection)
        if isinstance(commit, Judgment):
            return commit if freeze is None else frozen(freeze)
        settings = read_settings(connection, project_id)
        metric = question.target_metric or default_metric(connection, project_id, settings)

        def judged() -> Judgment | None:
            experiments = experiments_of_commit(
                connection, project_id, question.environment, commit
            )
            return judgment(experiments, metric=metric, policy=policy, freeze=freeze)

        answer = judged() or held_back(connection, project_id, question.environment, commit)
        if answer is None and registers:
            registration = Registration(
                treatment_commit=whole_id(connection, project_id, commit),
                target_metric=question.target_metric,
                environment=question.environment,
            )
            register(connection, project_id, registration)
            answer = judged()
        return answer or unregistered(commit, metric)

    def answering(connection: Connection) -> GateAnswer:
        judged = judging(connection)
        if (experiment := judged.experiment) is None:
            return GateAnswer(phase=judged.phase, verdict="abstain", sentence=judged.because)
        registration, current = read_current(connection, project_id, experiment.experiment_id)
        evidence, situation = current.evidence, current.situation
        said = situation.sentence if evidence is None else evidence.sentence
        said = f"{_as_of_now(judged, current)} {said or 'No look yet: nothing was measured.'}"
        return GateAnswer(
            phase=judged.phase,
            verdict=experiment.contract.verdict.value,
            sentence=f"{said} {HISTORY}" if registration.retrospective else said,
        )

    return await runtime(request).store.run(answering)


def _as_of_now(judged: Judgment, current: SituationReading) -> str:
    """Returns the reason, in view of a withdrawal since the last look."""
    because = judged.because
    is_gone = _is_taken_back(current)
    if is_gone or leads(current.situation):
        because = because.replace("Go on:", "Look before you go on:")
    return because.replace("Go back:", "Already taken back:") if is_gone else because


def _is_taken_back(current: SituationReading) -> bool:
    """Tells whether the change was withdrawn from all users, so that no gate asks for it."""
    ended = None if current.evidence is None else current.evidence.ended_because
    withdrawn = current.acted is not None and current.acted.word == "withdrawn"
    over = EndedBecause.WITHDRAWN is ended or current.situation.state is State.WITHDRAWN
    return withdrawn or over


def _announces_json(request: Request) -> bool:
    """Tells whether a request says that it has a JSON body."""
    kind = request.headers.get("Content-Type", "").partition(";")[0]
    return kind.strip().lower() == JSON and announces_body(request)


@router.get(
    "/v1/reward/gate",
    summary="May a rollout go on?",
    responses={200: {"model": GateAnswer}},
    openapi_extra=reading(),
)
async def get_gate(
    request: Request, caller: Reader, question: Annotated[Question, Query()]
) -> Response:
    """Always answer 200, as a web metric of Argo Rollouts needs; `phase` holds the judgment."""
    judged = await _judge(request, caller.project_id, question, registers=False)
    return answer(judged.model_dump())


@router.post(
    "/v1/reward/gate",
    summary="May a rollout go on? 200 is yes",
    responses={
        200: {"content": {"text/plain": {}}, "description": "Yes, and why."},
        403: {"content": {"text/plain": {}}, "description": "Not now, and why."},
    },
    response_class=PlainTextResponse,
    openapi_extra=reading(
        body=json_body(GateRequest),
        examples={
            "of Flagger": {
                "name": "shop",
                "namespace": "production",
                "phase": "Progressing",
                "metadata": {"policy": "no-breach"},
            }
        },
    ),
)
async def post_gate(
    request: Request,
    want: Annotated[
        Literal["go", "rollback"], Query(description="`rollback`: 200 means go back.")
    ] = "go",
) -> Response:
    """Answer 200 to go on and 403 to hold, as Flagger's webhooks read it."""
    # A request without a JSON body is asked for its key first, as everywhere.
    if HEADER in request.headers or not _announces_json(request):
        await admitted(request, KeyKind.PROJECT)
    body = await _BODY(request)
    caller = await admitted(request, KeyKind.PROJECT, inside=body.metadata.key)
    judged = await _judge(request, caller.project_id, body.metadata, registers=True)
    wanted = judged.phase == ("Failed" if want == "rollback" else "Successful")
    return PlainTextResponse(judged.sentence, status_code=200 if wanted else 403)


@router.get(
    "/v1/reward/freeze",
    summary="Is the service frozen?",
    responses={200: {"model": FreezeShown}},
    openapi_extra=reading(),
)
async def get_freeze(request: Request, _: Reader) -> Response:
    """Tell whether gates hold and webhooks wait, since when and why."""
    freeze = await runtime(request).store.run(current_freeze)
    return answer(
        {
            "frozen": freeze is not None,
            "frozen_at": None if freeze is None else freeze.frozen_at,
            "reason": None if freeze is None else freeze.reason,
        }
    )
