"""`withdraw` takes back a deploy that was a mistake, and no verdict that has read it changes."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration.pipeline.drafts import draft_evidence
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.schema.clock import closed_instant
from storage.tenants.keys import KeyKind
from storage.verdicts.publication import publish_verdicts, stage_evidence

A, K, MISTAKE = "aaaaaaa", "bbbbbbb", "ccccccc"
# Of late, so that the experiments are open and their evidence can be computed anew.
START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=20)


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
    mistake = deployed(stored, MISTAKE, START + timedelta(minutes=50))
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


def evaluate(service: Any) -> dict[str, Any]:
    """Computes all evidence anew, publishes what has a look that is new, and returns all of it."""
    with service.store.engine.connect() as connection:
        as_of = closed_instant(connection)
    with service.store.engine.begin() as connection:
        extend_exposures(connection, as_of=as_of)
        extend_cells(connection)
        drafts = [one.draft for one in draft_evidence(connection, as_of=as_of)]
        stage_evidence(connection, drafts)
        publish_verdicts(connection)
    return {draft.experiment_id: json.loads(draft.document) for draft in drafts}


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
    read, then = evaluate(stored)[before_it], as_of_then()
    assert evidence(stored, before_it) == read
    result = command("withdraw", mistake, "-p", "shop")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"Withdrew the deploy of commit {MISTAKE} in production.\n"
    after_it = registered(stored, "sale")
    # Computed anew it is what it was, and so a later look builds on the same past.
    assert evaluate(stored)[before_it] == read
    assert evidence(stored, before_it) == read
    assert then.strip("[]\n ") in as_of_then()
    for experiment_id in (before_it, after_it):
        audit = command("audit", experiment_id)
        assert (audit.exit_code, audit.output[-18:]) == (0, "equal to the byte.\n"[-18:])
    # It cuts the analysis blocks of the one, and never was for the other.
    looks = [
        {look["at"] for look in found["looks"]} for found in (read, evidence(stored, after_it))
    ]
    assert looks[0] - looks[1]


def test_the_service_is_asked_where_one_is_named(
    command: Callable[..., Any], served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy_id = deployed(served, A, START)
    monkeypatch.setenv("SERVICE_PROJECT_KEY", served.project.keys[KeyKind.WRITE])
    assert command("withdraw", deploy_id).stdout.startswith("Withdrew the deploy of commit aaaaaaa")
    assert served.get("/v1/deploys/last").status_code == 404
    unknown = command("withdraw", "dep_00000000000000000000")
    assert unknown.exit_code == 1
    advice = "SERVICE_PROJECT_KEY may hold another project's key"
    assert unknown.stderr == f"Error: there is no such deploy in this project; {advice}\n"


@pytest.mark.usefixtures("stored")
def test_an_unknown_deploy_is_told_in_which_project(command: Callable[..., Any]) -> None:
    unknown = command("withdraw", "dep_00000000000000000000", "-p", "shop")
    assert unknown.exit_code == 1
    advice = "--project names another"
    assert unknown.stderr == f"Error: there is no such deploy in project 'shop': {advice}\n"
