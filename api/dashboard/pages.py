"""`/dashboard`: every page, and the files that pages load."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fastapi import APIRouter
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.dashboard.actions import post_experiment, post_registration
from api.dashboard.experiment import get_evidence, get_experiment, get_live
from api.dashboard.ledger import get_ledger, get_portfolio
from api.dashboard.page.assets import get_asset
from api.dashboard.page.markup import page
from api.dashboard.page.visit import public_address_of, read_for_visitor
from api.dashboard.route import PageRoute
from api.dashboard.settings.audit_trail import get_audit_trail
from api.dashboard.settings.deliveries import DELIVERIES
from api.dashboard.settings.editor import settings_page
from api.dashboard.settings.keys import KEYS
from api.dashboard.settings.kinds import KINDS
from api.dashboard.sign_in import get_sign_in, post_sign_in, post_sign_out
from api.dashboard.verdict import reason_of
from api.runtime.checklists import checklists
from api.wire.problem import Problem
from domain.contract import is_fair
from domain.document import Interval
from domain.wording.headline import Headline, headline_of
from domain.words import State
from storage.experiments.deploy_record import DeployRecord, PostedCommit
from storage.postgres.refusal import Missing
from storage.tenants.sign_ins import Visitor
from storage.views.deploys import read_deploy
from storage.views.findings import ListedFinding, findings_of_commits, list_findings
from storage.views.ramps import ListedRamp, list_ramps, read_ramp_of
from storage.views.reach import reached_routes
from storage.views.recent_traffic import read_names

_DEPLOY = re.compile(r"dep_[0-9a-f]{20}", re.ASCII)
_ON_A_PAGE = 30
_ON_THE_FIRST = 8
_NAMES_OFFERED = 50
_LONGEST_SEARCH = 100
# By the word in the address: which experiments a list shows, as `list_findings` takes it.
_STATES: Mapping[str, bool | None] = {"": None, "running": False, "decided": True}


async def get_overview(request: Request) -> Response:
    """Return the first page of a project: running experiments, and the latest deploys."""
    visitor, (running, decided, ramps) = await read_for_visitor(
        request,
        lambda connection, visitor: (
            list_findings(connection, visitor.project_id, limit=_ON_THE_FIRST + 1, decided=False),
            list_findings(connection, visitor.project_id, limit=_ON_THE_FIRST, decided=True),
            list_ramps(connection, visitor.project_id, limit=5),
        ),
    )
    checklist = await checklists(request).of(visitor.project_id)
    return page(
        request,
        "overview.html",
        checklist=checklist.lines,
        looked_at=checklist.computed_at,
        # An optional line, such as revenue, is neither right nor wrong.
        all_right=all(line.ok is not False for line in checklist.lines),
        running=[_line(finding) for finding in running[:_ON_THE_FIRST]],
        decided=[_line(finding) for finding in decided],
        more_running=len(running) > _ON_THE_FIRST,
        ramps=_listed(ramps),
        address=public_address_of(request),
    )


async def get_deploys(request: Request) -> Response:
    """Return the list of deploys, each change with the steps of its ramp, the newest first."""
    before, sought = _cursor(request), _sought(request)

    def reading(
        connection: Connection, visitor: Visitor
    ) -> tuple[list[ListedRamp], list[ListedFinding]]:
        ramps = list_ramps(
            connection,
            visitor.project_id,
            limit=_ON_A_PAGE + 1,
            words=sought.split(),
            before=before,
        )
        commits = [ramp.commit for ramp in ramps]
        return ramps, findings_of_commits(connection, visitor.project_id, None, commits)

    _, (ramps, findings) = await read_for_visitor(request, reading)
    return page(
        request,
        "deploys.html",
        ramps=_listed(ramps[:_ON_A_PAGE]),
        more=len(ramps) > _ON_A_PAGE,
        lines=[_line(finding) for finding in findings],
        sought=sought,
        first=before is None,
        address=public_address_of(request),
    )


async def get_deploy(request: Request) -> Response:
    """Return the page of a deploy."""
    deploy_id = known_deploy(request.path_params["deploy_id"])

    def reading(
        connection: Connection, visitor: Visitor
    ) -> tuple[
        DeployRecord, ListedRamp | None, dict[str, list[str]], list[ListedFinding], list[str]
    ]:
        deploy = read_deploy(connection, visitor.project_id, deploy_id)
        ramp = read_ramp_of(connection, visitor.project_id, deploy)
        commits = [] if ramp is None else [ramp.commit]
        return (
            deploy,
            ramp,
            reached_routes(connection, visitor.project_id, deploy),
            findings_of_commits(connection, visitor.project_id, deploy.environment, commits),
            read_names(connection, visitor.project_id),
        )

    _, (deploy, ramp, routes, findings, names) = await read_for_visitor(request, reading)
    return page(
        request,
        "deploy.html",
        deploy=deploy,
        ramp=None if ramp is None else _listed([ramp])[0],
        routes=routes,
        lines=[_line(finding) for finding in findings],
        names=names[:_NAMES_OFFERED],
        address=public_address_of(request),
    )


async def get_experiments(request: Request) -> Response:
    """Return the list of experiments, the newest first."""
    before, sought = _cursor(request), _sought(request)
    state = request.query_params.get("state", "")
    if state not in _STATES:
        raise Missing("not_found", "There is no such page.")

    _, findings = await read_for_visitor(
        request,
        lambda connection, visitor: list_findings(
            connection,
            visitor.project_id,
            limit=_ON_A_PAGE + 1,
            decided=_STATES[state],
            words=sought.split(),
            before=before,
        ),
    )
    return page(
        request,
        "experiments.html",
        state=state,
        sought=sought,
        lines=[_line(finding) for finding in findings[:_ON_A_PAGE]],
        more=len(findings) > _ON_A_PAGE,
        first=before is None,
        address=public_address_of(request),
    )


async def get_nothing(request: Request) -> Response:
    """Return the page that says that there is none, unless a slash alone is too much."""
    path = request.scope["path"]
    if path.endswith("/") and (without := path.rstrip("/")) != path:
        return RedirectResponse(without, status_code=308)
    await read_for_visitor(request, lambda _, visitor: visitor)
    raise Problem("not_found", "There is no such page.")


def known_deploy(deploy_id: str) -> str:
    """Returns an identifier that a deploy may have.

    Raises:
        Missing: The id is malformed, so no deploy has it and the store need not be read.
    """
    if not _DEPLOY.fullmatch(deploy_id):
        raise Missing("unknown_deploy", "there is no such deploy")
    return deploy_id


def _sought(request: Request) -> str:
    return request.query_params.get("q", "").replace("\x00", " ").strip()[:_LONGEST_SEARCH]


def _cursor(request: Request) -> str | None:
    cursor = request.query_params.get("before")
    if cursor is not None and ("\x00" in cursor or len(cursor) > 128):
        raise Missing("not_found", "There is no such page.")
    return cursor


class RampRow(NamedTuple):
    """A ramp in the list of deploys: its last deploy by its name, its steps, and their bars."""

    deploy: DeployRecord
    commit: str
    steps: Sequence[DeployRecord]
    is_cut: bool
    bars: Sequence[Mapping[str, float]]


def _listed(ramps: Sequence[ListedRamp]) -> list[RampRow]:
    """Returns ramps as rows, each commit by its name: steps are often posted without a name."""
    commits: dict[str, PostedCommit] = {}
    for ramp in ramps:
        for step in ramp.steps:
            commits[ramp.commit] = {**commits.get(ramp.commit, step.commit), **step.commit}
    return [
        RampRow(
            deploy=replace(ramp.last, commit=commits[ramp.commit]),
            commit=ramp.commit,
            steps=ramp.steps,
            is_cut=ramp.is_cut,
            bars=_bars([step.allocation for step in ramp.steps]),
        )
        for ramp in ramps
    ]


def _bars(shares: Sequence[float | None]) -> list[dict[str, float]]:
    """Returns the steps of a ramp as bars in a box of 100 by 100; a step is no ramp."""
    if len(shares) == 1:
        return []
    wide = 100 / len(shares)
    # A step without a share says that all users have it, or that none has: it gets no bar.
    heights = [100 * (share or 0) for share in shares]
    return [
        {"x": number * wide, "y": 100 - height, "width": wide, "height": height}
        for number, height in enumerate(heights)
    ]


class FindingLine(NamedTuple):
    """An experiment in a list: its answer, its lift over control's level, and its interval."""

    finding: ListedFinding
    headline: Headline
    reason: str
    fair: bool
    relative: float | None
    bar: Mapping[str, float] | None
    decided: bool
    progress: Mapping[str, float] | None


