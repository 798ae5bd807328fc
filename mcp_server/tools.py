"""The eight tools: the reward endpoints as an agent calls them."""

import asyncio
import inspect
import json
import math
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field, RootModel

from domain.checklist.line import ChecklistLine
from domain.contract import Contract
from domain.evidence.document import Evidence, evidence_from, looked_at
from domain.evidence.effect import Effect
from domain.listing import VerdictList
from domain.planning.boundary import Boundary
from domain.planning.design import Design
from domain.planning.place import Place
from domain.registration import RegisteredExperiment, RegistrationAnswer
from domain.wording.registration import registration_note
from mcp_server.advice import advice
from mcp_server.client import Answer
from mcp_server.contract import (
    ExperimentId,
    Explanation,
    Plan,
    SetUp,
    TargetMetric,
    TreatmentFlag,
    answer_schema,
    shown,
    written_out,
)
from mcp_server.explanation import explanation, failed_checks, fits
from mcp_server.planning import plan as planned
from mcp_server.planning import set_up as next_step
from mcp_server.reward_api import Refused, RewardApi

Reward = Context[RewardApi, Any]
ShapeT = TypeVar("ShapeT")

# Progress only adds to a poll: a poll that is answered waits no longer for it.
PROGRESS_SECONDS = 1.0
_CHECKLIST = "/v1/reward/checklist"
# So many experiments of usual names fit on a page; of the longest names fewer do.
_PAGES = (5, 3, 1)


async def register_experiment(
    ctx: Reward,
    *,
    deploy_id: Annotated[
        str | None, Field(description="The deploy to measure; default: the latest in production.")
    ] = None,
    treatment_commit: Annotated[
        str | None, Field(description="The commit under test; default: that deploy's commit.")
    ] = None,
    target_metric: Annotated[
        str | TargetMetric | None,
        Field(
            description="The metric to lift: a name, or an object with name and "
            "value_per_conversion (dollars), which makes value_at_risk known. "
            "Default: the project's."
        ),
    ] = None,
    control_commit: Annotated[
        str | None, Field(description="The commit to compare with; default: what users have.")
    ] = None,
    treatment_flag: Annotated[
        TreatmentFlag | None,
        Field(description="Instead of a commit: a feature flag and its value in each arm."),
    ] = None,
    routes: Annotated[
        list[str] | None,
        Field(description="Route patterns whose visitors count; default: those affected."),
    ] = None,
    guardrails: Annotated[
        list[str] | None,
        Field(description="Metrics that must not get worse; default: the project's."),
    ] = None,
    metadata: Annotated[
        dict[str, object] | None, Field(description="Anything to keep with it, up to 4 KiB.")
    ] = None,
) -> CallToolResult:
    """Register a deployed change as a randomized canary experiment.

    Call this after the deploy is recorded and while control and treatment both get traffic. Every
    argument is optional: without any, the latest production deploy is measured on the project's
    default metric. Returns `experiment_id`; pass it to get_verdict. The same change and metric
    again, while it is open, return the same `experiment_id`.
    """
    members = {
        "deploy_id": deploy_id,
        "treatment_commit": treatment_commit,
        "target_metric": _plain(target_metric),
        "control_commit": control_commit,
        "treatment_flag": _plain(treatment_flag),
        "routes": routes,
        "guardrails": guardrails,
        "metadata": metadata,
    }
    registration = {name: value for name, value in members.items() if value is not None}
    api = _api(ctx)
    registered = _shaped(
        RegisteredExperiment, await api.post("/v1/reward/register", registration), api
    )
    read = await _registration(api, registered.experiment_id)
    note = None if read is None else registration_note(read)
    return _result(
        registered,
        "Registered. Call get_verdict with this experiment_id until the verdict is decided; "
        "abstain on every poll is expected while traffic accumulates."
        f"{'' if note is None else f' {note}'}",
    )


async def get_verdict(ctx: Reward, experiment_id: ExperimentId) -> CallToolResult:
    """Poll the verdict of an experiment.

    Poll as often as you like, until `power_state.decided` is true or the verdict is not `abstain`:
    the test stays valid at every look. The second text block says when the next look can come. Then
    act: `keep` means ship; `rollback` means revert; `iterate` means revise
    using `guardrail_breaches`; `abstain` means log `abstain_reason`. `abstain` is a normal result,
    not an error: `power` means that more traffic is needed.
    """
    return await _polled(_api(ctx), experiment_id)


async def subscribe(ctx: Reward, experiment_id: ExperimentId) -> CallToolResult:
    """Poll the verdict of an experiment once, exactly as get_verdict does.

    In this version nothing is pushed: call it again to poll until `power_state.decided` is true or
    the verdict is not `abstain`. To a client that asks for progress it reports the sessions; prefer
    get_verdict elsewhere.
    """
    api = _api(ctx)
    if "progress_token" not in (ctx.request_context.meta or {}):
        return await _polled(api, experiment_id)
    evidence = asyncio.create_task(_outcome(api.experiment(experiment_id, "evidence")))
    try:
        polled = await _polled(api, experiment_id)
        await asyncio.wait([evidence], timeout=PROGRESS_SECONDS)
        if evidence.done():
            await _report(ctx, evidence.result())
    finally:
        evidence.cancel()
    return polled


