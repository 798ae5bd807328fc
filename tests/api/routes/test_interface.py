"""Rows of the interface that the endpoints' own tests do not show."""

from typing import Any

import pytest
from msgspec import structs
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from domain.contract import waiting_contract
from domain.document import document_text
from storage.verdicts.publication import Draft, publish_verdicts, stage_evidence
from tests.world import World

GRAPHS, DEPLOYS, LAST = "/v1/static-graphs", "/v1/deploys", "/v1/deploys/last"
REVENUE, REGISTER = "/v1/revenue/events", "/v1/reward/register"
MONETARY = {"trial_to_paid", "subscription_renewed", "subscription_churned", "expansion"}
FUNNEL = {"signup_completed", "trial_started", "paywall_viewed", "activation"}


@pytest.fixture
def service(tenant: World) -> World:
    """A project of the test's own: no test here asks of its store what else is in it."""
    return tenant


def graph(*routes: str) -> dict[str, Any]:
    return {"schema_version": "1", "routes": [{"path": route} for route in routes]}


def deploy(sha: str) -> dict[str, Any]:
    return {"commit": {"sha": sha}}


@pytest.mark.requirement("version.prefix")
def test_every_path_of_a_project_begins_with_the_version(service: Any) -> None:
    paths = service.client.get("/openapi.json").json()["paths"]
    # OpenFeature's clients ask at addresses of their protocol, which has a version of its own.
    others = {path for path in paths if not path.startswith(("/v1/", "/ofrep/v1/"))}
    # What an operator asks of the process belongs to no project and to no version, and the
    # scripts that a team puts into its pages and builds to none either.
    scripts = {"/sdk.js", "/route-graph.mjs", "/route_graph.py"}
    assert others == {"/healthz", "/readyz", "/metrics"} | scripts


@pytest.mark.requirement("service.key-per-project")
def test_each_project_has_keys_of_its_own_that_open_nothing_of_another(service: Any) -> None:
    other = service.new_project("other")
    assert set(other.keys.values()).isdisjoint(service.project.keys.values())
    service.post(DEPLOYS, deploy("aaaaaaa"))
    theirs = service.get(LAST, headers={"X-Service-Project-Key": other.keys["write"]})
    assert theirs.status_code == 404
    assert service.get(LAST).status_code == 200


@pytest.mark.requirement("graph.current", "endpoint.static-graphs.effect")
def test_the_graph_uploaded_last_is_the_current_one_of_the_next_deploy(service: Any) -> None:
    for routes in (["/old"], ["/new"]):
        assert service.post(GRAPHS, graph(*routes)).json()["current"] is True
    service.post(DEPLOYS, deploy("aaaaaaa"))
    assert service.get(LAST).json()["graph"] == graph("/new")


@pytest.mark.requirement("endpoint.deploys-last.use")
def test_ci_finds_the_commit_and_the_graph_that_its_new_ones_are_compared_with(
    service: Any,
) -> None:
    service.post(DEPLOYS, {**deploy("aaaaaaa"), "graph": graph("/checkout")})
    # An upload that no deploy points to yet is not what is out there.
    service.post(GRAPHS, graph("/checkout", "/next"))
    previous = service.get(LAST).json()
    assert previous["deploy"]["commit"]["sha"] == "aaaaaaa"
    assert previous["graph"] == graph("/checkout")


@pytest.mark.requirement("revenue.event", "inbound.revenue")
def test_revenue_events_have_the_eight_names_and_no_other(
    service: Any, revenue_event: dict[str, Any]
) -> None:
    amount = revenue_event.pop("amount")
    for number, name in enumerate([*MONETARY, *FUNNEL]):
        event = {**revenue_event, "event": name, "idempotency_key": str(number)}
        body = {**event, "amount": amount} if name in MONETARY else event
        assert service.post(REVENUE, body).status_code == 200
    for name in ("refund", "Activation", "page_view", "", 1):
        answer = service.post(REVENUE, {**revenue_event, "event": name, "idempotency_key": "x"})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/event"


@pytest.mark.requirement(
    "revenue.amount.value", "revenue.amount.currency", "endpoint.revenue.monetary"
)
@pytest.mark.parametrize("member", ["value", "currency"])
def test_an_amount_has_a_value_and_a_currency(
    service: Any, revenue_event: dict[str, Any], member: str
) -> None:
    amount = {name: told for name, told in revenue_event["amount"].items() if name != member}
    answer = service.post(REVENUE, {**revenue_event, "amount": amount})
    assert answer.status_code == 422
    (fault,) = answer.json()["errors"]
    assert (fault["pointer"], fault["code"]) == (f"/amount/{member}", "missing")