def _line(finding: ListedFinding) -> FindingLine:
    contract, current = finding.contract, finding.situation
    document = finding.evidence
    control = None if document is None else document.arms.control.level
    lift, interval = contract.lift, contract.ci
    if document is not None and (lift is None or interval is None):
        lift, interval = document.totals.lift, document.totals.ci
    return FindingLine(
        finding=finding,
        headline=headline_of(contract, current),
        reason=reason_of(contract, finding.reason, current),
        fair=is_fair(contract),
        relative=None if lift is None or not control else lift / abs(control),
        bar=None if lift is None or interval is None else _bar(lift, interval),
        decided=contract.decided,
        progress=_progress(finding),
    )


def _progress(finding: ListedFinding) -> dict[str, float] | None:
    """Returns how many units of about how many are counted, while more are compared."""
    document = finding.evidence
    if document is None or finding.situation.state is not State.COMPARING:
        return None
    accumulated, required = document.sessions.accumulated, document.sessions.required
    return {"value": accumulated, "max": required} if required else None


def _bar(lift: float, interval: Interval) -> dict[str, float]:
    """Returns where an interval stands on a strip from 0 to 100 whose middle is no difference."""
    low, high = interval
    extent = 1.05 * max(abs(low), abs(high), 1e-12)
    at = [50 + 50 * end / extent for end in (low, lift, high)]
    return {"low": at[0], "lift": at[1], "high": at[2], "width": max(at[2] - at[0], 1.0)}


