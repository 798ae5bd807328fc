"""Every route against every credential: who may call, and what another project never learns."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from api.app import create_app
from api.dashboard.pages import router as dashboard
from api.runtime.settings import ApiSettings
from storage.schema.annex_tables import metadata
from storage.schema.tables import keys
from storage.tenants.keys import KeyKind, key_digest
from storage.tenants.projects import FIRST_KINDS, create_project, list_keys, new_key, revoke_key
from tests.world import World

pytestmark = pytest.mark.shared_store(ofrep="browser")

HEADER = "X-Service-Project-Key"
# No store is needed to know the routes.
APP = create_app(ApiSettings(database_url="postgresql://nowhere/none", secret=b"-"))
_ROUTES = APP.openapi()["paths"]
OPERATIONS = [
    pytest.param(path, method, operation, id=f"{method} {path}")
    for path, operations in _ROUTES.items()
    if path.startswith(("/v1/", "/ofrep/"))
    for method, operation in operations.items()
]
every_operation = pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)

KINDS = {
    "/v1/events": {KeyKind.PUBLIC, KeyKind.WRITE},
    "/ofrep/v1/evaluate/flags": {KeyKind.PUBLIC, KeyKind.WRITE},
    "/ofrep/v1/evaluate/flags/{key}": {KeyKind.PUBLIC, KeyKind.WRITE},
    "/v1/logs": {KeyKind.PUBLIC, KeyKind.WRITE},
    "/v1/traces": {KeyKind.WRITE},
    "/v1/static-graphs": {KeyKind.WRITE},
    "/v1/deploys": {KeyKind.WRITE},
    "/v1/deploys/last": {KeyKind.WRITE},
    "/v1/deploys/{deploy_id}": {KeyKind.WRITE},
    "/v1/revenue/events": {KeyKind.WRITE},
    "/v1/places": {KeyKind.PROJECT},
    "/v1/places/{place_id}/end": {KeyKind.PROJECT},
    "/v1/reward": {KeyKind.PROJECT},
    "/v1/reward/register": {KeyKind.PROJECT},
    "/v1/reward/gate": {KeyKind.PROJECT},
    "/v1/reward/freeze": {KeyKind.PROJECT},
    "/v1/reward/ledger": {KeyKind.PROJECT},
    "/v1/reward/effects": {KeyKind.PROJECT},
    "/v1/reward/portfolio": {KeyKind.PROJECT},
    "/v1/reward/checklist": {KeyKind.PROJECT},
    "/v1/reward/{experiment_id}": {KeyKind.PROJECT},
    "/v1/reward/{experiment_id}/evidence": {KeyKind.PROJECT},
    "/v1/reward/{experiment_id}/effect": {KeyKind.PROJECT},
    "/v1/reward/{experiment_id}/registration": {KeyKind.PROJECT},
    "/v1/reward/{experiment_id}/attestation": {KeyKind.PROJECT},
    "/v1/reward/{experiment_id}/close": {KeyKind.PROJECT},
}


def asked(
    service: Any,
    path: str,
    method: str,
    operation: dict[str, Any],
    *,
    experiment_id: str = "exp_none",
    deploy_id: str = "dep_none",
    place_id: str = "pl_00000000000000000000",
    **options: Any,
) -> Any:
    """Sends the operation's own first example."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    examples = [example["value"] for example in body.get("examples", {}).values()]
    if examples:
        options["json"] = examples[0]
    address = path.replace("{experiment_id}", experiment_id).replace("{deploy_id}", deploy_id)
    address = address.replace("{key}", "commit").replace("{place_id}", place_id)
    return service.client.request(method, address, **options)


def code_of(answer: Any) -> str:
    """The word of a failure: OTLP's status has it before its message."""
    document = answer.json()
    return document["code"] if "code" in document else document["message"].partition(":")[0]


def by(key: str) -> dict[str, Any]:
    return {"headers": {HEADER: key}}


