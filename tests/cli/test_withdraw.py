"""`withdraw` takes back a deploy that was a mistake, and no verdict that has read it changes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from storage.keys import KeyKind

A, K, MISTAKE = "aaaaaaa", "bbbbbbb", "ccccccc"
START = datetime(2026, 10, 1, tzinfo=UTC)


def deployed(service: Any, sha: str, at: datetime, **members: Any) -> str:
    body = {"commit": {"sha": sha}, "deployed_at": at.isoformat(), **members}
    answer = service.post("/v1/deploys", body)
    assert answer.status_code == 201, answer.text
    return answer.json()["deploy"]["deploy_id"]


@pytest.fixture
def mistake(stored: Any) -> str:
    """A deploy amid two hours of a canary, which cuts its analysis blocks."""
    deployed(stored, A, START - timedelta(days=1))
    deployed(stored, K, START, diff={"base_commit": A, "files": []})
    mistake = deployed(stored, MISTAKE, START + timedelta(minutes=62))
    events = [
        {
            "event": event,
            "session_id": f"s{number}",
            "commit": K if number % 2 else A,
            "occurred_at": (START + timedelta(minutes=number, seconds=after)).isoformat(),
        }
        for number in range(120)
        for event, after in (("page_view", 0), ("order", 30))
        if event == "page_view" or number % 3 == 0
    ]
    answer = stored.post("/v1/events?replay=true", {"events": events})
    assert answer.json()["accepted"] == len(events)
    return mistake


def registered(service: Any, metric: str) -> str:
    asked = {"treatment_commit": K, "target_metric": metric}
    return service.post("/v1/reward/register", asked).json()["experiment_id"]


def evidence(service: Any, experiment_id: str) -> Any:
    answer = service.get(f"/v1/reward/{experiment_id}/evidence")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_withdrawn_deploy_changes_nothing_that_a_verdict_has_read(
    command: Callable[..., Any], stored: Any, mistake: str
) -> None:
    def as_of_then() -> str:
        then = (START + timedelta(hours=2)).isoformat()
        result = command("evaluate", "--as-of", then, "--json")
        assert result.exit_code == 0, result.output
        return result.stdout

    before_it = registered(stored, "order")
    assert command("evaluate").exit_code == 0
    read, then = evidence(stored, before_it), as_of_then()
    result = command("withdraw", mistake, "-p", "shop")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"Withdrew the deploy of commit {MISTAKE} in production.\n"
    after_it = registered(stored, "error")
    assert command("rebuild").exit_code == 0
    assert evidence(stored, before_it) == read
    assert then.strip("[]\n ") in as_of_then()
    for experiment_id in (before_it, after_it):
        audit = command("audit", experiment_id)
        assert (audit.exit_code, audit.output[-18:]) == (0, "equal to the byte.\n"[-18:])
    # What the deploy cut for the one it never was for the other.
    assert len(evidence(stored, after_it)["looks"]) < len(read["looks"])


def test_the_service_is_asked_where_one_is_named(
    command: Callable[..., Any], served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy_id = deployed(served, A, START)
    monkeypatch.setenv("SERVICE_PROJECT_KEY", served.project.keys[KeyKind.WRITE])
    assert command("withdraw", deploy_id).stdout.startswith("Withdrew the deploy of commit aaaaaaa")
    assert served.get("/v1/deploys/last").status_code == 404
    unknown = command("withdraw", "dep_00000000000000000000")
    assert (unknown.exit_code, unknown.stderr) == (1, "Error: there is no such deploy\n")