router = APIRouter(prefix="/dashboard", route_class=PageRoute, include_in_schema=False)
for _path, _page in (
    ("", get_overview),
    ("/sign-in", get_sign_in),
    ("/deploys", get_deploys),
    ("/deploys/{deploy_id}", get_deploy),
    ("/experiments", get_experiments),
    ("/experiments/{experiment_id}", get_experiment),
    ("/experiments/{experiment_id}/live", get_live),
    ("/experiments/{experiment_id}/evidence", get_evidence),
    ("/ledger", get_ledger),
    ("/portfolio", get_portfolio),
    ("/settings/audit-trail", get_audit_trail),
    ("/static/{digest}/{name}", get_asset),
):
    router.add_api_route(_path, _page, methods=["GET"])
for _path, _post in (
    ("/sign-in", post_sign_in),
    ("/sign-out", post_sign_out),
    ("/deploys/{deploy_id}/register", post_registration),
    ("/experiments/{experiment_id}", post_experiment),
):
    router.add_api_route(_path, _post, methods=["POST"])
for _path, _form in (
    ("/keys", KEYS),
    ("/deliveries", DELIVERIES),
    *((path, settings_page(kind)) for path, kind in KINDS.items()),
):
    router.add_api_route(f"/settings{_path}", _form.get, methods=["GET"])
    router.add_api_route(f"/settings{_path}", _form.post, methods=["POST"])
# Catch-all route: unknown pages get the dashboard's own 404.
router.add_api_route("/{rest:path}", get_nothing, methods=["GET"])