# Routes that need no key: a browser's question before it posts, what an operator asks, and the
# scripts that pages and builds load.
OPEN = {
    ("OPTIONS", "/v1/events"),
    ("OPTIONS", "/v1/logs"),
    ("OPTIONS", "/ofrep/v1/evaluate/flags"),
    ("OPTIONS", "/ofrep/v1/evaluate/flags/{key}"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/sdk.js"),
    ("GET", "/route-graph.mjs"),
    ("GET", "/route_graph.py"),
    ("GET", "/.well-known/deploy-reward-key"),
    ("GET", "/.well-known/oauth-protected-resource"),
    ("GET", "/.well-known/oauth-protected-resource/mcp"),
    *((method, path) for path in ("/docs", "/docs/oauth2-redirect") for method in ("GET", "HEAD")),
    *((method, "/openapi.json") for method in ("GET", "HEAD")),
}


def routes_of(routes: Sequence[Any]) -> set[tuple[str, str]]:
    result: set[tuple[str, str]] = set()
    for route in routes:
        if (inner := getattr(getattr(route, "original_router", route), "routes", None)) is not None:
            result |= routes_of(inner)
        else:
            # The document names a parameter alone, not what it may hold.
            path = route.path.replace(":path}", "}")
            result |= {(method, path) for method in route.methods}
    return result


# Opened by a cookie instead of a key: test_dashboard.py says to whom.
SIGNED_IN = routes_of(dashboard.routes)


# Opened by a project key: tests/mcp_server/test_http.py.
TO_TOOLS = {("POST", "/mcp")}


def test_every_route_of_the_application_is_in_the_matrix_or_open() -> None:
    """The routing table itself, not the document: a route that is left out of it counts too."""
    guarded = {
        (method.upper(), path)
        for path, operations in _ROUTES.items()
        if path in KINDS
        for method in operations
    }
    assert routes_of(APP.routes) == guarded | OPEN | SIGNED_IN | TO_TOOLS
    assert {path for _, path in guarded} == KINDS.keys()


@pytest.mark.requirement("auth.reward.required")
@every_operation
def test_a_request_without_a_live_key_is_401(service, path, method, operation) -> None:
    kind = min(KINDS[path])
    right, revoked = service.project.keys[kind], service.new_key(kind)
    service.in_store(lambda connection: revoke_key(connection, service.project_id, revoked))
    for key, code in (
        (None, "missing_key"),
        ("", "malformed_key"),
        ("nonsense", "malformed_key"),
        ("x" * 10_000, "malformed_key"),
        (right[:-1] + ("A" if right[-1] != "A" else "B"), "malformed_key"),
        (revoked, "unknown_key"),
    ):
        answer = asked(service, path, method, operation, **(by(key) if key is not None else {}))
        assert (answer.status_code, code_of(answer)) == (401, code)
        assert "WWW-Authenticate" in answer.headers


@pytest.mark.requirement("key.public.use", "auth.kinds")
@every_operation
def test_a_key_of_the_wrong_kind_is_403(service, path, method, operation) -> None:
    for kind in set(FIRST_KINDS) - KINDS[path]:
        answer = asked(service, path, method, operation, **by(service.project.keys[kind]))
        assert (answer.status_code, code_of(answer)) == (403, "wrong_key_kind")


@every_operation
def test_a_key_in_a_place_that_is_not_meant_for_it_is_none(
    service, path, method, operation
) -> None:
    for kind in KINDS[path]:
        key = service.project.keys[kind]
        bearer = {"headers": {"Authorization": f"Bearer {key}"}}
        answer = asked(service, path, method, operation, **bearer)
        others = ("/v1/revenue/events", "/v1/logs", "/v1/traces")
        takes_bearer = path in others or path.startswith("/ofrep/")
        assert (answer.status_code == 401) == (not takes_bearer)
        answer = asked(service, path, method, operation, params={"key": key})
        assert (answer.status_code == 401) == (path != "/v1/events")


@every_operation
def test_two_credentials_that_differ_are_401(service, path, method, operation) -> None:
    for kind in KINDS[path]:
        right, other = service.project.keys[kind], service.new_key(kind)
        twice = {"headers": [(HEADER, right), (HEADER, other)]}
        answer = asked(service, path, method, operation, **twice)
        assert (answer.status_code, code_of(answer)) == (401, "differing_keys")
    if path == "/v1/events":
        answer = asked(service, path, method, operation, **by(right), params={"key": other})
        assert answer.status_code == 401
    if path == "/v1/revenue/events":
        headers = {HEADER: right, "Authorization": f"Bearer {other}"}
        assert asked(service, path, method, operation, headers=headers).status_code == 401


@pytest.mark.requirement(
    "key.write.use",
    "key.public.use",
    "key.project.use",
    "auth.write.header",
    "auth.revenue.header",
    "auth.reward.header",
    "auth.public",
    "endpoint.json",
)
@every_operation
def test_the_right_key_is_admitted_however_the_header_is_spelled(
    service, path, method, operation
) -> None:
    service.deploy("aaaaaaa", 0.1)
    experiment_id = service.register()
    deploy_id = service.deploy("bbbbbbb", environment="staging")["deploy_id"]
    place_id = service.post("/v1/places", {"commit": "bbbbbbb"}).json()["place_id"]
    for kind in KINDS[path]:
        for header in (HEADER, HEADER.lower(), HEADER.upper()):
            answer = asked(
                service,
                path,
                method,
                operation,
                experiment_id=experiment_id,
                deploy_id=deploy_id,
                place_id=place_id,
                headers={header: service.project.keys[kind]},
            )
            if path.endswith(("/evidence", "/effect")):
                assert answer.json()["code"] == "no_evidence_yet"
            elif path.endswith("/{key}"):
                assert answer.status_code in (200, 404)
            else:
                assert 200 <= answer.status_code < 300
                # The gate answers Flagger in plain text, which it shows a person.
                if (method, path) != ("post", "/v1/reward/gate"):
                    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.requirement("service.project-scope", "service.key-per-project", "auth.reward.scope")
@every_operation
def test_another_projects_resource_is_byte_for_byte_an_unknown_one(
    service, path, method, operation
) -> None:
    mine = service.post("/v1/reward/register", {}).json()["experiment_id"]
    service.post("/v1/deploys", {"commit": {"sha": "aaaaaaa"}})
    other = service.new_project(f"beside {service.project.name}")
    for kind in KINDS[path]:
        answers = [
            asked(service, path, method, operation, experiment_id=name, **by(other.keys[kind]))
            for name in (mine, "exp_00000000000000000000")
        ]
        if "{experiment_id}" in path:
            theirs, unknown = (
                answer.content.replace(answer.headers["X-Request-Id"].encode(), b"")
                for answer in answers
            )
            assert theirs == unknown
            assert answers[0].status_code == 404
        else:
            assert mine.encode() not in answers[0].content
            assert b"aaaaaaa" not in answers[0].content


def test_another_projects_deploy_is_an_unknown_one(service) -> None:
    deploy = service.deploy("aaaaaaa")
    other = World.new(service.store, service.client, f"beside {service.project.name}")
    theirs, unknown = (
        other.post("/v1/reward/register", {"deploy_id": deploy_id})
        for deploy_id in (deploy["deploy_id"], "dep_00000000000000000000")
    )
    assert theirs.json()["errors"] == unknown.json()["errors"]


def test_a_new_key_works_at_once_though_it_was_tried_before(service) -> None:
    key = new_key(KeyKind.PUBLIC)
    event = {"event": "a", "session_id": "s"}
    assert service.client.post("/v1/events", json=event, **by(key)).status_code == 401
    (known, *_) = service.in_store(lambda connection: list_keys(connection, service.project_id))
    row = {
        "digest": key_digest(key),
        "project_id": service.project_id,
        "kind": "public",
        "display": key[:8],
        "created_at": known.created_at,
    }
    service.in_store(lambda connection: connection.execute(keys.insert().values(row)))
    assert service.client.post("/v1/events", json=event, **by(key)).status_code == 202


SCOPED = {name for name, table in metadata.tables.items() if "project_id" in table.columns}
# A key says whose it is, and a project's settings are read by its number.
# Of the whole service: its version, whether it is frozen, when a tick last ended well, and how
# sealing the log last ended.
UNSCOPED = {"alembic_version", "freezes", "sealing_runs", "ticks"}
# Of an experiment, and so of its project: read only beside `experiments` or `verdicts`.
OF_EXPERIMENT = {
    *("set_aside", "follow_ups", "block_units", "block_names", "cursors", "whole_lives"),
    *("exposures", "sightings", "conversions", "amounts"),
}
_READ_OR_CHANGED = re.compile(
    r"\b(?:FROM|JOIN|UPDATE|INTO|COPY)\s+(?:ONLY\s+)?(\w+)", re.IGNORECASE
)
_OURS = {*metadata.tables, *UNSCOPED}


@pytest.fixture
def overheard(store) -> Any:
    """The statements that the server was asked to execute, whatever driver sent them."""
    database = store.engine.url.database
    with store.engine.begin() as connection:
        connection.execute(text(f"ALTER DATABASE {database} SET log_statement = 'all'"))
        folder = Path(connection.execute(text("SHOW data_directory")).scalar_one())
    store.engine.dispose()
    log = folder.parent / "logs" / "postgres.log"

    @contextmanager
    def listening() -> Iterator[list[str]]:
        statements: list[str] = []
        begin = log.stat().st_size
        yield statements
        with log.open("rb") as file:
            file.seek(begin)
            lines = file.read().decode(errors="replace")
        answer = re.split(r"(?m)^\d{4}-\d\d-\d\d .*?(?:statement|execute [^:]*): ", lines)[1:]
        # A message may hold several.
        apart = [part for each in answer for part in re.sub(r"--[^\n]*", "", each).split(";")]
        statements += [" ".join(part.split()) for part in apart]

    return listening


def test_every_statement_of_the_api_is_of_one_project(store, overheard) -> None:
    with store.engine.begin() as connection:
        project = create_project(connection, "shop")
    settings = ApiSettings(database_url=store.url, secret=b"a secret of the tests, long enough")
    touched: dict[str, set[str]] = {}
    with TestClient(create_app(settings)) as client, overheard() as statements:
        service = World(store=store, client=client, project=project)
        experiment_id = service.post("/v1/reward/register", {}).json()["experiment_id"]
        for parameter in OPERATIONS:
            path, method, operation = parameter.values
            for example in [*_examples(operation), None]:
                for kind in KINDS[path]:
                    service.client.request(
                        method,
                        path.replace("{experiment_id}", experiment_id),
                        json=example,
                        headers={HEADER: project.keys[kind]},
                        params={"replay": "true"} if path == "/v1/revenue/events" else None,
                    )
    for statement in statements:
        tables = set(_READ_OR_CHANGED.findall(statement)) & _OURS
        if tables:
            touched.setdefault(statement, set()).update(tables)
    assert {"verdicts", "deploys", "graphs", "runtime_events", "revenue_events"} <= {
        table for tables in touched.values() for table in tables
    }
    assert [sql for sql in touched if not touched[sql] <= SCOPED | UNSCOPED | OF_EXPERIMENT] == []
    of_experiments = [sql for sql in touched if touched[sql] & OF_EXPERIMENT]
    beside = {"experiments", "verdicts"}
    assert [each for each in of_experiments if not beside & touched[each]] == []
    unscoped = [each for each in touched if touched[each] - {"keys"} and not _is_scoped(each)]
    assert [each for each in unscoped if touched[each] - UNSCOPED] == []


def _examples(operation: dict[str, Any]) -> list[Any]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return [example["value"] for example in content.get("examples", {}).values()]


def _is_scoped(statement: str) -> bool:
    """Tells whether a statement says of which project the rows are that it reads or writes."""
    if re.match(r"(?i)(?:WITH .*)?(?:INSERT|COPY)", statement) is not None:
        return "project_id" in statement.partition("(")[2].partition(")")[0]
    condition = re.search(r"(?i)\b(?:WHERE|USING)\b(.*)", statement)
    return condition is not None and "project_id" in condition[1]
