"""Deploys that were posted by mistake: refused where their time is wrong, else withdrawn."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from storage.tenants.keys import KeyKind
from tests.world import World

DEPLOYS, LAST, REGISTER = "/v1/deploys", "/v1/deploys/last", "/v1/reward/register"
A, B, C = "aaaaaaa", "bbbbbbb", "ccccccc"


@pytest.fixture
def service(tenant: World) -> World:
    """A project of the test's own: no test here asks of its store what else is in it."""
    return tenant


def deployed(service: Any, sha: str, **members: Any) -> dict[str, Any]:
    answer = service.post(DEPLOYS, {"commit": {"sha": sha}, **members})
    assert answer.status_code == 201, answer.text
    return answer.json()["deploy"]


def withdrawn(service: Any, deploy: dict[str, Any]) -> Any:
    return service.client.delete(f"{DEPLOYS}/{deploy['deploy_id']}", headers=service.write)


def registered(service: Any, **members: Any) -> str:
    answer = service.post(REGISTER, members)
    assert answer.status_code == 201, answer.text
    return answer.json()["experiment_id"]


def frozen(service: Any, experiment_id: str) -> Any:
    """What the experiment compares."""
    asked = text(
        "SELECT treatment_commit, control_commit, change, deploy_id FROM experiments"
        " WHERE experiment_id = :id"
    )
    return service.in_store(lambda c: c.execute(asked, {"id": experiment_id}).one())


def dated(service: Any, deploy: dict[str, Any], moment: str) -> None:
    """Gives a deploy a time that only an earlier version took."""
    service.in_store(
        lambda c: c.execute(
            text("UPDATE deploys SET deployed_at = :at WHERE deploy_id = :id"),
            {"at": datetime.fromisoformat(moment), "id": deploy["deploy_id"]},
        )
    )


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


class TestTheTimeOfADeploy:
    def test_may_be_ahead_by_what_clocks_differ(self, service: Any) -> None:
        deploy = deployed(service, A, deployed_at=soon(90))
        assert service.get(LAST).json()["deploy"] == deploy

    @pytest.mark.parametrize("seconds", [180, 70 * 365 * 86_400])
    def test_may_not_lie_in_the_future(self, service: Any, seconds: float) -> None:
        body = {"commit": {"sha": A}, "deployed_at": soon(seconds)}
        answer = service.post(DEPLOYS, body)
        assert answer.status_code == 422
        (error,) = answer.json()["errors"]
        assert (error["pointer"], error["code"]) == ("/deployed_at", "in_the_future")
        assert "more than 2 minutes in the future" in error["detail"]
        assert service.get(LAST).status_code == 404

    def test_that_an_earlier_version_took_holds_nobody_up(self, service: Any) -> None:
        standing = deployed(service, A)
        canary = deployed(service, B)
        future = deployed(service, C)
        dated(service, future, "2099-01-01T00:00:00+00:00")
        assert service.get(LAST).json()["deploy"] == canary
        experiment = frozen(service, registered(service))
        assert (experiment.deploy_id, experiment.control_commit) == (canary["deploy_id"], A)
        # It is seen, so that somebody can withdraw it, and comes into force in its time.
        listed = service.get(DEPLOYS).json()["deploys"]
        assert [deploy["deploy_id"] for deploy in listed] == [
            one["deploy_id"] for one in (future, canary, standing)
        ]
        assert withdrawn(service, future).status_code == 200
        assert service.get(DEPLOYS).json()["deploys"] == [canary, standing]


