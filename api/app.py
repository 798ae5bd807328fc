"""The application: every endpoint, behind the same envelope, with an answer for each failure."""

import contextlib
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from otlp_receiver import answer as otlp_answer
from otlp_receiver import logs as otlp_logs
from otlp_receiver import traces as otlp_traces
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from api.adapters import release_gate, remote_evaluation
from api.dashboard import pages as dashboard
from api.dashboard.route import asks_for_page, failure_page
from api.ledger import effects, portfolio
from api.ledger import verdicts as ledger
from api.programs import scripts
from api.routes import (
    agents,
    attestations,
    checklist,
    closing,
    deploys,
    evidence,
    experiments,
    health,
    places,
    recorded_deploys,
    revenue_events,
    runtime_events,
    static_graphs,
    verdict_list,
    verdicts,
)
from api.runtime.admissions import Admissions, lacking_members
from api.runtime.agents import Agents, Tools
from api.runtime.checklists import Checklists
from api.runtime.gauges import StoreGauges
from api.runtime.keyring import Keyring
from api.runtime.rate_limit import RateLimit
from api.runtime.settings import ApiSettings
from api.runtime.state import Runtime, runtime
from api.runtime.store import Store
from api.wire.document import document
from api.wire.envelope import Envelope, Failed, problem_response
from api.wire.meters import Meters
from api.wire.problem import PROTOCOL_FORMS, Fault, Problem, invalid
from api.wire.shape import code, detail
from api.wire.signature import Signatures
from storage.log.events import EventWriter
from storage.postgres.engine import StoreUnavailable
from storage.postgres.pool import open_async_engine
from storage.postgres.refusal import Invalid, Refusal
from storage.tenants.attestations import Attestations
from storage.tenants.secret import Assignments, Pseudonyms
from storage.upkeep.gauges import read_gauges
from storage.verdicts.polling import VerdictReader
from storage.views.checklist import read_checklist

PROTOCOL_FORMS.update(dict.fromkeys(otlp_answer.REJECTED, otlp_answer.status_answer))
_DESCRIPTION = (
    "Ship a change to a share of your traffic, and hear keep, roll back, iterate,"
    " or can't say yet, and why."
)
_RETRY_SECONDS = "2"
# Registration, gate, checklist and ledger before verdicts: their addresses are no experiment's.
_ROUTERS = (
    runtime_events.router,
    otlp_logs.router,
    otlp_traces.router,
    static_graphs.router,
    deploys.router,
    recorded_deploys.router,
    revenue_events.router,
    experiments.router,
    closing.router,
    release_gate.router,
    places.router,
    agents.router,
    checklist.router,
    ledger.router,
    effects.router,
    portfolio.router,
    remote_evaluation.router,
    attestations.router,
    verdict_list.router,
    evidence.router,
    verdicts.router,
    health.router,
    scripts.router,
    dashboard.router,
)


def create_app(settings: ApiSettings | None = None, *, tools: Tools | None = None) -> FastAPI:
    """Returns the application.

    Args:
        settings: By default those of the environment.
        tools: Makes the MCP server behind `/mcp`; by default there is none.
    """
    chosen = settings or ApiSettings.from_environment()
    meters = Meters()

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[dict[str, Any]]:
        async with (
            running(chosen, meters) as shared,
            Agents(tools, app) as agents,
            contextlib.aclosing(
                remote_evaluation.Handouts(remote_evaluation.REMEMBERED_SECONDS)
            ) as handouts,
        ):
            yield {
                "runtime": shared,
                "agents": agents,
                "checklists": Checklists(
                    shared.store, read_checklist, kept_seconds=chosen.checklist_seconds
                ),
                "gauges": StoreGauges(shared.store, read_gauges),
                "handouts": handouts,
                "attestations": Attestations(chosen.secret),
            }

    # As they stand: to include a router would build all its routes anew, at the first request.
    plain = [route for router in _ROUTERS for route in router.routes]
    app = FastAPI(
        routes=plain,
        title="Deploy-Attribution and Reward Service",
        description=_DESCRIPTION,
        version=version("deploy-reward"),
        lifespan=lifespan,
        # Relative: of the instance that serves the document.
        servers=[{"url": "/"}],
        redirect_slashes=False,
        redoc_url=None,
        # Asks OpenTelemetry at each request whether it is there: a tenth of a small request's cost.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    for kind, handler in _FAILURES.items():
        app.add_exception_handler(kind, handler)
    app.add_exception_handler(Exception, _raised)
    # Before the framework's own layers, which cost more than most answers.
    app.middleware_stack = Envelope(
        app.build_middleware_stack(), meters, routes=plain, failures=_FAILURES
    )
    app.openapi = partial(document, app)
    return app


_BY_STATUS = {404: "not_found", 405: "method_not_allowed"}


def _problem_of(failure: Exception) -> Problem:
    """Returns the problem that a failure is; the router's are unknown paths and methods."""
    match failure:
        case Problem():
            return failure
        case Invalid():
            fault = Fault(at=failure.pointer, code=failure.code, detail=failure.detail)
            return invalid([fault])
        case Refusal():
            return Problem(failure.code, failure.detail)
        case RequestValidationError():
            return invalid([_fault_of_parameter(error) for error in failure.errors()])
        case HTTPException():
            detail = HTTPStatus(failure.status_code).description
            return Problem(_BY_STATUS[failure.status_code], detail, headers=failure.headers)
        case _:
            detail = f"{failure}; nothing that was acknowledged is lost"
            return Problem("store_unavailable", detail, headers={"Retry-After": _RETRY_SECONDS})


def _fault_of_parameter(error: ErrorDetails) -> Fault:
    return Fault(
        at=str(error["loc"][-1]), code=code(error), detail=detail(error), place="parameter"
    )


async def _raised(_: Request, failure: Exception) -> Response:
    # The framework would answer with a text of its own; the envelope answers with a problem.
    raise failure


async def _failed(request: Request, failure: Exception) -> Response:
    is_page = isinstance(failure, HTTPException) and asks_for_page(request)
    problem, project_id = _problem_of(failure), request.scope["state"].get("project_id")
    if project_id is not None:
        runtime(request).admissions.lacked(project_id, lacking_members(problem.faults))
    return (failure_page if is_page else problem_response)(request, problem)


_FAILURES: Mapping[type[Exception], Failed] = dict.fromkeys(
    (Problem, Refusal, StoreUnavailable, RequestValidationError, HTTPException), _failed
)


@contextlib.asynccontextmanager
async def running(settings: ApiSettings, meters: Meters) -> AsyncGenerator[Runtime]:
    """Opens the shared state; at the end, every waiting event is written first."""
    engine = open_async_engine(settings.database_url)
    # Their own: requests that hold every other connection must not keep an event from its key.
    keys = open_async_engine(settings.database_url, pool_size=2)
    store, keyring = Store(engine), Keyring(Store(keys))
    rate_limit = RateLimit(settings.redis_url)
    try:
        async with (
            Admissions(store).running() as admissions,
            EventWriter(settings.database_url).running() as writer,
            VerdictReader(settings.database_url).running() as reader,
        ):
            yield Runtime(
                settings=settings,
                store=store,
                writer=writer,
                reader=reader,
                keyring=keyring,
                rate_limit=rate_limit,
                admissions=admissions,
                pseudonyms=Pseudonyms(settings.secret),
                signatures=Signatures(assignments=Assignments(settings.secret), meters=meters),
                meters=meters,
            )
    finally:
        await keyring.close()
        await rate_limit.close()
        await keys.dispose()
        await engine.dispose()
