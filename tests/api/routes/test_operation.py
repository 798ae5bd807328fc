"""What an operator sees: health, metrics, the OpenAPI document, and the form of problems."""

import re
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from api.app import create_app
from api.runtime.settings import ApiSettings
from api.wire.problem import CODES
from storage.postgres.engine import connection_string
from tests.processes.api_process import eventually


def test_the_process_is_up_and_the_store_is_ready(service) -> None:
    assert service.client.get("/healthz").json() == {"status": "ok"}
    assert service.client.get("/readyz").json() == {"status": "ready"}


def test_a_store_of_another_version_is_not_ready(service) -> None:
    service.in_store(lambda c: c.execute(text("UPDATE alembic_version SET version_num = 'x'")))
    answer = service.client.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_migrated")
    assert "Retry-After" in answer.headers


def test_a_store_that_cannot_be_reached_is_503_and_the_process_stays_up(tenant) -> None:
    settings = ApiSettings(
        database_url="postgresql://nobody@/none?host=/nonexistent", secret=b"secret"
    )
    with TestClient(create_app(settings)) as client:
        for method, path in (
            ("GET", "/readyz"),
            ("POST", "/v1/events"),
            ("POST", "/v1/deploys"),
            ("GET", "/v1/deploys/last"),
            ("GET", "/v1/reward/exp_1"),
        ):
            key = tenant.reward if path.startswith("/v1/reward") else tenant.write
            answer = client.request(method, path, headers=key)
            assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable"), path
            assert int(answer.headers["Retry-After"]) >= 1
            assert client.get("/healthz").status_code == 200


