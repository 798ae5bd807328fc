"""An experiment's page: its parts, each of which a script can replace while it is open."""

import hashlib
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from markupsafe import Markup
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from api.dashboard.page.assets import VERSION
from api.dashboard.page.figures import signs
from api.dashboard.page.markup import markup, page
from api.dashboard.page.visit import read_for_visitor
from api.dashboard.verdict import advice_of, measured, reason_of, value_of
from api.routes.verdicts import known_id
from api.wire.answer import answer
from api.wire.problem import Problem
from domain.cause import Cause
from domain.contract import Contract, contract_of, is_fair
from domain.drawing.interval import interval_drawing, look_words
from domain.drawing.traffic import Ramp
from domain.evidence.document import Evidence, looked_at
from domain.evidence.results import EvidenceLook
from domain.figures import rough_percent
from domain.measure import measure_of, typical_lift
from domain.wording.effect import MOMENTS, learned_line, near_end, training_sentence
from domain.wording.headline import headline_of
from domain.wording.looks import fired_at, looks_of
from domain.wording.metrics import metric_rows
from domain.wording.picture import picture_of
from domain.wording.registration import joint_sentence, late_start_sentence
from domain.wording.situation import is_awaited, is_followed, lasts
from domain.wording.tipping_point import tipping_sentence
from domain.wording.vouched import vouched_sentence
from domain.wording.warnings import warning_sentences
from storage.tenants.sign_ins import Visitor
from storage.verdicts.evidence import WAITS_FOR_DEPLOY
from storage.views.findings import Finding, read_finding
from storage.views.published import read_set_aside
from storage.views.ramp import read_ramp
from storage.views.registrations import read_current

# Newest first; the whole history is in the evidence document.
_MOST_LOOKS = 40
# A run publishes at most once a minute, and a reader who waits for longer gives up.
_SOONEST_SECONDS, _LATEST_SECONDS = 5, 60
# The fast schedule ticks each minute, and a run may take a few of them.
_OVERDUE = timedelta(minutes=15)
# In pixels: of a desk's screen, and of a phone's.
_WIDTHS = {"wide": 900, "narrow": 360}
_STATES = {"holds": "ok", "fails": "fault", "not_known": "unknown", "differs": "unknown"}
_PARTS = ("verdict", "progress", "evidence", "arms", "value", "checks", "looks", "contract")


async def get_experiment(request: Request) -> Response:
    """Return the page of an experiment."""
    experiment_id = request.path_params["experiment_id"]

    _, read = await read_for_visitor(
        request, lambda connection, visitor: _read(connection, visitor, experiment_id)
    )
    return page(
        request,
        "experiment.html",
        **_known(read),
        parts=_PARTS,
        etag=read.etag,
        live=not read.finding.decided,
        wait=_wait(read.finding),
    )


async def get_live(request: Request) -> Response:
    """Return the parts of an experiment's page, unless the script has them already."""
    experiment_id = request.path_params["experiment_id"]
    known = request.headers.get("If-None-Match")

    _, read = await read_for_visitor(
        request, lambda connection, visitor: _read(connection, visitor, experiment_id, known=known)
    )
    etag, wait = read.etag, _wait(read.finding)
    if etag == known:
        return Response(status_code=304, headers={"ETag": etag, "Retry-After": str(wait)})
    members = _known(read)
    document = {
        "version": VERSION,
        "decided": read.finding.decided,
        "wait": wait,
        "parts": {part: markup(f"experiment/{part}.html", **members) for part in _PARTS},
    }
    return answer(document, headers={"ETag": etag})


async def get_evidence(request: Request) -> Response:
    """Return the whole evidence document."""
    experiment_id = known_id(request.path_params["experiment_id"])
    _, (_, current) = await read_for_visitor(
        request,
        lambda connection, visitor: read_current(connection, visitor.project_id, experiment_id),
    )
    if current.evidence is None:
        raise Problem("no_evidence_yet", "The experiment has had no look yet.")
    return answer(current.evidence)


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """An experiment as its page shows it.

    Attributes:
        fault: Why it cannot be computed; None where it can.
        ramp: The units over time; None before the first look.
    """

    finding: Finding
    etag: str
    fault: str | None
    ramp: Ramp | None


def _read(
    connection: Connection, visitor: Visitor, experiment_id: str, *, known: str | None = None
) -> _Reading:
    """Returns an experiment; without its evidence where the reader has its page already."""
    project_id = visitor.project_id
    fault = next(
        (
            failure.sentence
            for failure in read_set_aside(connection, project_id=project_id)
            if failure.experiment_id == experiment_id
        ),
        None,
    )
    finding = read_finding(connection, project_id, known_id(experiment_id))
    # The tag covers all that moves a sentence: looks, deploys, withdrawals, traffic, time.
    content = msgspec.json.encode((VERSION, fault, finding))
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    evidence, ramp = finding.evidence, None
    # An experiment that no deploy came for has a sentence and nothing else.
    if etag != known and evidence is not None and evidence.as_of is not None:
        ramp = read_ramp(connection, experiment_id, until=evidence.as_of)
    return _Reading(finding=finding, etag=etag, fault=fault, ramp=ramp)