async def list_experiments(
    ctx: Reward,
    *,
    status: Annotated[
        Literal["open", "decided"], Field(description="open: still running; decided: final.")
    ] = "open",
    cursor: Annotated[
        str | None,
        Field(max_length=512, description="next_cursor of the page before; default: first page."),
    ] = None,
) -> CallToolResult:
    """List the project's open experiments, or its decided ones, the newest first.

    Use it to find an `experiment_id`. While `next_cursor` is not
    null, call again with it as `cursor`. Then call get_verdict or explain.
    """
    page = await _page(_api(ctx), status=status, cursor=cursor)
    return _result(page, _next_page(page, status=status))


async def explain(ctx: Reward, experiment_id: ExperimentId) -> CallToolResult:
    """Explain an experiment by its evidence.

    Returns the lifts that are excluded already, the sessions so far and needed, when a decision is
    likely, and which set-up checks fail, with their fixes. Use it when a verdict abstains long,
    or with a reason other than `power`.
    """
    api = _api(ctx)
    evidence, checklist, registration = await asyncio.gather(
        _outcome(api.experiment(experiment_id, "evidence")),
        _outcome(api.read(_CHECKLIST)),
        _registration(api, experiment_id),
    )
    if isinstance(evidence, ToolError):
        raise evidence
    try:
        document = evidence_from(evidence.body)
    except msgspec.ValidationError:
        raise _foreign(api) from None
    # The checklist only adds to the evidence: without it the explanation still stands.
    checks = checklist.body if isinstance(checklist, Answer) else None
    faults = failed_checks(checks, experiment_id)
    effect = None
    if isinstance(document, Evidence) and document.effect is not None:
        # The evidence of a decided verdict stands; its effect may have been measured since.
        fresh = await _outcome(api.experiment(experiment_id, "effect"))
        effect = _shaped(Effect, fresh, api) if isinstance(fresh, Answer) else None
    return _result(explanation(document, faults, registration, effect=effect))


async def plan(
    ctx: Reward,  # noqa: ARG001 (each tool has it)
    *,
    sessions_per_day: Annotated[float, Field(gt=0, description="Of both arms.")],
    rate: Annotated[float, Field(gt=0, lt=1, description="Share that converts.")],
    share: Annotated[float, Field(gt=0, lt=1, description="The canary's.")],
    sample_rate: Annotated[float, Field(gt=0, le=1, description="Share measured.")] = 1.0,
    typical_lifts: Annotated[
        tuple[float, ...], Field(description="The setting.")
    ] = Boundary.typical_lifts,
) -> CallToolResult:
    """Plan a canary before it begins.

    Returns days until each lift is detected or loss excluded, and quicker designs.
    """
    try:
        design = Design(
            sessions_per_day=sessions_per_day, rate=rate, share=share, sample_rate=sample_rate
        )
        boundary = Boundary(typical_lifts=typical_lifts)
    except ValueError as error:
        raise ToolError(f"{error}. Correct the arguments and call again.") from None
    return _result(planned(design, boundary))


async def set_up(ctx: Reward) -> CallToolResult:
    """Return the next step to wire the project, and its failed checks.

    Do it, wait a minute, and call again until `step` is null. Use it before the first experiment,
    and when an experiment gets no units or abstains with a reason other than `power`.
    """
    api = _api(ctx)
    lines = _shaped(list[ChecklistLine], await api.read(_CHECKLIST), api)
    step = next_step(lines, url=api.address.url)
    said = ["All is wired: register_experiment after a deploy."] if step["step"] is None else []
    return _result(step, *said)


async def place(
    ctx: Reward,
    *,
    flag: Annotated[str | None, Field(description="Its boolean flag, in every build.")] = None,
    commit: Annotated[str | None, Field(description="That brings it.")] = None,
    change: Annotated[str | None, Field(description="Its name: a pull request, say.")] = None,
) -> CallToolResult:
    """Ask for a flag or a canary's share for a change, or for its next step.

    Name a flag, a commit or both. Do as `action` says, and call again with the same arguments for
    the next step.
    """
    named = None if flag is None else {"name": flag, "treatment": True, "control": False}
    members = {"flag": named, "commit": commit, "change": change}
    api = _api(ctx)
    asked = {name: value for name, value in members.items() if value is not None}
    place = _shaped(Place, await api.post("/v1/places", asked), api)
    return _result(place, place.sentence)


async def _page(
    api: RewardApi, *, status: Literal["open", "decided"], cursor: str | None
) -> VerdictList:
    """A page of the list that fits, of a single experiment at least."""
    for limit in _PAGES:
        answer = await api.read("/v1/reward", status=status, limit=limit, cursor=cursor)
        page = _shaped(VerdictList, answer, api)
        if len(page.experiments) <= limit and fits(shown(page)):
            return page
    raise _foreign(api)


