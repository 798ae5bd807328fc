"""Events that wait to be written are bounded: beyond the bound clients shall come again."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pytest
from sqlalchemy import text

from storage.tenants.keys import KeyKind
from storage.tenants.settings import lock_project
from tests.world import K

pytestmark = pytest.mark.usefixtures("service")


def test_what_cannot_wait_is_refused_and_what_waits_is_stored(service) -> None:
    properties = {"filling": "x" * 4000}
    events = [
        {"event": "page_view", "session_id": f"s-{index}", "properties": properties}
        for index in range(250)
    ]
    body = json.dumps({"events": events}).encode()
    headers = {**service.write, "Content-Type": "application/json"}

    def posted(_: int) -> Any:
        return service.client.post("/v1/events", content=body, headers=headers)

    # More than what may wait, of which none can be written while the table is locked.
    requests = 96 * 2**20 // len(body)
    other = {**headers, "X-Service-Project-Key": service.new_project("other").keys[KeyKind.WRITE]}
    with ThreadPoolExecutor(requests + 1) as clients, service.store.engine.begin() as connection:
        connection.execute(text("LOCK TABLE runtime_events"))
        answers = [clients.submit(posted, number) for number in range(requests)]
        refused = next(
            done.result()
            for done in as_completed(answers)
            if done.result().json().get("code") == "overloaded"
        )
        # A project leaves room for another.
        neighbour = clients.submit(service.client.post, "/v1/events", content=body, headers=other)
    assert "more bytes of requests wait" in refused.json()["detail"]
    assert int(refused.headers["Retry-After"]) > 0
    answer = neighbour.result()
    if answer.json().get("code") == "store_unavailable":
        # A busy machine held the lock for longer than a write waits: the client comes again.
        answer = service.client.post("/v1/events", content=body, headers=other)
    assert answer.status_code == 202, answer.text
    result = Counter(answer.result().status_code for answer in answers)
    assert result.keys() == {202, 503}
    with service.store.engine.begin() as connection:
        stored = connection.execute(text("SELECT count(*) FROM runtime_events")).scalar_one()
    assert stored == 250 * (result[202] + 1)


def test_changes_that_wait_for_their_project_leave_connections_to_others(service) -> None:
    service.canary()
    other = service.new_project("other").keys[KeyKind.PROJECT]

    def registered(number: int) -> Any:
        body = {"treatment_commit": K, "target_metric": f"metric-{number}"}
        return service.client.post("/v1/reward/register", json=body, headers=service.reward)

    # More than a worker has connections.
    with ThreadPoolExecutor(14) as clients, service.store.engine.begin() as connection:
        lock_project(connection, service.project.project_id)
        answers = [clients.submit(registered, number) for number in range(14)]
        for _ in range(30):
            headers = {"X-Service-Project-Key": other}
            assert service.client.get("/v1/reward", headers=headers).status_code == 200
    assert 201 in {answer.result().status_code for answer in answers}


def test_a_change_that_waits_too_long_for_its_turn_is_told_to_come_again(
    service, monkeypatch
) -> None:
    service.canary()
    monkeypatch.setattr("api.runtime.store._TURN_SECONDS", 0.05)

    def registered(number: int) -> Any:
        body = {"treatment_commit": K, "target_metric": f"metric-{number}"}
        return service.client.post("/v1/reward/register", json=body, headers=service.reward)

    with ThreadPoolExecutor(2) as clients, service.store.engine.begin() as connection:
        lock_project(connection, service.project.project_id)
        answers = {clients.submit(registered, number) for number in range(2)}
        refused = next(as_completed(answers))
        answer = refused.result()
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        assert int(answer.headers["Retry-After"]) > 0
    # Whose turn it was goes on.
    (waited,) = answers - {refused}
    assert waited.result().status_code == 201
