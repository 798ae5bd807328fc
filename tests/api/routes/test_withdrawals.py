"""Deploys that were posted by mistake: refused where their time is wrong, else withdrawn."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text

from storage.tenants.keys import KeyKind

DEPLOYS, LAST, REGISTER = "/v1/deploys", "/v1/deploys/last", "/v1/reward/register"
A, B, C = "aaaaaaa", "bbbbbbb", "ccccccc"


def frozen(tenant: Any, experiment_id: str) -> Any:
    """What the experiment compares."""
    asked = text(
        "SELECT treatment_commit, control_commit, change, deploy_id FROM experiments"
        " WHERE experiment_id = :id"
    )
    return tenant.in_store(lambda c: c.execute(asked, {"id": experiment_id}).one())


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


class TestTheTimeOfADeploy:
    def test_may_be_ahead_by_what_clocks_differ_and_no_further(self, tenant) -> None:
        for seconds in (180, 70 * 365 * 86_400):
            body = {"commit": {"sha": A}, "deployed_at": soon(seconds)}
            answer = tenant.post(DEPLOYS, body)
            assert answer.status_code == 422
            (error,) = answer.json()["errors"]
            assert (error["pointer"], error["code"]) == ("/deployed_at", "in_the_future")
            assert "more than 2 minutes in the future" in error["detail"]
        assert tenant.get(LAST).status_code == 404
        deploy = tenant.deploy(A, deployed_at=soon(90))
        assert tenant.get(LAST).json()["deploy"] == deploy


class TestAWithdrawnDeploy:
    def test_is_told_and_gone_and_nobodys_base(self, tenant) -> None:
        first, mistake = tenant.deploy(A), tenant.deploy(B)
        answer = tenant.withdraw(mistake)
        assert answer.status_code == 200
        assert answer.json()["deploy"] == mistake
        assert answer.json()["withdrawn_at"] > mistake["recorded_at"]
        assert tenant.get(LAST).json()["deploy"] == first
        assert tenant.get(DEPLOYS).json()["deploys"] == [first]
        # A retry after a lost answer.
        assert tenant.withdraw(mistake).content == answer.content
        deploy = tenant.deploy(C)
        assert (deploy["base_commit"], deploy["base_assumed"]) == (A, True)
        experiment = frozen(tenant, tenant.register())
        assert (experiment.control_commit, experiment.change) == (A, [C])

    def test_of_another_project_is_an_unknown_one(self, tenant) -> None:
        deploy = tenant.deploy(A)
        other = tenant.new_project(f"beside {tenant.project.name}")
        key = {"X-Service-Project-Key": other.keys[KeyKind.WRITE]}
        answers = [
            tenant.client.delete(f"{DEPLOYS}/{name}", headers=key)
            for name in (deploy["deploy_id"], "dep_00000000000000000000", "dep_1", "%00")
        ]
        assert {answer.status_code for answer in answers} == {404}
        documents = [answer.json() | {"request_id": ""} for answer in answers]
        assert documents == [documents[0]] * 4
        assert documents[0]["code"] == "unknown_deploy"
        assert tenant.get(LAST).json()["deploy"] == deploy

    def test_can_be_posted_again_with_what_is_right(self, tenant) -> None:
        key = {"headers": tenant.write | {"Idempotency-Key": "run 17"}}
        body = {"commit": {"sha": B}, "deployed_at": "2026-01-31T12:00:00Z"}
        tenant.deploy(A, deployed_at="2026-01-30T12:00:00Z")
        first = tenant.post(DEPLOYS, body, **key)
        tenant.withdraw(first.json()["deploy"])
        again = tenant.post(DEPLOYS, {**body, "allocation": 0.1}, **key)
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.json()["deploy"]["deploy_id"] != first.json()["deploy"]["deploy_id"]
        assert again.json()["deploy"]["allocation"] == 0.1

    def test_does_not_keep_a_wrong_base(self, tenant) -> None:
        tenant.deploy(A)
        mistake = tenant.deploy(C, diff={"base_commit": B, "files": []})
        tenant.withdraw(mistake)
        tenant.deploy(C, diff={"base_commit": A, "files": []})
        assert frozen(tenant, tenant.register()).change == [C]

    def test_of_a_commit_that_served_keeps_what_units_were_placed_by(self, tenant) -> None:
        tenant.deploy(A)
        mistake = tenant.deploy(C, diff={"base_commit": B, "files": []})
        event = {"event": "page_view", "session_id": "s", "commit": C}
        assert tenant.post("/v1/events", event).status_code == 202
        tenant.withdraw(mistake)
        tenant.deploy(C, diff={"base_commit": A, "files": []})
        experiment = frozen(tenant, tenant.register())
        assert (experiment.control_commit, experiment.change) == (B, [C])

    def test_gives_back_the_graph_that_was_current(self, tenant) -> None:
        def graph(path: str) -> dict[str, Any]:
            return {"schema_version": 1, "routes": [{"path": path}]}

        tenant.deploy(A, graph=graph("/right"))
        tenant.withdraw(tenant.deploy(B, graph=graph("/wrong")))
        assert tenant.get(LAST).json()["graph"] == graph("/right")
        tenant.deploy(C)
        assert tenant.get(LAST).json()["graph"] == graph("/right")
        # An upload that came later stays; so does what a later deploy stands on.
        mistake = tenant.deploy(B, graph=graph("/wrong"))
        tenant.post("/v1/static-graphs", graph("/newer"))
        tenant.withdraw(mistake)
        assert tenant.deploy("ddddddd")["graph_id"] != mistake["graph_id"]
        assert tenant.get(LAST).json()["graph"] == graph("/newer")

    def test_is_not_withdrawn_while_an_experiment_rests_on_it(self, tenant) -> None:
        control, treatment = tenant.deploy(A), tenant.deploy(B, allocation=0.1)
        step = tenant.deploy(B, allocation=0.2)
        experiment_id = tenant.register(treatment_commit=B)
        for deploy in (control, treatment, step):
            answer = tenant.withdraw(deploy)
            assert (answer.status_code, answer.json()["code"]) == (409, "deploy_in_use")
            assert experiment_id in answer.json()["detail"]
        assert tenant.get(LAST).json()["deploy"] == step
        beside = tenant.deploy(C)
        assert tenant.withdraw(beside).status_code == 200

    def test_that_an_experiment_waited_for_is_in_use(self, tenant) -> None:
        experiment_id = tenant.register(treatment_commit=B)
        tenant.deploy(A)
        answer = tenant.withdraw(tenant.deploy(B))
        assert (answer.status_code, answer.json()["code"]) == (409, "deploy_in_use")
        assert experiment_id in answer.json()["detail"]
