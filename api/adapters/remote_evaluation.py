"""`POST /ofrep/v1/evaluate/flags`: an OpenFeature client gets the arm of a unit, and its build."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from api.runtime.keyring import Caller, admitted
from api.runtime.origin import preflight, require_origin
from api.runtime.recent import Recent
from api.runtime.state import Runtime, runtime
from api.wire.answer import answer, etag, is_known
from api.wire.body import shaped
from api.wire.documentation import json_body, reading
from api.wire.envelope import EVALUATION_PATH
from api.wire.problem import Fault, Problem
from api.wire.shape import Environment, Name, OpenShape, Shape
from domain.absence import unit_name
from domain.draw import FLAG_SHARE, Offer, drawn
from domain.lineage.flag import COMMIT_FLAG, number_of, signed_value
from domain.registration import PRODUCTION
from storage.releases.handout import FlagExperiment, Handout, read_handout
from storage.tenants.keys import KeyKind
from storage.tenants.secret import assignment_message, assignment_token

router = APIRouter(tags=["assignment"])

# By project and environment, for half a second: after a withdrawal no unit is given a second later.
Handouts = Recent[tuple[int, str], Handout]
REMEMBERED_SECONDS = 0.5


def _or_production(environment: object) -> object:
    return PRODUCTION if environment is None else environment


class EvaluationContext(OpenShape):
    """The members of an OpenFeature client's context that draw."""

    targetingKey: Name = Field(  # noqa: N815 - OpenFeature's name
        description="The unit, as events name it in session_id."
    )
    user_ref: Annotated[str, Field(max_length=256)] | None = Field(
        default=None,
        description="Where users are the units, who is drawn: as events name the user in user_ref.",
    )
    environment: Annotated[Environment, BeforeValidator(_or_production)] = PRODUCTION
    # The property that names the unit may be among the other members.
    model_config = ConfigDict(extra="allow")


class EvaluationRequest(OpenShape):
    """The body of an evaluation, as the protocol has it."""

    context: EvaluationContext


class Evaluation(Shape):
    """A flag's value for the unit."""

    key: str
    value: bool | float | str
    reason: str
    variant: str
    metadata: dict[str, str | float]


class Evaluations(Shape):
    """All flags of the environment."""

    flags: list[Evaluation]


_BODY = TypeAdapter(EvaluationRequest)
_EXAMPLE = {"context": {"targetingKey": "s-4711"}}
_KEYS = ("ProjectKey", "Bearer")


@dataclass(frozen=True, kw_only=True)
class _Arm:
    """A flag's outcome for a unit."""

    key: str
    value: str
    variant: str
    reason: str
    facts: Mapping[str, str | float]

    @property
    def shown(self) -> bool | int | float | str:
        """The value as clients read it: by its spelling a boolean, a number or a text."""
        if self.key == COMMIT_FLAG:
            return self.value
        # Digit for digit: Python's client takes 10 for no float, and 10.0 for no integer.
        number = number_of(self.value)
        return {"true": True, "false": False}.get(
            self.value, self.value if number is None else number
        )


_PROBLEMS = ["invalid_evaluation", "remote_evaluation_off", "origin_not_allowed", "rate_limited"]


@router.post(
    EVALUATION_PATH + "/{key:path}",
    summary="Evaluate a single flag for a unit (OFREP)",
    responses={200: {"model": Evaluation}},
    openapi_extra=reading(
        body=json_body(EvaluationRequest),
        examples={"a session": _EXAMPLE},
        keys=_KEYS,
        # A path takes no line feed.
        problems=[*_PROBLEMS, "flag_not_found", "not_found"],
    ),
)
async def evaluate_flag(request: Request, key: str) -> Response:
    """Return the arm of a unit: `commit` is the build to serve, any other key a flag under test."""
    evaluated = await _evaluated(request, key)
    for shown in evaluated:
        if shown["key"] == key:
            return answer(shown)
    details = (
        "no open experiment of the environment that names control's value tests this flag, and no"
        " build is recorded"
    )
    raise Problem(
        "flag_not_found",
        "no open experiment tests this flag",
        members={"key": key, "errorCode": "FLAG_NOT_FOUND", "errorDetails": details},
    )


