"""Requests that our OpenAPI document allows or forbids: it describes each answer."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from places.queue import PlaceRequest, ask
from rich.console import Console
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from sqlalchemy import Connection

from domain.contract import waiting_contract
from domain.document import document_text
from domain.lineage.flag import Flag
from domain.registration import Registration
from storage.experiments.experiments import register
from storage.postgres.engine import open_engine
from storage.tenants.keys import KeyKind
from storage.tenants.projects import create_project
from storage.tenants.setting_changes import apply_settings
from storage.verdicts.publication import Draft, publish_verdicts, stage_evidence
from tests.api.routes.test_tenants import KINDS
from tests.clients.wire import Wire
from tests.processes.api_process import ApiProcess, members_of
from tests.processes.server_folder import migrated_server, server_folder
from tests.world import record_deploy

pytestmark = pytest.mark.process

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Of each operation, key and mode in a turn.
EXAMPLES = {500: 4, 50_000: 20}
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
MOST_GROWTH = 50 * 2**20
# Where a canary stands alone, so that the gate has something to let go on.
GATED = "gated"
# Where the build stays: no request withdraws it.
SERVED = "served"
LOOKED_AT = "GET /v1/reward/{experiment_id}/effect"
# Bodies that are done, of operations for which chance seldom draws a body.
TAKEN = {
    "POST /v1/reward/gate": {"metadata": {"environment": GATED, "policy": "no-breach"}},
    "POST /v1/revenue/events": {
        "event": "activation",
        "occurred_at": "2026-11-01T12:00:00Z",
        "user_ref": "somebody",
        "idempotency_key": "activated",
    },
}


PLACE = PlaceRequest(
    change="a flag",
    environment="production",
    flag=Flag(name="cart", treatment="true"),
    **dict.fromkeys(("commit", "metric", "actor")),
    accept_harm=0.2,
    patience_hours=24,
)


@dataclass(kw_only=True)
class Target:
    """A service with a project in it, and what it answered."""

    url: str
    session_id: int
    keys: dict[KeyKind, str]
    experiment_id: str
    deploy_id: str
    place_id: str
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def resident(self) -> int:
        """Bytes of memory that its processes hold."""
        pages = (
            int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            for pid in members_of(self.session_id)
        )
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with server_folder() as folder, migrated_server(folder) as postgres:
        engine = open_engine(postgres.url)
        with engine.begin() as connection:
            created = create_project(connection, "shop")
            apply_settings(connection, created.project_id, {"ofrep": "server"})
            experiment_id = register(connection, created.project_id, Registration()).experiment_id
            deploy_id = _deploy(connection, created.project_id, environment="beside")
            place_id, _ = ask(connection, created.project_id, PLACE)
            _deploy(connection, created.project_id, environment=GATED, allocation=0.5)
            _deploy(connection, created.project_id, environment=SERVED)
            stage_evidence(connection, [_evidence(experiment_id)])
            publish_verdicts(connection)
        engine.dispose()
        with ApiProcess(log=folder / "api.log", database_url=postgres.url) as api:
            api.start()
            assert api.process is not None
            yield Target(
                url=api.url,
                session_id=api.process.pid,
                keys=created.keys,
                experiment_id=experiment_id,
                deploy_id=deploy_id,
                place_id=place_id,
            )


def _deploy(
    connection: Connection, project_id: int, *, environment: str, allocation: float | None = None
) -> str:
    """A deploy that no experiment waits for."""
    return record_deploy(
        connection, project_id, "aaaaaaa", allocation=allocation, environment=environment
    )


def _evidence(experiment_id: str) -> Draft:
    """The evidence of an experiment that ended before it was computed."""
    words = {"sentence": "No answer.", "headline": "No answer", "reason": "", "advice": []}
    return Draft(
        experiment_id=experiment_id,
        document=document_text({**words, "experiment_id": experiment_id, "as_of": None}),
        contract=document_text(waiting_contract(experiment_id)),
        as_of=None,
        next_look_at=None,
    )


# Sends so many examples of a turn.
Asking = Callable[[requests.Session, int, int], None]


def variants(target: Target) -> Iterator[Asking]:
    """Every operation with each key that may call it, an identifier known and not, in each mode."""
    schema = schemathesis.openapi.from_url(f"{target.url}/openapi.json")
    for each in schema.get_all_operations():
        operation = each.ok()
        for kind in KINDS.get(operation.path, {None}):
            # What takes nothing can't be asked wrongly.
            for mode in MODES if kind else MODES[:1]:
                yield _asking(target, operation, kind, mode)
            for name in ("experiment_id", "deploy_id", "place_id"):
                if f"{{{name}}}" in operation.path:
                    known = {name: getattr(target, name)}
                    yield _asking(target, operation, kind, GenerationMode.POSITIVE, known)
            if "{key}" in operation.path:
                context = {"targetingKey": "s-1", "environment": SERVED}
                flag, body = {"key": "commit"}, {"context": context}
                positive = GenerationMode.POSITIVE
                yield _asking(target, operation, kind, positive, flag, body=body)
            if body := TAKEN.get(operation.label):
                yield _asking(target, operation, kind, GenerationMode.POSITIVE, body=body)


def _asking(
    target: Target,
    operation: Any,
    kind: KeyKind | None,
    mode: GenerationMode,
    known: dict[str, str] | None = None,
    *,
    body: dict[str, Any] | None = None,
) -> Asking:
    headers = {} if kind is None else {"X-Service-Project-Key": target.keys[kind]}
    fixed: dict[str, Any] = {} if body is None else {"body": body, "media_type": "application/json"}
    requested = operation.as_strategy(generation_mode=mode, path_parameters=known, **fixed)

    def ask(session: requests.Session, turn: int, examples: int) -> None:
        @seed(turn)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=requested)
        def each(case: Any) -> None:
            answer = case.call(base_url=target.url, session=session, headers=headers)
            target.answers[operation.label, answer.status_code] += 1
            case.validate_response(answer, checks=_checks(case))

        each()

    return ask


def _checks(case: Any) -> list[Any]:
    """A body that breaks its schema is refused; keys are ours, an unknown parameter is no fault."""
    broken = {place for place, each in case.meta.components.items() if each.mode.is_negative}
    return [*CHECKS, negative_data_rejection] if broken == {ParameterLocation.BODY} else CHECKS


@pytest.mark.requirement("service.receives", "base.substrate")
@pytest.mark.parametrize(
    "requests_sent",
    [500, pytest.param(50_000, marks=[pytest.mark.deep, pytest.mark.timeout(7200)])],
)
def test_no_answer_is_another_than_the_document_tells_of_and_memory_stays(
    target, requests_sent
) -> None:
    asked = list(variants(target))
    turn, before = 0, 0
    with requests.Session() as session:
        while target.answers.total() < requests_sent:
            for ask in asked:
                ask(session, turn, EXAMPLES[requests_sent])
            # The first turn warms up.
            before, turn = before or target.resident, turn + 1
    grown = target.resident - before
    console = Console()
    console.print(f"{target.answers.total():,} answers; memory grew by {grown / 2**20:.1f} MiB")
    for (label, status), count in sorted(target.answers.items()):
        console.print(f"{count:7,} {status} {label}")
    assert grown < MOST_GROWTH
    # Each operation did its work for some; the effect waits for a look, which there is none here.
    worked = {label for label, status in target.answers if 200 <= status < 300}
    assert {label for label, _ in target.answers} - {LOOKED_AT} == worked


ODD = [
    *("/%00", "/v1/%00", "/v1/reward/%00", "/v1/reward/%00/evidence", "/v1/events%00"),
    *("//", "//v1//events", "/v1/../v1/events", "/../../etc/passwd", "/v1/reward/..%2f..%2fetc"),
    *("/v1%2Fevents", "/v1/reward/a%2Fb", "/v1/reward/%ff", "/v1/reward/%ed%a0%80", "/%", "/%zz"),
    *("/v1/reward/" + "x" * 4000, "/" + "a/" * 2000, "/v1/events/", "/v1/reward/", "/V1/events"),
    *("/v1/events;x=1", "/v1/events?" + "a=b&" * 1000, "/.env", "/docs/", "/openapi.json/"),
    *(
        "/v1/reward/<script>",
        '/v1/reward/"',
        "/v1/reward/{experiment_id}",
        "*",
        "/v1/reward?limit=%00",
    ),
]

OTLP = (("/v1/logs", "POST"), ("/v1/traces", "POST"))
METHODS = ("GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "DELETE", "PATCH", "PUT", "POST")


def test_whatever_the_address_and_the_method_the_answer_is_one_of_ours(target) -> None:
    """And 405 names the methods that there are."""
    port = int(target.url.rpartition(":")[2])
    known = ["/healthz", "/docs", "/openapi.json", "/v1/reward/exp_1", *KINDS]
    allowed: dict[str, set[str]] = {}
    for path in [*ODD, *known]:
        for method in METHODS:
            with Wire(port) as wire:
                head = f"{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n"
                wire.send(f"{head}Content-Length: 0\r\n\r\n")
                answer = wire.answer()
            assert answer.status in {200, 204, 400, 401, 404, 405, 406, 422}, (method, path)
            assert answer.headers["x-request-id"]
            if answer.status == 405:
                allowed.setdefault(path, set()).add(answer.headers["allow"])
                assert method not in answer.headers["allow"].split(", ")
            if answer.status >= 400 and (path, method) in OTLP:
                # OTLP's status, in the encoding of the request.
                assert answer.headers["content-type"] == "application/json"
            elif answer.status >= 400:
                assert answer.headers["content-type"] == "application/problem+json"
                if method != "HEAD":
                    assert answer.document["status"] == answer.status
                    assert "etc" not in answer.document["detail"]
    for path in known:
        assert len(allowed[path]) == 1, path
