"""Events that wait to be written are bounded: beyond the bound clients shall come again."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pytest
from sqlalchemy import text

from storage.tenants.keys import KeyKind

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
            done.result() for done in as_completed(answers) if done.result().status_code != 202
        )
        # A project leaves room for another.
        neighbour = clients.submit(service.client.post, "/v1/events", content=body, headers=other)
    assert refused.json()["code"] == "overloaded"
    assert "more bytes of requests wait" in refused.json()["detail"]
    assert int(refused.headers["Retry-After"]) > 0
    assert neighbour.result().status_code == 202
    result = Counter(answer.result().status_code for answer in answers)
    assert result.keys() == {202, 503}
    with service.store.engine.begin() as connection:
        stored = connection.execute(text("SELECT count(*) FROM runtime_events")).scalar_one()
    assert stored == 250 * (result[202] + 1)
