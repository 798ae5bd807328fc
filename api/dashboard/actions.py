"""Actions of owners on changes: register, close, register anew, keep a note."""

from collections.abc import Callable

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.dashboard.page.form import READ_ONLY, Form, posted
from api.dashboard.page.visit import read_for_visitor
from api.routes.verdicts import known_id
from api.wire.problem import Problem
from domain.metric import composed_name
from domain.registration import Registration
from storage.experiments.actions import close, keep_note, register_anew
from storage.experiments.experiments import register
from storage.postgres.refusal import Invalid
from storage.tenants.keys import Role
from storage.tenants.sign_ins import Visitor

_ACTOR = "dashboard"
_LONGEST_NOTE = 2000


async def post_registration(request: Request) -> Response:
    """Register a deploy, and show its experiment."""
    deploy_id = request.path_params["deploy_id"]

    def registering(connection: Connection, visitor: Visitor, form: Form) -> str:
        metric = form.text("metric").strip()
        try:
            named = composed_name(metric) if metric else None
        except ValueError as broken:
            raise Problem("invalid_request", f"The metric {broken}.") from None
        wanted = Registration(deploy_id=deploy_id, target_metric=named, actor=_ACTOR)
        return register(connection, visitor.project_id, wanted).experiment_id

    return await _done(request, registering)


async def post_experiment(request: Request) -> Response:
    """Close an experiment, register its change anew, or keep a note on it."""
    experiment_id = known_id(request.path_params["experiment_id"])

    def acting(connection: Connection, visitor: Visitor, form: Form) -> str:
        if form.text("action") == "close":
            close(connection, visitor.project_id, experiment_id, by=visitor.actor)
        elif form.text("action") == "anew":
            return register_anew(
                connection, visitor.project_id, experiment_id, actor=_ACTOR
            ).experiment_id
        elif form.text("action") == "note":
            note = form.text("note").strip()
            if len(note) > _LONGEST_NOTE:
                raise Problem("invalid_request", f"A note has at most {_LONGEST_NOTE} characters.")
            keep_note(connection, visitor.project_id, experiment_id, note or None)
        else:
            raise Problem("invalid_request", "The form asks for nothing that there is.")
        return experiment_id

    return await _done(request, acting)


async def _done(request: Request, act: Callable[[Connection, Visitor, Form], str]) -> Response:
    """Carries out the action of a form, and shows the experiment that it is about."""
    form = await posted(request)

    def acting(connection: Connection, visitor: Visitor) -> str:
        if visitor.role is not Role.OWNER:
            raise Problem("read_only", READ_ONLY)
        try:
            return act(connection, visitor, form)
        except Invalid as refusal:
            raise Problem("invalid_request", refusal.detail) from None

    _, experiment_id = await read_for_visitor(request, acting)
    return RedirectResponse(f"/dashboard/experiments/{experiment_id}", status_code=303)