def _next_page(page: VerdictList, *, status: str) -> str:
    if page.next_cursor is not None:
        return "There are more: call list_experiments with next_cursor as cursor."
    if page.experiments:
        return "There are no more."
    begins = " register_experiment begins an experiment." if status == "open" else ""
    return f"There is no {status} experiment.{begins}"


async def _report(ctx: Reward, evidence: Answer | ToolError) -> None:
    """Report how far the traffic has come, where the evidence shows it."""
    if isinstance(evidence, Refused) and evidence.code == "no_evidence_yet":
        await ctx.report_progress(0, message="No look at the traffic yet.")
    if isinstance(evidence, ToolError):
        return
    try:
        document = looked_at(evidence_from(evidence.body))
    except msgspec.ValidationError:
        return
    counted = 0 if document is None else document.sessions.accumulated
    required = None if document is None else document.sessions.required
    needed = None if required is None else math.ceil(required)
    of = "" if needed is None else f" of about {needed:,}"
    await ctx.report_progress(counted, needed, f"{counted:,}{of} sessions.")


def tools() -> list[Tool]:
    """The tools with their schemas, descriptions and annotations."""
    registering, asking = (
        _reading(title).model_copy(update={"read_only_hint": False})
        for title in ("Register an experiment", "Ask for a place")
    )
    return [
        _tool(register_experiment, registering, RegisteredExperiment),
        _tool(place, asking, Place),
        _tool(get_verdict, _reading("Get a verdict"), Contract),
        _tool(subscribe, _reading("Poll a verdict once"), Contract),
        _tool(list_experiments, _reading("List experiments"), VerdictList),
        _tool(explain, _reading("Explain an experiment"), Explanation),
        _tool(set_up, _reading("Next step of the set-up"), SetUp),
        _tool(plan, _reading("Plan a canary"), Plan),
    ]


class _Document(RootModel[dict[str, Any]]):
    """An answer whose schema is that of a document, by which the tool has read it already."""


def _tool(
    function: Callable[..., Any], annotations: ToolAnnotations, answer: type[msgspec.Struct]
) -> Tool:
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    described = "\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
    tool = Tool.from_function(function, description=described, annotations=annotations)
    tool.fn_metadata = _Reader(
        arg_model=tool.fn_metadata.arg_model,
        output_schema=answer_schema(answer),
        output_model=_Document,
    )
    # The SDK drops arguments that a tool does not name; the schema says that we refuse them.
    tool.parameters = written_out({**tool.parameters, "additionalProperties": False})
    return tool


class _Reader(FuncMetadata):
    """Reads the arguments of a call, some of which agents quote twice."""

    def pre_parse_json(self, data: dict[str, object]) -> dict[str, object]:
        """Returns arguments without a second pair of quotation marks.

        Else the SDK reads the text `null` as an argument that is left out.
        """
        return {name: _unquoted(value) for name, value in data.items()}


def _unquoted(value: object) -> object:
    """Returns the text, list or object that a text of JSON holds; any other value as it is."""
    if not isinstance(value, str) or not value.strip().startswith(('"', "[", "{")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _reading(title: str) -> ToolAnnotations:
    return ToolAnnotations(
        title=title,
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=False,
    )


async def _polled(api: RewardApi, experiment_id: str) -> CallToolResult:
    answer = await api.experiment(experiment_id)
    contract = _shaped(Contract, answer, api)
    registration = await _registration(api, experiment_id)
    return _result(contract, advice(contract, answer.retry_after, registration))


async def _registration(api: RewardApi, experiment_id: str) -> RegistrationAnswer | None:
    """A registration; None where the service answers none that we know: it only adds."""
    outcome = await _outcome(api.experiment(experiment_id, "registration"))
    if not isinstance(outcome, Answer):
        return None
    try:
        return msgspec.convert(outcome.body, RegistrationAnswer)
    except msgspec.ValidationError:
        return None


async def _outcome(request: Awaitable[Answer]) -> Answer | ToolError:
    """The answer, or its fault as a value, so that a fault does not abandon the other request."""
    try:
        return await request
    except ToolError as fault:
        return fault


def _shaped(document_type: type[ShapeT], answer: Answer, api: RewardApi) -> ShapeT:
    """The answer as the document it must be; members that later versions add are left aside."""
    try:
        return msgspec.convert(answer.body, document_type)
    except msgspec.ValidationError:
        raise _foreign(api) from None


def _result(answer: msgspec.Struct | dict[str, object], *sentences: str) -> CallToolResult:
    structured = shown(answer)
    texts = [json.dumps(structured, ensure_ascii=False), *sentences]
    return CallToolResult(
        content=[TextContent(type="text", text=text) for text in texts],
        structured_content=structured,
    )


def _plain(value: str | BaseModel | None) -> object:
    return value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value


def _api(ctx: Reward) -> RewardApi:
    return ctx.request_context.lifespan_context.of(ctx.request_context.request)


def _foreign(api: RewardApi) -> ToolError:
    return ToolError(
        f"{api.address.origin} answered with JSON that is not the service's. Check that "
        "SERVICE_API_URL names the service itself, and that both are of the same version."
    )