def test_a_store_that_cannot_be_written_is_not_ready(service, store, runtime_event) -> None:
    name = store.engine.url.database
    read_only = text(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    service.in_store(lambda connection: connection.execute(read_only))
    settings = ApiSettings(database_url=store.url, secret=b"secret")
    # Its connections begin after the setting.
    with TestClient(create_app(settings)) as client:
        answers = [
            client.get("/readyz"),
            client.post("/v1/events", json=runtime_event, headers=service.public),
        ]
        for answer in answers:
            assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
            assert answer.json()["detail"].startswith(
                "the store cannot be written: it is read-only"
            )
        assert client.get("/healthz").status_code == 200


def test_workers_show_together_that_the_store_can_be_written(service) -> None:
    asked = text("SELECT written_at FROM write_probe")

    def written_at() -> Any:
        return service.in_store(lambda connection: connection.execute(asked).scalar_one())

    assert service.client.get("/readyz").status_code == 200
    first = written_at()
    assert service.client.get("/readyz").status_code == 200
    assert written_at() == first
    # Of another time, whichever way clocks were set meanwhile.
    for shift in ("-", "+"):
        service.in_store(
            lambda connection, shift=shift: connection.execute(
                text(f"UPDATE write_probe SET written_at = written_at {shift} interval '1 hour'")
            )
        )
        assert service.client.get("/readyz").status_code == 200
        assert abs((written_at() - first).total_seconds()) < 600


def test_a_store_that_goes_away_comes_back_without_a_restart(
    service, postgres_url, runtime_event
) -> None:
    database = service.store.engine.url.database

    def administer(statement: str) -> None:
        with psycopg.connect(connection_string(postgres_url), autocommit=True) as connection:
            connection.execute(statement.format(database).encode())

    assert service.post("/v1/events", runtime_event).status_code == 202
    administer("ALTER DATABASE {} ALLOW_CONNECTIONS false")
    # Each is waited for: a worker that still ended would take what comes next.
    administer("SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = '{}'")
    for answer in (
        service.post("/v1/events", runtime_event),
        service.post("/v1/deploys", {"commit": {"sha": "abcdef1"}}),
        service.get("/v1/reward/exp_1"),
    ):
        assert answer.status_code == 503
        assert "Retry-After" in answer.headers
    administer("ALTER DATABASE {} ALLOW_CONNECTIONS true")
    # Connections that only this request finds dead may answer 503 once more.
    eventually(lambda: service.post("/v1/events", runtime_event).status_code == 202)
    assert service.post("/v1/deploys", {"commit": {"sha": "abcdef1"}}).status_code == 201


def test_requests_and_events_are_counted_without_naming_a_project(service, runtime_event) -> None:
    late = {**runtime_event, "occurred_at": "2020-01-01T00:00:00Z"}
    service.post("/v1/events", {"events": [runtime_event, late, {}]})
    service.client.get("/nowhere/at/all")
    service.get("/v1/reward/exp_1")
    metrics = service.client.get("/metrics")
    assert metrics.headers["Content-Type"].startswith("text/plain")
    for line in (
        'deploy_reward_requests_total{method="POST",route="/v1/events",status="202"} 1.0',
        'deploy_reward_requests_total{method="GET",route="-",status="404"} 1.0',
        'deploy_reward_requests_total{method="GET",route="/v1/reward/{experiment_id}",status="404"}',
        'deploy_reward_runtime_events_total{outcome="accepted"} 2.0',
        'deploy_reward_runtime_events_total{outcome="late"} 1.0',
        'deploy_reward_runtime_events_total{outcome="rejected"} 1.0',
        "deploy_reward_commit_seconds_count 1.0",
    ):
        assert line in metrics.text
    assert "shop" not in metrics.text
    assert "project" not in metrics.text


class TestAProblem:
    @pytest.mark.parametrize(
        ("method", "path", "status", "code"),
        [
            ("GET", "/", 404, "not_found"),
            ("GET", "/v1/reward/", 404, "not_found"),
            ("POST", "/v2/events", 404, "not_found"),
            ("GET", "/v1/events", 405, "method_not_allowed"),
            ("DELETE", "/v1/deploys", 405, "method_not_allowed"),
            ("POST", "/healthz", 405, "method_not_allowed"),
            ("TRACE", "/v1/reward", 405, "method_not_allowed"),
        ],
    )
    def test_of_the_address_has_the_form_of_all_others(
        self, tenant, method, path, status, code
    ) -> None:
        answer = tenant.client.request(method, path)
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json() == {
            "type": f"urn:deploy-reward:problem:{code}",
            "title": CODES[code][1],
            "status": status,
            "detail": answer.json()["detail"],
            "code": code,
            "request_id": answer.headers["X-Request-Id"],
        }
        assert ("Allow" in answer.headers) == (status == 405)

    def test_carries_at_most_a_hundred_faults(self, tenant) -> None:
        answer = tenant.post("/v1/reward/register", {"routes": [""] * 500})
        assert len(answer.json()["errors"]) == 100
        assert "499 more" in answer.json()["detail"]

    def test_of_a_name_that_is_no_text_can_be_sent(self, tenant) -> None:
        content = b'{"\\ud800": 1, "' + b"n" * 10_000 + b'": 1}'
        answer = tenant.client.post(
            "/v1/reward/register",
            content=content,
            headers={**tenant.reward, "Content-Type": "application/json"},
        )
        assert answer.status_code == 422
        assert len(answer.content) < 1000

    def test_of_ours_is_logged_without_what_the_request_said(self, service, caplog) -> None:
        service.in_store(lambda c: c.execute(text("ALTER TABLE deploys DROP COLUMN commit_sha")))
        answer = service.post("/v1/deploys", {"commit": {"sha": "abcdef1234567"}})
        assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
        logged = "\n".join(record.getMessage() for record in caplog.records)
        assert "abcdef1234567" not in logged
        assert answer.headers["X-Request-Id"] in logged
        assert "ProgrammingError" in logged


def test_every_answer_has_a_request_id_of_its_own(tenant) -> None:
    answers = [
        tenant.client.get("/healthz"),
        tenant.client.get("/docs"),
        tenant.client.get("/openapi.json"),
        tenant.client.get("/nowhere"),
        tenant.client.options("/v1/events"),
        tenant.client.get("/healthz", headers={"X-Request-Id": "mine"}),
    ]
    ids = {answer.headers["X-Request-Id"] for answer in answers}
    assert len(ids) == len(answers)
    assert all(re.fullmatch(r"[0-9a-f]{24}", each) for each in ids)


class TestTheOpenApiDocument:
    @pytest.mark.requirement("version.prefix")
    def test_begins_each_path_of_a_project_with_the_version(self, tenant) -> None:
        paths = tenant.client.get("/openapi.json").json()["paths"]
        # OpenFeature's clients ask at addresses of their protocol, which has a version of its own.
        others = {path for path in paths if not path.startswith(("/v1/", "/ofrep/v1/"))}
        # What an operator asks of the process belongs to no project and to no version, and the
        # scripts that a team puts into its pages and builds belong to none either.
        scripts = {"/sdk.js", "/route-graph.mjs", "/route_graph.py"}
        # RFC 8615 has a place of its own for keys.
        key = "/.well-known/deploy-reward-key"
        assert others == {"/healthz", "/readyz", "/metrics", key} | scripts

    @pytest.fixture
    def document(self, tenant) -> dict[str, Any]:
        return tenant.client.get("/openapi.json").json()

    def test_names_the_instance_that_serves_it(self, document) -> None:
        assert document["servers"] == [{"url": "/"}]

    def test_shows_a_body_for_every_operation_that_takes_one(self, document) -> None:
        for path, operations in document["paths"].items():
            if "post" in operations and not path.endswith(("/close", "/end")):
                for media in operations["post"]["requestBody"]["content"].values():
                    assert media["schema"]
                    assert media["examples"]

    def test_shows_examples_that_are_accepted(self, document, tenant) -> None:
        tenant.settings(ofrep="server")
        tenant.post("/v1/deploys", {"commit": {"sha": "abcdef1"}})
        for path, operations in document["paths"].items():
            content = operations.get("post", {}).get("requestBody", {}).get("content", {})
            for example in content.get("application/json", {}).get("examples", {}).values():
                answer = tenant.post(path.replace("{key}", "commit"), example["value"])
                assert (path, 200 <= answer.status_code < 300) == (path, True)

    def test_tells_of_each_problem_by_its_status_and_code(self, document) -> None:
        answer: set[str] = set()
        for operations in document["paths"].values():
            for operation in operations.values():
                assert "default" not in operation["responses"]
                for status, response in operation["responses"].items():
                    if status >= "4":
                        schema = response["content"]["application/problem+json"]["schema"]
                        codes = schema["allOf"][1]["properties"]["code"]["enum"]
                        assert {CODES[code][0] for code in codes} == {int(status)}
                        answer.update(codes)
        # A fault of ours, what only the store's own readers learn, what pages alone refuse, and a
        # fault of /mcp, whose protocol describes itself.
        assert CODES.keys() - answer == {
            *("internal_error", "unknown_graph", "read_only", "host_not_allowed")
        }


def test_the_environment_must_name_a_database_and_a_secret(monkeypatch) -> None:
    with pytest.raises(ValueError, match="SERVICE_DATABASE_URL"):
        create_app()
    monkeypatch.setenv("SERVICE_DATABASE_URL", "postgresql://nowhere/none")
    with pytest.raises(ValueError, match="SERVICE_SECRET"):
        create_app()
    monkeypatch.setenv("SERVICE_SECRET", "a secret of the tests, long enough")
    assert create_app().title