class TestAWithdrawnDeploy:
    def test_is_told_and_gone(self, service: Any) -> None:
        first, mistake = deployed(service, A), deployed(service, B)
        answer = withdrawn(service, mistake)
        assert answer.status_code == 200
        assert answer.json()["deploy"] == mistake
        assert answer.json()["withdrawn_at"] > mistake["recorded_at"]
        assert service.get(LAST).json()["deploy"] == first
        assert service.get(DEPLOYS).json()["deploys"] == [first]
        # A retry after a lost answer.
        assert withdrawn(service, mistake).content == answer.content

    @pytest.mark.parametrize("environment", ["production", "staging"])
    def test_of_an_environment_without_another_leaves_none(
        self, service: Any, environment: str
    ) -> None:
        withdrawn(service, deployed(service, A, environment=environment))
        assert service.get(LAST, params={"environment": environment}).status_code == 404

    def test_of_another_project_is_an_unknown_one(self, service: Any) -> None:
        deploy = deployed(service, A)
        other = service.new_project(f"beside {service.project.name}")
        key = {"X-Service-Project-Key": other.keys[KeyKind.WRITE]}
        answers = [
            service.client.delete(f"{DEPLOYS}/{name}", headers=key)
            for name in (deploy["deploy_id"], "dep_00000000000000000000", "dep_1", "%00")
        ]
        assert {answer.status_code for answer in answers} == {404}
        documents = [answer.json() | {"request_id": ""} for answer in answers]
        assert documents == [documents[0]] * 4
        assert documents[0]["code"] == "unknown_deploy"
        assert service.get(LAST).json()["deploy"] == deploy

    def test_can_be_posted_again_with_what_is_right(self, service: Any) -> None:
        key = {"headers": service.write | {"Idempotency-Key": "run 17"}}
        body = {"commit": {"sha": B}, "deployed_at": "2026-01-31T12:00:00Z"}
        deployed(service, A, deployed_at="2026-01-30T12:00:00Z")
        first = service.post(DEPLOYS, body, **key)
        withdrawn(service, first.json()["deploy"])
        again = service.post(DEPLOYS, {**body, "allocation": 0.1}, **key)
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.json()["deploy"]["deploy_id"] != first.json()["deploy"]["deploy_id"]
        assert again.json()["deploy"]["allocation"] == 0.1

    def test_is_nobodys_base(self, service: Any) -> None:
        deployed(service, A)
        mistake = deployed(service, B)
        withdrawn(service, mistake)
        deploy = deployed(service, C)
        assert (deploy["base_commit"], deploy["base_assumed"]) == (A, True)
        experiment = frozen(service, registered(service))
        assert (experiment.control_commit, experiment.change) == (A, [C])

    def test_does_not_keep_a_wrong_base(self, service: Any) -> None:
        deployed(service, A)
        mistake = deployed(service, C, diff={"base_commit": B, "files": []})
        withdrawn(service, mistake)
        deployed(service, C, diff={"base_commit": A, "files": []})
        assert frozen(service, registered(service)).change == [C]

    def test_of_a_commit_that_served_keeps_what_units_were_placed_by(self, service: Any) -> None:
        deployed(service, A)
        mistake = deployed(service, C, diff={"base_commit": B, "files": []})
        event = {"event": "page_view", "session_id": "s", "commit": C}
        assert service.post("/v1/events", event).status_code == 202
        withdrawn(service, mistake)
        deployed(service, C, diff={"base_commit": A, "files": []})
        experiment = frozen(service, registered(service))
        assert (experiment.control_commit, experiment.change) == (B, [C])

    def test_gives_back_the_graph_that_was_current(self, service: Any) -> None:
        def graph(path: str) -> dict[str, Any]:
            return {"schema_version": 1, "routes": [{"path": path}]}

        deployed(service, A, graph=graph("/right"))
        withdrawn(service, deployed(service, B, graph=graph("/wrong")))
        assert service.get(LAST).json()["graph"] == graph("/right")
        deployed(service, C)
        assert service.get(LAST).json()["graph"] == graph("/right")
        # An upload that came later stays; so does what a later deploy stands on.
        mistake = deployed(service, B, graph=graph("/wrong"))
        service.post("/v1/static-graphs", graph("/newer"))
        withdrawn(service, mistake)
        assert deployed(service, "ddddddd")["graph_id"] != mistake["graph_id"]
        assert service.get(LAST).json()["graph"] == graph("/newer")

    def test_is_not_withdrawn_while_an_experiment_rests_on_it(self, service: Any) -> None:
        control, treatment = deployed(service, A), deployed(service, B, allocation=0.1)
        step = deployed(service, B, allocation=0.2)
        experiment_id = registered(service, treatment_commit=B)
        for deploy in (control, treatment, step):
            answer = withdrawn(service, deploy)
            assert (answer.status_code, answer.json()["code"]) == (409, "deploy_in_use")
            assert experiment_id in answer.json()["detail"]
        assert service.get(LAST).json()["deploy"] == step
        beside = deployed(service, C)
        assert withdrawn(service, beside).status_code == 200

    def test_that_an_experiment_waited_for_is_in_use(self, service: Any) -> None:
        experiment_id = registered(service, treatment_commit=B)
        deployed(service, A)
        answer = withdrawn(service, deployed(service, B))
        assert (answer.status_code, answer.json()["code"]) == (409, "deploy_in_use")
        assert experiment_id in answer.json()["detail"]