def _wait(finding: Finding) -> int:
    """Returns in how many seconds it is worth asking again."""
    if finding.next_look_at is None:
        return _LATEST_SECONDS
    seconds = math.ceil((finding.next_look_at - datetime.now(UTC)).total_seconds())
    return min(max(seconds, _SOONEST_SECONDS), _LATEST_SECONDS)


def _known(read: _Reading) -> dict[str, Any]:
    """Returns the values that the templates of an experiment use."""
    finding, evidence = read.finding, read.finding.evidence
    contract = contract_of(finding.contract)
    # An experiment that no deploy came for has a sentence and nothing else.
    document = looked_at(evidence)
    bound = finding.registration.deploy_id is not None
    fair = is_fair(contract)
    registration, effect = finding.registration, finding.effect
    situation = registration.situation
    next_look = finding.next_look_at
    return {
        "finding": finding,
        "registration": registration,
        "fault": read.fault,
        "contract": contract,
        "contract_text": msgspec.json.format(finding.contract, indent=2),
        "document": document,
        "headline": headline_of(contract, situation),
        "reason": reason_of(contract, evidence and evidence.reason, situation),
        "first_look_at": _first_look(finding),
        "goes_on": document is not None and is_awaited(situation),
        "late_start": late_start_sentence(registration),
        "joint": joint_sentence(joint) if (joint := registration.joint_with) else None,
        "advice": advice_of(finding),
        "followed": finding.acted is not None and is_followed(contract.verdict, finding.acted),
        "bound": bound,
        "value": value_of(contract, document, effect),
        "lift": None if document is None else typical_lift(document.policy.rho.day),
        "measure": None if document is None else measure_of(document),
        "fair": fair,
        "measured": measured(contract, document) if document is not None and fair else None,
        "effect": effect if effect and effect.estimate is not None else None,
        "after": (effect and effect.after_decision) or None,
        "moments": MOMENTS,
        "learned": learned_line,
        "training": training_sentence(
            effect, retrospective=document is not None and document.retrospective
        ),
        "rough_percent": rough_percent,
        "near_end": near_end,
        "plot": _plot(document, contract, read.ramp) if document is not None and fair else None,
        "ends": _ends(finding, document),
        "lasts": lasts(document),
        "overdue": next_look is not None and datetime.now(UTC) > next_look + _OVERDUE,
        "checks": [] if document is None else _checks(document, is_final=finding.decided),
        "warnings": [] if document is None else warning_sentences(document),
        "metrics": [] if document is None else metric_rows(document),
        "guardrails": {
            guardrail.metric: guardrail
            for guardrail in (() if document is None else document.guardrails)
        },
        "looks": [] if document is None else _looks(document),
    }


def _plot(document: Evidence, contract: Contract, ramp: Ramp | None) -> dict[str, object] | None:
    """Returns the drawings of an experiment; None where there are not two looks to draw."""
    picture = picture_of(document, contract)
    if picture is None or len(picture.drawn) < 2:
        return None
    return {
        **{
            name: Markup(interval_drawing(picture, width=width, ramp=ramp, write=signs))  # noqa: S704 - escaped there
            for name, width in _WIDTHS.items()
        },
        "counts": picture.counts,
        "last": look_words(picture),
        "held": bool(picture.held),
    }


def _first_look(finding: Finding) -> datetime | None:
    """Returns when the target can be looked at first; None once that time came."""
    at = None if finding.registration.nothing_to_compare else finding.registration.first_look_at
    is_over = finding.decided or finding.closed_at is not None
    return None if at is None or is_over or at <= datetime.now(UTC) else at


def _ends(finding: Finding, document: Evidence | None) -> datetime | None:
    registration = finding.registration
    if finding.closed_at is not None:
        return None
    if registration.deploy_id is None:
        return registration.registered_at + WAITS_FOR_DEPLOY
    if (
        document is None
        or registration.starts_at is None
        or registration.situation.until is not None
    ):
        return registration.situation.until
    return registration.starts_at + timedelta(days=document.policy.horizon_days)


def _looks(document: Evidence) -> list[tuple[EvidenceLook, bool]]:
    """Returns the last looks, the newest first, each with whether the test fired at it."""
    latest = document.looks[-_MOST_LOOKS:]
    fired = fired_at(document, looks_of(document))
    return [(look, look.at.timestamp() == fired) for look in reversed(latest)]


def _checks(document: Evidence, *, is_final: bool) -> list[dict[str, object]]:
    """Returns what must hold for a comparison to be fair, and whether it does."""
    beside = {
        Cause.SAMPLE_RATIO: tipping_sentence(document),
        Cause.LATENESS: vouched_sentence(document.vouched),
    }
    return [
        {
            "name": check.name,
            "state": _STATES[check.state],
            "word": check.word(is_final=is_final),
            "detail": check.detail or (check.cause and beside.get(check.cause)),
        }
        for check in document.gates.checks
    ]