@router.post(
    EVALUATION_PATH,
    summary="Evaluate all flags for a unit (OFREP)",
    responses={200: {"model": Evaluations}, 304: {"description": "Nothing has changed."}},
    openapi_extra=reading(
        body=json_body(EvaluationRequest),
        examples={"a session": _EXAMPLE},
        keys=_KEYS,
        problems=_PROBLEMS,
        parameters=[{"name": "If-None-Match", "in": "header", "schema": {"type": "string"}}],
    ),
)
async def evaluate_flags(request: Request) -> Response:
    """Return a unit's arm in each canary and flag under test of its environment."""
    response = answer({"flags": await _evaluated(request, None)})
    tag = etag(bytes(response.body))
    if is_known(request, tag):
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return response


router.add_api_route(EVALUATION_PATH, preflight, methods=["OPTIONS"], include_in_schema=False)
router.add_api_route(
    EVALUATION_PATH + "/{key:path}", preflight, methods=["OPTIONS"], include_in_schema=False
)


async def _evaluated(request: Request, key: str | None) -> list[dict[str, object]]:
    """Returns the evaluations that a request asks for.

    Args:
        key: The flag that it names; None for all.
    """
    shared = runtime(request)
    caller = await admitted(request, KeyKind.PUBLIC, KeyKind.WRITE, bearer=True)
    _require_setting(caller)
    require_origin(request, caller)
    context = (await _read(request, shared, caller, key)).context
    handouts: Handouts = request.scope["state"]["handouts"]
    where = (caller.project_id, context.environment)
    handout = await handouts.read(
        where, lambda: shared.store.run(lambda connection: read_handout(connection, *where))
    )
    units = {"session": context.targetingKey, "user": _pseudonym(shared, caller, context)}
    unit = caller.settings.unit_property
    chosen = "user" if unit else caller.settings.unit
    commit, *flags = _arms(handout, units, chosen, lacking=unit or "user_ref")
    named = [arm for arm in flags if arm is not None and (key is None or arm.key == key)]
    # Events carry the flags that their page asked for, and so does the token.
    token = _token(shared, caller, context, commit=commit, flags=named)
    if commit is None:
        return [_shown(arm, token) for arm in named]
    return [_shown(arm, {**token, "commit": commit.value}) for arm in (commit, *named)]


def _pseudonym(shared: Runtime, caller: Caller, context: EvaluationContext) -> str | None:
    """Returns the pseudonym of the user or of the unit by name; None where neither is named."""
    unit = caller.settings.unit_property
    value = context.user_ref if unit is None else (context.model_extra or {}).get(unit)
    try:
        known = unit_name(value)
    except ValueError as broken:
        fault = Fault(at=f"/context/{unit}", code="invalid_member", detail=str(broken))
        members = {"errorCode": "INVALID_CONTEXT", "errorDetails": f"{unit} {broken}"}
        raise Problem("invalid_evaluation", str(broken), faults=[fault], members=members) from None
    return known and shared.pseudonyms.of(caller.project_id, known, unit=unit).hex()


# By what the setting `ofrep` says.
_KINDS: Mapping[str, Set[KeyKind]] = {
    "off": frozenset(),
    "server": {KeyKind.WRITE},
    "browser": {KeyKind.WRITE, KeyKind.PUBLIC},
}


def _require_setting(caller: Caller) -> None:
    """Refuses a key to which the project hands out no arms."""
    setting = caller.settings.ofrep
    if caller.kind not in _KINDS[setting]:
        detail = f"the project's setting ofrep is {setting}: no {caller.kind.value} key is served"
        members = {"errorCode": "GENERAL", "errorDetails": detail}
        raise Problem("remote_evaluation_off", detail, members=members)