@pytest.mark.requirement("revenue.attributes", "revenue.attributes.provider")
def test_attributes_are_free_and_the_provider_changes_nothing(
    service: Any, revenue_event: dict[str, Any]
) -> None:
    kept = {"plan": "team", "environment": "production", "anything": {"nested": [1, None]}}
    providers = [{}, {"provider": "stripe"}, {"provider": "homegrown"}, {"provider": 7}]
    for number, provider in enumerate(providers):
        event = {**revenue_event, "idempotency_key": str(number)}
        answer = service.post(REVENUE, {**event, "attributes": {**kept, **provider}})
        assert (answer.status_code, answer.json()["accepted"]) == (200, 1)
    columns = "event, occurred_at, amount_value, amount_currency, pseudonym, environment"
    stored = service.in_store(
        lambda c: c.execute(
            text(
                f"SELECT {columns}, session_id, attributes::jsonb - 'provider' FROM revenue_events"
                " WHERE project_id = :id"
            ),
            {"id": service.project_id},
        ).all()
    )
    assert len(stored) == len(providers)
    assert len({row[:-1] for row in stored}) == 1
    assert all(row[-1] == kept for row in stored)


@pytest.mark.requirement(
    "endpoint.register.response", "status.register", "experiment.experiment_id"
)
def test_registering_answers_201_with_the_new_identifier_alone(service: Any) -> None:
    answers = [service.post(REGISTER, {"target_metric": metric}) for metric in ("a", "b")]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert [list(answer.json()) for answer in answers] == [["experiment_id"]] * 2
    first, second = (answer.json()["experiment_id"] for answer in answers)
    assert isinstance(first, str)
    assert first != second


@pytest.mark.requirement(
    "endpoint.register.target_metric",
    "experiment.target_metric.string",
    "experiment.target_metric.object",
)
def test_a_target_metric_is_a_name_or_an_object_with_one(service: Any) -> None:
    service.post(DEPLOYS, deploy("aaaaaaa"))
    for metric in ("a", {"name": "b", "value_per_conversion": 2.5}):
        assert service.post(REGISTER, {"target_metric": metric}).status_code == 201
    listed = service.get("/v1/reward").json()["experiments"]
    assert [one["metric"] for one in listed] == ["b", "a"]


@pytest.mark.requirement(
    "endpoint.register.deploy_id", "endpoint.register.treatment_commit", "experiment.members"
)
def test_a_registration_may_name_its_deploy_its_commit_or_both(service: Any) -> None:
    service.post(DEPLOYS, deploy("aaaaaaa"))
    named = service.post(DEPLOYS, deploy("bbbbbbb")).json()["deploy"]["deploy_id"]
    service.post(DEPLOYS, deploy("ccccccc"))
    for metric, members in {
        "a": {"deploy_id": named},
        "b": {"treatment_commit": "bbbbbbb"},
        "c": {"deploy_id": named, "treatment_commit": "bbbbbbb"},
    }.items():
        service.post(REGISTER, {**members, "target_metric": metric})
    listed = service.get("/v1/reward").json()["experiments"]
    assert {one["metric"] for one in listed} == {"a", "b", "c"}
    assert {(one["deploy_id"], one["treatment_commit"]) for one in listed} == {(named, "bbbbbbb")}


def published(service: Any, **members: Any) -> dict[str, Any]:
    """Publishes a contract of a new experiment, whatever it says, and returns what is served."""
    experiment_id = service.post(REGISTER, {}).json()["experiment_id"]
    told = {**structs.asdict(waiting_contract(experiment_id)), **members}
    draft = Draft(
        experiment_id=experiment_id,
        document="{}",
        contract=document_text(told),
        as_of=None,
        next_look_at=None,
    )
    service.in_store(lambda c: (stage_evidence(c, [draft]), publish_verdicts(c)))
    return service.get(f"/v1/reward/{experiment_id}").json()


@pytest.mark.requirement("contract.verdict", "contract.abstain_reason")
@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        ("keep", None),
        ("rollback", None),
        ("iterate", None),
        ("abstain", "power"),
        ("abstain", "non_identifiable"),
        ("abstain", "interacting"),
    ],
)
def test_every_word_of_the_contract_can_be_served(
    service: Any, verdict: str, reason: str | None
) -> None:
    served = published(service, verdict=verdict, abstain_reason=reason)
    assert (served["verdict"], served["abstain_reason"]) == (verdict, reason)


@pytest.mark.requirement("contract.verdict", "contract.abstain_reason")
@pytest.mark.parametrize(
    ("verdict", "reason"),
    [("maybe", None), ("abstain", "tired"), ("abstain", None), ("keep", "power")],
)
def test_no_other_word_can_be_served(service: Any, verdict: str, reason: str | None) -> None:
    with pytest.raises(IntegrityError):
        published(service, verdict=verdict, abstain_reason=reason)


@pytest.mark.requirement("contract.guardrail_breaches")
def test_breaches_are_served_as_names(service: Any) -> None:
    served = published(
        service, verdict="iterate", abstain_reason=None, guardrail_breaches=["error", "slow"]
    )
    assert served["guardrail_breaches"] == ["error", "slow"]