async def _read(
    request: Request, shared: Runtime, caller: Caller, key: str | None
) -> EvaluationRequest:
    """Returns the body; its faults have the protocol's status and members beside ours."""
    try:
        return await shaped(_BODY, await shared.rate_limit.body(request, caller))
    except Problem as problem:
        pointers = {fault.at for fault in problem.faults}
        unit = pointers & {"/context/targetingKey", "/context", ""}
        word = "TARGETING_KEY_MISSING" if unit else "INVALID_CONTEXT"
        members = {"errorDetails": problem.detail, **({} if key is None else {"key": key})}
        if problem.code != "invalid_request":
            problem.members = {"errorCode": "PARSE_ERROR", **members}
            raise
        raise Problem(
            "invalid_evaluation",
            problem.detail,
            faults=problem.faults,
            members={"errorCode": word, **members},
        ) from None


def _arms(
    handout: Handout, units: Mapping[str, str | None], chosen: str, *, lacking: str
) -> Iterator[_Arm | None]:
    """Yields the arm in the builds, None where none is recorded, then an arm for each flag.

    Args:
        units: The session, and the user as the pipeline names it; None while nobody knows it.
        chosen: The project's unit, which draws builds; by `auto` it is the session.
        lacking: The member of the context that an unknown user waits for.
    """
    yield _build_arm(handout, units.get(chosen, units["session"]), lacking)
    for tested in handout.flags:
        yield _flag_arm(tested, None if tested.unit is None else units[tested.unit], lacking)


def _build_arm(handout: Handout, unit: str | None, lacking: str) -> _Arm | None:
    offers = [Offer(salt=canary.commit, share=canary.share) for canary in handout.canaries]
    offer = None if unit is None else drawn(unit, offers)
    commit = handout.baseline if offer is None else offer.salt
    if commit is None:
        return None
    return _Arm(
        key=COMMIT_FLAG,
        value=commit,
        variant="control" if offer is None else "treatment",
        reason=_reason(unit) if offers else "STATIC",
        facts={"share": offer.share} if offer else _lack(unit, lacking) if offers else {},
    )


def _flag_arm(tested: FlagExperiment, unit: str | None, lacking: str) -> _Arm:
    flag = tested.flag
    if flag.control is None:
        raise ValueError(f"{tested.experiment_id} is handed out without a value for control")
    offers = [Offer(salt=flag.change, share=FLAG_SHARE)]
    inside = unit is not None and drawn(unit, offers) is not None
    return _Arm(
        key=flag.name,
        value=flag.treatment if inside else flag.control,
        variant="treatment" if inside else "control",
        reason=_reason(unit),
        facts={
            "experiment_id": tested.experiment_id,
            "share": FLAG_SHARE,
            **({"waits_for": "start"} if tested.unit is None else _lack(unit, lacking)),
        },
    )


def _reason(unit: str | None) -> str:
    return "DEFAULT" if unit is None else "SPLIT"


def _lack(unit: str | None, lacking: str) -> dict[str, str]:
    """Returns the member that an unknown unit waits for: until then it is not drawn."""
    return {"waits_for": lacking} if unit is None else {}


def _token(
    shared: Runtime,
    caller: Caller,
    context: EvaluationContext,
    *,
    commit: _Arm | None,
    flags: list[_Arm],
) -> dict[str, str]:
    """Returns the signed assignment of these arms, where a build is recorded and the unit known.

    Nobody knows whether a session that the public key names was ever served: none is signed for.
    """
    if caller.kind is not KeyKind.WRITE:
        return {}
    if commit is None or any(
        arm.facts.get("waits_for", "start") != "start" for arm in (commit, *flags)
    ):
        return {}
    message = assignment_message(
        environment=context.environment,
        session_id=context.targetingKey,
        commit=commit.value,
        flags={arm.key: signed_value(arm.value) for arm in flags},
    )
    epochs = caller.settings.assignment_epochs
    key = shared.signatures.assignments.key(caller.project_id, epochs[0])
    return {"assignment": assignment_token(key, message)}


def _shown(arm: _Arm, facts: Mapping[str, str | float]) -> dict[str, object]:
    return {
        "key": arm.key,
        "reason": arm.reason,
        "variant": arm.variant,
        "value": arm.shown,
        "metadata": {**facts, **arm.facts},
    }
